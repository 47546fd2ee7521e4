"""Check the expectation files with several type checkers.

    python -m tests.typing [--checker NAME ...] [--python-version X.Y ...]

mypy, pyright, ty and pyrefly are each asked, where they are installed. Exit status: 0 if each
reports the errors that the files expect of it, and no other; 1 if one does not, or none is there.
"""

from __future__ import annotations

import argparse

from tests.typing.checkers import CASES, CHECKERS, NotInstalled, differences


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.typing", description=__doc__)
    parser.add_argument("--checker", action="append", choices=list(CHECKERS))
    parser.add_argument("--python-version", action="append", metavar="X.Y")
    options = parser.parse_args()
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
            ran += 1
            failed += bool(said)
            print(f"{checker} {version}: {f'{len(said)} differences' if said else 'as expected'}")
            for line in said:
                print(f"  {line}")
    return int(failed > 0 or ran == 0)


if __name__ == "__main__":
    raise SystemExit(main())
