"""Builds the site and follows its own links: ``python -m tests.site [FOLDER]``.

Needs ``pip install '.[docs]'``. A warning of Sphinx is an error, and so is a link to a page, a
file or a part of a page that is not there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name == "id" and value:
                self.ids.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Every link of a page to something of the site that is not there, as ``page: link``."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            if not target.exists() or (
                fragment and target in pages and fragment not in pages[target].ids
            ):
                yield f"{path.relative_to(site)}: {link}"


def build(site: Path) -> None:
    """Raises subprocess.CalledProcessError where Sphinx warns."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    subprocess.run([*command, str(ROOT / "docs"), str(site)], check=True, cwd=ROOT)


def main() -> int:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    build(site)
    broken = list(broken_links(site))
    for link in broken:
        print(f"broken link: {link}")
    count = sum(1 for _ in site.rglob("*.html"))
    print(f"{site}: {count} pages, {len(broken)} broken links")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
