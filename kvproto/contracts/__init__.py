"""The contracts, in the order of the spec. Importing this package registers every clause."""

# ruff: noqa: I001 (the order of these imports is the order of the clauses)
from kvproto.contracts import position
from kvproto.contracts import mask
from kvproto.contracts import update
from kvproto.contracts import opaque
from kvproto.contracts import state
from kvproto.contracts import restore
from kvproto.contracts import copying
from kvproto.contracts import trim
from kvproto.contracts import measure
from kvproto.contracts import window
from kvproto.contracts import quantize
from kvproto.contracts import batch
from kvproto.contracts import recurrent
from kvproto.contracts import composite
from kvproto.contracts import datafree
from kvproto.contracts import refuse
from kvproto.contracts import readback
from kvproto.contracts import decode
from kvproto.contracts import pool
from kvproto.contracts import prompt
from kvproto.contracts import snapshot
from kvproto.contracts import layout
from kvproto.contracts import threads

__all__ = [
    "batch",
    "composite",
    "copying",
    "datafree",
    "decode",
    "layout",
    "mask",
    "measure",
    "opaque",
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
