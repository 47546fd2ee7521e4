"""A gallery of broken caches: each has one fault, and the suite must name the clause it breaks.

One module a contract, as in kvproto/contracts and conformance/checks. The classes are reference
caches with one thing changed.
"""

from tests.faults import datafree, mask, position, readback, refuse, state, update
from tests.faults.gallery import FAULTS, Fault

__all__ = [
    "FAULTS",
    "Fault",
    "datafree",
    "mask",
    "position",
    "readback",
    "refuse",
    "state",
    "update",
]
