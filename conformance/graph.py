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
        "Quantize",
        "AffineQuantize",
        "fast::AffineQuantize",
        "Custom",
        "Depends",
    }
)
"""Operations that write or view new rows; the rest of a one-token append makes a new buffer."""


def makes_new_buffer(arrays: Sequence[mx.array], rows: int) -> bool:
    """Whether computing these arrays, of at least ``rows`` rows, fills a new buffer."""
    large = [array for array in arrays if array.ndim >= 3 and array.shape[-2] >= rows]
    return any(name not in WRITES_IN_PLACE for name in pending(large))
