"""Faults of the data-free contract."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from typing_extensions import Never

from reference_impl import OffsetCache
from reference_impl.masks import attention_mask
from tests.faults.gallery import fault

# -- FREE-1: update_and_fetch raises -----------------------------------------------------------


@fault("FREE-1")
class SwallowsTheRows(OffsetCache):
    """update_and_fetch returns what it was given and keeps nothing."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        return keys, values


@fault("FREE-1")
class RaisesValueError(OffsetCache):
    """update_and_fetch raises ValueError, as for a wrong argument."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        raise ValueError(f"{type(self).__name__} holds no data")


@fault("FREE-1")
class NamesNoClass(OffsetCache):
    """The message of update_and_fetch does not name the class."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        raise RuntimeError("this cache holds no data")


@fault("FREE-1")
class TakesNoTokens(OffsetCache):
    """update_and_fetch accepts an append of no tokens."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        return super().update_and_fetch(keys, values) if keys.shape[2] else (keys, values)


@fault("FREE-1")
class UnpacksFirst(OffsetCache):
    """update_and_fetch asks for the shape of its arguments, and unpacking it fails first."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        _, _, _, _, _ = keys.shape
        super().update_and_fetch(keys, values)


# -- FREE-2: and changes nothing ---------------------------------------------------------------


# FREE-5 says of the failed update by name that it does not move offset.
@fault("FREE-2", also=("FREE-5",))
class MovesBeforeRaising(OffsetCache):
    """update_and_fetch moves offset, then raises."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        self._offset += keys.shape[2]
        super().update_and_fetch(keys, values)


@fault("FREE-2")
class CountsRefusedTokens(OffsetCache):
    """A failed update_and_fetch raises size()."""

    _tokens = 0

    def size(self) -> int:
        return self._tokens

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        self._tokens += 1
        super().update_and_fetch(keys, values)


@fault("FREE-2")
class MasksDifferentlyAfterwards(OffsetCache):
    """After a failed update_and_fetch one token gets an array in place of None."""

    _failed = False

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        if mask is None and self._failed:
            return mx.ones((1, self._offset + 1), dtype=mx.bool_)
        return mask

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        self._failed = True
        super().update_and_fetch(keys, values)


# -- FREE-3: an empty state --------------------------------------------------------------------


@fault("FREE-3")
class OffsetInState(OffsetCache):
    """state holds the offset."""

    @property
    def state(self) -> Any:
        return (self._offset,)


@fault("FREE-3")
class StateIsNone(OffsetCache):
    """state is None, which cannot be unpacked."""

    @property
    def state(self) -> Any:
        return None


@fault("FREE-3")
class TwoNones(OffsetCache):
    """state is (None, None), as of an empty storing cache."""

    @property
    def state(self) -> Any:
        return None, None


# -- FREE-4: the masks of a storing cache ------------------------------------------------------
# The mask contract holds for data-free caches, too, and names the part that is wrong.


@fault("FREE-4", also=("MASK-6",))
class NeverAWindowForOneToken(OffsetCache):
    """window_size is ignored for one token."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        return super().make_mask(N, window_size=None if N == 1 else window_size, **options)


@fault("FREE-4", also=("MASK-4",))
class AlwaysCausal(OffsetCache):
    """A chunk gets "causal" although its window hides tokens."""

    def make_mask(self, N: int, /, *, return_array: bool = False, **options: Any) -> Any:
        mask = super().make_mask(N, return_array=return_array, **options)
        return "causal" if N > 1 and not return_array else mask


@fault("FREE-4", also=("MASK-3",))
class CausalFromZero(OffsetCache):
    """The array mask of a chunk is that of a prompt, hiding what is held, cut to the width."""

    def make_mask(self, N: int, /, *, window_size: int | None = None, **options: Any) -> Any:
        mask = super().make_mask(N, window_size=window_size, **options)
        if isinstance(mask, mx.array) and window_size is None:
            return mx.pad(attention_mask(N, 0, return_array=True), [(0, 0), (self._offset, 0)])
        return mask


# -- FREE-5: the owner moves offset ------------------------------------------------------------


# MASK-7 says of every cache that making a mask changes nothing.
@fault("FREE-5", also=("MASK-7",))
class MovesWhenMasked(OffsetCache):
    """make_mask moves offset by N."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        mask = super().make_mask(N, **options)
        self._offset += N
        return mask


# STATE-4 says of every cache that reading state changes nothing.
@fault("FREE-5", also=("STATE-4",))
class MovesWhenRead(OffsetCache):
    """Reading state moves offset."""

    @property
    def state(self) -> tuple[()]:
        self._offset += 1
        return ()


@fault("FREE-5")
class KeepsNoLargeOffset(OffsetCache):
    """An offset above 255 is cut."""

    @property
    def offset(self) -> int:
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._offset = min(offset, 255)


# -- FREE-6: no array --------------------------------------------------------------------------


@fault("FREE-6")
class KeepsTheRefusedRows(OffsetCache):
    """update_and_fetch stores the keys, then raises."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> Never:
        self._refused = keys
        super().update_and_fetch(keys, values)


@fault("FREE-6")
class KeepsItsMask(OffsetCache):
    """It keeps the last mask alive."""

    def make_mask(self, N: int, /, **options: Any) -> Any:
        self._mask = super().make_mask(N, **options)
        return self._mask


@fault("FREE-6")
class CountsForeignBytes(OffsetCache):
    """nbytes is what the owner's storage would take."""

    @property
    def nbytes(self) -> int:
        return 4096 * self._offset


# -- FREE-7: recognisable ----------------------------------------------------------------------


@fault("FREE-7")
class SaysNotThatItRaises(OffsetCache):
    """Nothing but the code of update_and_fetch shows that it always raises."""

    def update_and_fetch(self, keys: Any, values: Any, /):
        raise RuntimeError(f"{type(self).__name__} holds no data")


@fault("FREE-7")
class SaysThatItReturns(OffsetCache):
    """update_and_fetch is typed to return arrays."""

    def update_and_fetch(self, keys: Any, values: Any, /) -> tuple[mx.array, mx.array]:
        raise RuntimeError(f"{type(self).__name__} holds no data")


# -- FREE-8: truthful queries ------------------------------------------------------------------


@fault("FREE-8")
class SaysItIsFilled(OffsetCache):
    """empty() is False once it has a position."""

    def empty(self) -> bool:
        return self._offset == 0


@fault("FREE-8")
class SizeIsOffset(OffsetCache):
    """size() is its offset."""

    def size(self) -> int:
        return self._offset


# REF-1 says of every cache that what it cannot do is visible before the call.
@fault("FREE-8")
class TrimmableWithoutTrim(OffsetCache):
    """is_trimmable() is True, and there is no trim."""

    def is_trimmable(self) -> bool:
        return True


@fault("FREE-8")
class TrimsNothing(OffsetCache):
    """is_trimmable() is True, and trim leaves offset where it was."""

    def is_trimmable(self) -> bool:
        return True

    def trim(self, n: int) -> int:
        return n


# -- FREE-9: lists -----------------------------------------------------------------------------


@fault("FREE-9")
class CopiesFromScratch(OffsetCache):
    """A deepcopy starts at 0."""

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self)()


@fault("FREE-9")
class PicklesAsNothing(OffsetCache):
    """A pickle of it is its state, which is empty: None comes back."""

    def __reduce__(self) -> Any:
        return type(None), self.state


@fault("FREE-9")
class HoldsAFunction(OffsetCache):
    """It holds a local function, which no pickle takes."""

    def __init__(self, offset: int = 0) -> None:
        super().__init__(offset)
        self._listener = lambda: None
