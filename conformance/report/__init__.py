"""Reports for people: the terminal."""
