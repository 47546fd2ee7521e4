"""The checks: one module a contract, one function a clause. Importing this registers them."""

from conformance.checks import datafree, mask, position, readback, refuse, state, update

__all__ = ["datafree", "mask", "position", "readback", "refuse", "state", "update"]
