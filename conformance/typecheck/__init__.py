"""What a type checker says of a cache: ``kvproto typecheck TARGET``."""
