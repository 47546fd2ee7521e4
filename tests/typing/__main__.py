"""Check the expectation files, and the table of classes and protocols, with several checkers.

    python -m tests.typing [--checker NAME ...] [--python-version X.Y ...] [--root TABLE=FOLDER ...]

mypy, pyright, ty and pyrefly are each asked, where they are installed. Of the table, what the
others say is compared with tables/others.md; the packages that are not installed are left out
unless their releases are unpacked and named by --root. Exit status: 0 if everything is as
expected; 1 if something is not, or no checker is there.
"""

from __future__ import annotations

import argparse

from tests.typing import table
from tests.typing.checkers import CASES, CHECKERS, NotInstalled, differences


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.typing",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--checker", action="append", choices=list(CHECKERS))
    parser.add_argument("--python-version", action="append", metavar="X.Y")
    parser.add_argument("--root", action="append", default=[], metavar="TABLE=FOLDER")
    parser.add_argument("--write", action="store_true", help="write tables/others.md")
    options = parser.parse_args()
    roots, names = table.given(options.root)
    recorded: list[str] = []
    paths = sorted(CASES.glob("*.py"))
    ran, failed = 0, 0
    for checker in options.checker or CHECKERS:
        for version in options.python_version or ["3.10", "3.13"]:
            try:
                said = differences(checker, paths, version)
            except NotInstalled as error:
                print(error)
                failed += options.checker is not None
                break
            if checker != "mypy":
                rows = table.disagreements(checker, names, roots, version)
                recorded += [row for row in rows if row not in recorded]
                if not options.write:
                    said += table.unrecorded(checker, names, rows)
            ran += 1
            failed += bool(said)
            print(f"{checker} {version}: {f'{len(said)} differences' if said else 'as expected'}")
            for line in said:
                print(f"  {line}")
    if options.write:
        table.OTHERS_PAGE.write_text(table.others_page(recorded), encoding="utf-8")
    return int(failed > 0 or ran == 0)


if __name__ == "__main__":
    raise SystemExit(main())
