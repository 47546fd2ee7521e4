"""Hypothesis strategies for traces. They go where caches break: single tokens and chunks,
windows and wraps, and one token before, at and after each number the class itself declares.

Preconditions read the claims and the running length only, never the cache under test.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from conformance.subject import Profile
from conformance.tags import LARGEST_TOKEN
from conformance.trace import Ask, Operation, Trim
from kvproto.visibility import Full, Sinks, SlidingWindow

USUAL_BOUNDARIES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Buffer sizes that caches grow by without declaring them."""


@dataclass(frozen=True)
class Shape:
    """What kind of traces to draw.

    Args:
        tokens: most tokens in a trace.
        steps: most operations.
        near: whether to jump to boundaries (growth, windows).
        windows: whether to ask for windows: False, True, or "only" (every step has one).
        single: whether every step is one token.
        arrays: whether to ask for arrays.
        trims: whether to trim in between.
    """

    tokens: int = 48
    steps: int = 8
    near: bool = True
    windows: bool | str = True
    single: bool = False
    arrays: bool = True
    trims: bool = False


def boundaries(profile: Profile, limit: int) -> list[int]:
    """Token counts near which this cache may change its behaviour."""
    found = {*USUAL_BOUNDARIES, *profile.claims.boundaries}
    found |= {2 * number for number in profile.claims.boundaries}
    found |= {256 * n for n in range(1, 5)}
    return sorted(number for number in found if 1 < number <= limit)


def window_sizes(profile: Profile, needed: int) -> st.SearchStrategy[int]:
    """Windows that a layer may ask this cache for, around ``needed`` tokens."""
    visibility = profile.claims.visibility
    if isinstance(visibility, Sinks):
        return st.just(visibility.window)
    if isinstance(visibility, SlidingWindow):
        return st.integers(1, visibility.window) | st.just(visibility.window)
    return st.integers(1, max(needed + 1, 2))


@st.composite
def traces(
    draw: st.DrawFn, profile: Profile, shape: Shape, dtype: str = "float32"
) -> list[Operation]:
    """A list of operations, short ones first."""
    limit = min(shape.tokens, LARGEST_TOKEN[dtype] - 1)
    near = boundaries(profile, limit) if shape.near else []
    operations: list[Operation] = []
    length = profile.claims.start
    for _ in range(draw(st.integers(1, shape.steps))):
        if shape.trims and length and draw(st.integers(0, 3)) == 3:
            count = draw(st.integers(1, min(length, 4)))
            operations.append(Trim(count))
            # The log may trim less than asked; an upper bound is enough here.
            continue
        count = draw(_counts(length, limit, near, shape))
        if count < 1:
            break
        window = None
        wanted = shape.windows == "only" or (shape.windows and draw(st.booleans()))
        if wanted and isinstance(profile.claims.visibility, (Full, SlidingWindow, Sinks)):
            window = draw(window_sizes(profile, length + count))
        as_array = shape.arrays and draw(st.booleans())
        operations.append(Ask(count, window, as_array))
        length += count
    return operations


def _counts(length: int, limit: int, near: list[int], shape: Shape) -> st.SearchStrategy[int]:
    room = limit - length
    if room < 1:
        return st.just(0)
    if shape.single:
        return st.just(1)
    small = st.integers(1, min(room, 6))
    jumps = sorted(
        {
            boundary - length + delta
            for boundary in near
            for delta in (-1, 0, 1)
            if 1 <= boundary - length + delta <= room
        }
        # A chunk of a whole boundary, wherever it starts.
        | {boundary + delta for boundary in near for delta in (-1, 0) if boundary + delta <= room}
    )
    if not jumps:
        return small
    return st.one_of(st.just(1), small, st.sampled_from(jumps))
