"""Every fault of the gallery, held against its own clause and against every other MUST::

    python -m tests.faults [NAME ...]

The suite must find the fault under the clause that it breaks, and name no other MUST. NAME is
a part of a fault's id, such as TRIM-4 or KeepsSetSlots; without one, all are judged.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.progress import track

from tests.faults import FAULTS
from tests.faults.verdicts import compare, other_musts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a fault's id")
    names = parser.parse_args().names
    faults = [f for f in FAULTS if not names or any(name in f.id for name in names)]
    if not faults:
        parser.error(f"no fault's id contains {' or '.join(map(repr, names))}")
    console = Console(stderr=True)
    right = 0
    for fault in track(faults, "faults", console=console):
        wrong = compare(fault, *other_musts(fault))
        right += not wrong
        for line in wrong:
            console.print(f"{fault.id}: {line}", markup=False)
    print(f"{right}/{len(faults)} faults are named by their clause and by no other MUST")
    return 0 if right == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
