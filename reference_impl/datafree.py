"""A cache that holds no data: a position, and the masks that follow from it."""

from __future__ import annotations

from typing_extensions import Never

from reference_impl.arguments import check_int
from reference_impl.masks import AttentionMask, attention_mask


class OffsetCache:
    """Stands in the list of caches where the keys and values of a layer are kept elsewhere.

    An engine that runs attention over its own storage (a pool, a batched decode step) still has to
    hand the model one cache per layer, for the model reads ``offset`` and asks for a mask. This is
    all that such a cache needs: there is no array in it (FREE-6), and no claim to store any.

    ``offset`` belongs to the owner of the real storage, who sets it. Nothing here moves it
    (FREE-5). For the same reason there is no ``trim``, only the answer that it cannot be done: to
    lower the offset here would part it from a storage that nobody has trimmed (FREE-8, REF-1). Nor
    is there a ``from_state``: an empty ``state`` (FREE-3) carries no position. Copies and pickles
    do.

    The return type ``Never`` of :meth:`update_and_fetch` tells the class from a storing cache
    before any call (FREE-7). It alone would let the class pass as a storing one with a type
    checker, for ``Never`` fits every return type; parameters of type ``Never`` fit no caller.

    Args:
        offset: position of the next token, in tokens.

    Raises:
        TypeError: ``offset`` is not an int.
        ValueError: ``offset`` is negative.
    """

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    @property
    def offset(self) -> int:
        """Position of the next token (POS-1). Set it to any int from 0 up (FREE-5, POS-6)."""
        return self._offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._offset = check_int(type(self).__name__, "offset", offset, minimum=0)

    @property
    def state(self) -> tuple[()]:
        """Always the empty tuple: nothing to evaluate, nothing to save (FREE-3)."""
        return ()

    @property
    def nbytes(self) -> int:
        """Always 0 (FREE-6)."""
        return 0

    def size(self) -> int:
        """Tokens held: always 0 (FREE-8)."""
        return 0

    def empty(self) -> bool:
        """Whether no token is held: always True (FREE-8)."""
        return True

    def is_trimmable(self) -> bool:
        """Always False: no token here that could be removed (FREE-8)."""
        return False

    def make_mask(
        self, N: int, /, *, return_array: bool = False, window_size: int | None = None
    ) -> AttentionMask:
        """The mask that a storing cache would give at this offset (FREE-4); changes nothing.

        Args:
            N: number of new tokens.
            return_array: give an array (N, offset + N) instead of ``"causal"``.
            window_size: tokens that a query sees, itself included; None for all.

        Raises:
            TypeError: N or window_size is not an int.
            ValueError: N or window_size is below 1 (MASK-11).
        """
        owner = type(self).__name__
        check_int(owner, "N", N, minimum=1)
        if window_size is not None:
            check_int(owner, "window_size", window_size, minimum=1)
        return attention_mask(N, self._offset, window=window_size, return_array=return_array)

    def update_and_fetch(self, keys: Never, values: Never, /) -> Never:
        """Refuse, whatever is passed, and change nothing (FREE-1, FREE-2).

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{type(self).__name__}.update_and_fetch: this cache holds no data; write to the "
            "storage of this layer and set `offset` here, or put a storing cache in the list"
        )
