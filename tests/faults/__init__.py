"""A gallery of broken caches: each has one fault, and the suite must name the clause it breaks.

One module a contract, as in kvproto/contracts and conformance/checks. The classes are reference
caches with one thing changed.
"""

from tests.faults import (
    batch,
    composite,
    copying,
    datafree,
    decode,
    layout,
    mask,
    measure,
    mixed_dtypes,
    opaque,
    parts,
    pool,
    position,
    prompt,
    quantize,
    readback,
    recurrent,
    refuse,
    restore,
    snapshot,
    state,
    threads,
    trim,
    update,
    window,
)
from tests.faults.gallery import FAULTS, Fault

__all__ = [
    "FAULTS",
    "Fault",
    "batch",
    "composite",
    "copying",
    "datafree",
    "decode",
    "layout",
    "mask",
    "measure",
    "mixed_dtypes",
    "opaque",
    "parts",
    "pool",
    "position",
    "prompt",
    "quantize",
    "readback",
    "recurrent",
    "refuse",
    "restore",
    "snapshot",
    "state",
    "threads",
    "trim",
    "update",
    "window",
]
