"""The contracts, in the order of the spec. Importing this package registers every clause."""

# ruff: noqa: I001 (the order of these imports is the order of the clauses)
from kvproto.contracts import position
from kvproto.contracts import mask
from kvproto.contracts import update
from kvproto.contracts import state
from kvproto.contracts import datafree
from kvproto.contracts import refuse
from kvproto.contracts import readback

__all__ = ["datafree", "mask", "position", "readback", "refuse", "state", "update"]
