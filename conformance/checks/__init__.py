"""The checks: one module a contract, one function a clause. Importing this registers them."""

from conformance.checks import (
    batch,
    copying,
    datafree,
    mask,
    measure,
    position,
    quantize,
    readback,
    refuse,
    restore,
    state,
    trim,
    update,
    window,
)

__all__ = [
    "batch",
    "copying",
    "datafree",
    "mask",
    "measure",
    "position",
    "quantize",
    "readback",
    "refuse",
    "restore",
    "state",
    "trim",
    "update",
    "window",
]
