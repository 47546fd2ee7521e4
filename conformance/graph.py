"""Questions about MLX's lazy graph: what an array still depends on, unevaluated.

``mx.export_to_dot`` writes the graph behind arrays; evaluated arrays are leaves of it.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence

import mlx.core as mx

_PRIMITIVE = re.compile(r'\[label ="([^"]+)", shape=rectangle\]')


def pending(arrays: Sequence[mx.array]) -> Counter[str]:
    """The unevaluated operations behind arrays, by name."""
    if not arrays:
        return Counter()
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return Counter(_PRIMITIVE.findall(text.getvalue()))


WRITES_IN_PLACE = frozenset(
    {
        "SliceUpdate",
        "DynamicSliceUpdate",
        "Slice",
        "DynamicSlice",
        "Reshape",
        "ExpandDims",
        "Squeeze",
        "Flatten",
        "Unflatten",
        "Transpose",
        "AsType",
        "Depends",
    }
)
"""Operations that write into their first input, or view it: what an append to a buffer with room
consists of. Any other one on the way from the buffer makes a new buffer."""

_EDGE = re.compile(r"^(\S+) -> (\S+)$", re.MULTILINE)
_NAMED = re.compile(r'(\d+) \[label ="([^"]+)", shape=rectangle\]')


def makes_new_buffer(arrays: Sequence[mx.array], rows: int) -> bool:
    """Whether computing these arrays, of at least ``rows`` rows, fills a new buffer.

    Only the way from a buffer to what becomes of it counts: what is written into it, or only
    evaluated along with it (``mx.depends``), is computed anew in any case.
    """
    large = [array for array in arrays if array.ndim >= 3 and array.shape[-2] >= rows]
    return any(_is_new(array) for array in large)


def _is_new(array: mx.array) -> bool:
    text = io.StringIO()
    mx.export_to_dot(text, array)
    names = dict(_NAMED.findall(text.getvalue()))
    first_input: dict[str, str] = {}
    producer: dict[str, str] = {}
    last = ""
    for source, target in _EDGE.findall(text.getvalue()):
        if target in names:
            first_input.setdefault(target, source)
        else:
            producer[target] = source
            last = target
    while last in producer:  # the array itself is the last one that is written
        operation = producer[last]
        if names[operation] not in WRITES_IN_PLACE:
            return True
        last = first_input[operation]
    return False
