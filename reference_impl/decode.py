"""One decode step over the caches of several requests, whose lengths differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from reference_impl.arguments import check_token, checked_ints, described
from reference_impl.pool import KVPool


class BatchedDecode:
    """Attends with one new token of each request, in one pass over all of them.

    Every request keeps caches of its own, so nothing is merged or split as requests come and go.
    For each layer the step writes a token to every cache, reads them all back, pads them at the
    right to one length and masks the padding (DEC-5). Masks count from the first token read: a
    windowed layer is padded to the longest *window*, and not at all once all of them are full.

    The step stands at one position: :attr:`offsets` stays what it was while its layers are
    attended, and serves each layer once.

    Args:
        caches: for each attention layer, by its index in the model, the cache of every request:
            with ``offset``, ``write_token`` and ``get_kv``.
        windows: the window of each windowed layer, in tokens.
        pool: where new tokens are kept as well, for requests that begin with the same ones.
        slots: a slot of the pool for the new token of each request.
        pool_index_by_layer: the index of each full-attention layer in the pool. It has no default:
            the index of a layer's cache is another number (LAY-4).

    Raises:
        TypeError: a slot is not an int.
        ValueError: no layers or no requests, another number of requests in some layer, layers that
            stand at different offsets, a pool without its slots or indices, or a slot that does
            not exist.
    """

    def __init__(
        self,
        caches: Mapping[int, Sequence[Any]],
        windows: Mapping[int, int | None] | None = None,
        *,
        pool: KVPool | None = None,
        slots: Sequence[int] | None = None,
        pool_index_by_layer: Mapping[int, int] | None = None,
    ) -> None:
        owner = type(self).__name__
        offsets = {layer: [held.offset for held in row] for layer, row in caches.items()}
        if not any(offsets.values()):
            raise ValueError(f"{owner}: caches must have a layer and a request, got {offsets}")
        first, *others = offsets
        for layer in others:
            if offsets[layer] != offsets[first]:
                raise ValueError(
                    f"{owner}: caches of a request must stand at one offset, got "
                    f"{offsets[first]} in layer {first} and {offsets[layer]} in layer {layer}"
                )
        self._slots: list[int] = []
        if pool is not None:
            if not pool_index_by_layer:
                raise ValueError(
                    f"{owner}: pool_index_by_layer must be given with a pool; the index of a cache "
                    f"is not that of a buffer, got {pool_index_by_layer!r}"
                )
            rows = len(offsets[first])
            self._slots = checked_ints(owner, "slots", slots, minimum=1, length=rows)
            if len({*self._slots}) < rows:
                raise ValueError(f"{owner}: slots must differ from each other, got {self._slots}")
            pool.get_kv(0, self._slots)  # refuses slots past the last one; evaluates nothing
        self._caches = caches
        self._windows = windows or {}
        self._pool = pool
        self._pool_index = dict(pool_index_by_layer or {})
        self._attended: set[int] = set()
        self.offsets = mx.array(offsets[first], mx.int32)

    def attend(
        self, layer: int, queries: mx.array, keys: mx.array, values: mx.array, /, *, scale: float
    ) -> mx.array:
        """Write the new token of each request, and attend with it to the tokens of that request.

        Args:
            layer: index of an attention layer.
            queries: (B, n_heads, 1, Dk), rotated to :attr:`offsets`.
            keys: (B, n_kv_heads, 1, Dk), rotated too.
            values: (B, n_kv_heads, 1, Dv).
            scale: factor on the scores.

        Returns:
            (B, n_heads, 1, Dv).

        Raises:
            KeyError: ``layer`` is none of the attention layers.
            RuntimeError: it was attended in this step.
            TypeError: keys or values are no ``mx.array``.
            ValueError: not one token of each request.
        """
        owner = type(self).__name__
        if layer not in self._caches:
            raise KeyError(
                f"{owner}: layer must be an attention layer, one of {list(self._caches)}, "
                f"got {layer!r}"
            )
        if layer in self._attended:
            raise RuntimeError(f"{owner}.attend: layer {layer} was attended in this step")
        caches = self._caches[layer]
        check_token(owner, keys, values, None)
        if keys.shape[0] != len(caches):
            raise ValueError(
                f"{owner}: keys must have a row for each of the {len(caches)} requests, "
                f"got {described(keys)}"
            )
        if self._pool is not None and layer in self._pool_index:
            rows = keys[:, :, 0], values[:, :, 0]
            self._pool.set_kv(self._pool_index[layer], self._slots, *rows)
        self._attended.add(layer)
        window = self._windows.get(layer)
        read = []
        for row, held in enumerate(caches):
            held.write_token(keys[row : row + 1], values[row : row + 1])
            read.append(held.get_kv(window))
        lengths = [rows[0].shape[2] for rows in read]
        width = max(lengths)
        all_keys, all_values = (
            mx.concatenate(
                [mx.pad(rows, [(0, 0), (0, 0), (0, width - rows.shape[2]), (0, 0)]) for rows in one]
            )
            for one in zip(*read, strict=True)
        )
        mask = None
        if min(lengths) < width:
            mask = (mx.arange(width) < mx.array(lengths)[:, None])[:, None, None]
        return mx.fast.scaled_dot_product_attention(
            queries, all_keys, all_values, scale=scale, mask=mask
        )
