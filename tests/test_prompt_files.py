"""Prompts: files that keep any cache, and a store that hands out exact prefixes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from reference_impl import (
    BatchKVCache,
    ChunkedKVCache,
    CompositeCache,
    KVCache,
    OffsetCache,
    PromptFileError,
    PromptFiles,
    PromptStore,
    QuantizedKVCache,
    RecurrentCache,
    RotatedKVCache,
    SlidingWindowKVCache,
    trim_prompt,
)
from tests.faults.bases import GoesBackToItsFront


class Elsewhere(KVCache):
    """A class of somebody else."""


class OldDialect:
    """A third-party class with meta_state and no from_state; its dtype has no empty arrays."""

    def __init__(self) -> None:
        self.state: Any = {"held": mx.zeros((0, 3), mx.bfloat16), "flags": (True, None, "ä", 0.5)}
        self.meta_state: Any = ["3", "x"]


class Shim:
    """A third-party data-free class."""

    state = ()

    def __init__(self) -> None:
        self.offset = 0

    def update_and_fetch(self, keys: Any, values: Any) -> Any:
        raise RuntimeError("Shim holds no data")


def rows(count: int, *, batch: int = 1, dim: int = 32, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.random.normal((batch, 2, count, dim)).astype(dtype)


def fed(cache: Any, count: int = 6, *, batch: int = 1, dtype: mx.Dtype = mx.float32) -> Any:
    for part in (count - 1, 1):
        cache.update_and_fetch(rows(part, batch=batch, dtype=dtype), rows(part, batch=batch))
    return cache


def many() -> list[Any]:
    recurrent = RecurrentCache(2)
    recurrent[0] = rows(1)
    shim = Shim()
    shim.offset = 6
    return [
        fed(KVCache(), dtype=mx.bfloat16),
        OffsetCache(6),
        fed(SlidingWindowKVCache(4)),
        fed(SlidingWindowKVCache(4, sinks=1)),
        fed(ChunkedKVCache(4)),
        fed(QuantizedKVCache(32, 8)),
        fed(RotatedKVCache()),
        fed(BatchKVCache([1, 0]), batch=2),
        recurrent,
        CompositeCache(fed(KVCache()), recurrent),
        CompositeCache(),
        KVCache(),
        fed(Elsewhere()),
        OldDialect(),
        shim,
        OffsetCache(7),
    ]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, mx.array):
        return (
            isinstance(other, mx.array)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and bool(mx.array_equal(one, other))
        )
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def test_any_mix_of_classes_comes_back(tmp_path: Path) -> None:
    files = PromptFiles(Elsewhere, OldDialect, Shim)
    caches, metadata = many(), {"model": "m", "": "ä\n"}
    files.save(tmp_path / "prompt", caches, metadata)
    loaded, told = files.load(tmp_path / "prompt")
    assert told == metadata
    assert [type(cache) for cache in loaded] == [type(cache) for cache in caches]
    for before, after in zip(caches, loaded, strict=True):
        assert same(before.state, after.state), type(before)
        assert same(getattr(before, "offset", None), getattr(after, "offset", None)), type(before)
    assert loaded[13].meta_state == ["3", "x"]
    assert files.load(tmp_path / "prompt")[0][0] is not loaded[0]


def test_no_caches_and_no_metadata(tmp_path: Path) -> None:
    PromptFiles().save(tmp_path / "prompt", [])
    assert PromptFiles().load(tmp_path / "prompt") == ([], {})


def test_a_class_is_read_as_registered(tmp_path: Path) -> None:
    files = PromptFiles()
    files.register(Shim, write=lambda shim: {"at": shim.offset}, read=lambda kept: kept["at"])
    shim = Shim()
    shim.offset = 5
    files.save(tmp_path / "prompt", [shim])
    assert files.load(tmp_path / "prompt")[0] == [5]


def test_classes_that_nobody_registered_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    PromptFiles().save(path, [KVCache()])
    with pytest.raises(ValueError, match=r"Elsewhere.*register"):
        PromptFiles().save(path, [KVCache(), Elsewhere()])
    assert len(PromptFiles().load(path)[0]) == 1  # the file that was there
    PromptFiles(Elsewhere).save(path, [Elsewhere()])
    with pytest.raises(
        PromptFileError, match=r"holds .*Elsewhere; import the class and .*register"
    ):
        PromptFiles().load(path)


def rewritten(path: Path, **changes: str) -> None:
    loaded: Any = mx.load(str(path), format="safetensors", return_metadata=True)
    mx.eval(loaded[0])
    mx.save_safetensors(str(path) + ".safetensors", loaded[0], {**loaded[1], **changes})
    os.replace(str(path) + ".safetensors", path)


def test_a_file_never_makes_a_module_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    module = tmp_path / "dangerous_module.py"
    module.write_text("raise AssertionError('imported')\n", encoding="utf-8")
    PromptFiles().save(path, [KVCache()])
    layers = [{"class": "dangerous_module:Cache", "kept": {"value": None}}]
    rewritten(path, layers=json.dumps(layers))
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(PromptFileError, match="dangerous_module:Cache"):
            PromptFiles().load(path)
    finally:
        sys.path.remove(str(tmp_path))
    assert "dangerous_module" not in sys.modules


def test_newer_foreign_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    PromptFiles().save(path, [fed(KVCache())])
    rewritten(path, version="2")
    with pytest.raises(PromptFileError, match=r"version 2, and this reads version 1"):
        PromptFiles().load(path)
    rewritten(path, format="other")
    with pytest.raises(PromptFileError, match=r"not written by PromptFiles .*'other'"):
        PromptFiles().load(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        PromptFiles().load(tmp_path / "nowhere")


@pytest.mark.parametrize("keep", [0, 4, 40, 300, -1])
def test_damaged_files(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "prompt"
    PromptFiles().save(path, [fed(KVCache())])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(PromptFileError, match="damaged"):
        PromptFiles().load(path)


@pytest.mark.parametrize(
    "layers",
    ["", "3", "[{}]", '[{"class": "reference_impl.full:KVCache", "kept": {"array": "9"}}]', "[7]"],
)
def test_damaged_structure(tmp_path: Path, layers: str) -> None:
    path = tmp_path / "prompt"
    PromptFiles().save(path, [fed(KVCache())])
    rewritten(path, layers=layers)
    with pytest.raises(PromptFileError, match="damaged"):
        PromptFiles().load(path)


def test_a_state_of_another_shape_is_refused_by_its_class(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    PromptFiles().save(path, [KVCache()])
    kept = {"list": [{"tuple": [{"value": None}]}]}
    rewritten(path, layers=json.dumps([{"class": "reference_impl.full:KVCache", "kept": kept}]))
    with pytest.raises(PromptFileError, match=r"KVCache.*cannot be restored"):
        PromptFiles().load(path)


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    PromptFiles().save(path, [fed(KVCache())], {"n": "1"})
    odd = OldDialect()
    odd.state = object()
    with pytest.raises(TypeError, match="a cache must keep"):
        PromptFiles(OldDialect).save(path, [odd])
    with pytest.raises(TypeError, match="metadata must map str to str"):
        PromptFiles().save(path, [KVCache()], {"n": 1})  # type: ignore[dict-item]
    assert PromptFiles().load(path)[1] == {"n": "1"}
    assert [one.name for one in tmp_path.iterdir()] == ["prompt"]


def test_trim_prompt_trims_all_alike_or_none() -> None:
    full, chunked = fed(KVCache(), 10), GoesBackToItsFront(4)
    for _ in range(10):
        chunked.maybe_trim_front()
        chunked.update_and_fetch(rows(1), rows(1))
    assert trim_prompt([full, chunked], 6) == trim_prompt([chunked], 0) + 2
    assert full.offset == chunked.offset == 8
    assert trim_prompt([full, chunked], 1) == 0
    assert trim_prompt([full, OffsetCache(8)], 1) == 0
    assert full.offset == chunked.offset == 8
    assert trim_prompt([], 3) == 0
    with pytest.raises(ValueError, match="n must be"):
        trim_prompt([full], -1)


def test_a_store_serves_exact_shorter_and_longer_entries() -> None:
    store = PromptStore()
    store.insert(range(6), [fed(KVCache(), 6)])
    for tokens, held in (
        ([0, 1, 2, 3, 4, 5], 5),  # one token is left to feed
        ([0, 1, 2, 3, 4, 5, 6, 7], 6),
        ([0, 1, 2], 2),
        ([0, 1, 9, 9], 2),
    ):
        caches, rest = store.fetch(tokens)
        assert caches is not None
        assert (caches[0].offset, rest) == (held, tokens[held:])
    assert store.fetch([9]) == (None, [9])
    assert store.fetch([0]) == (None, [0])
    assert store.fetch([]) == (None, [])


def test_an_entry_that_cannot_be_trimmed_is_served_at_its_end_only() -> None:
    store = PromptStore()
    store.insert(range(6), [fed(KVCache(), 6), fed(SlidingWindowKVCache(4), 6)])
    assert store.fetch([0, 1, 2, 3, 4, 5]) == (None, [0, 1, 2, 3, 4, 5])
    caches, rest = store.fetch([0, 1, 2, 3, 4, 5, 6])
    assert caches is not None
    assert ([cache.offset for cache in caches], rest) == ([6, 6], [6])


def test_the_entry_used_longest_ago_is_dropped() -> None:
    store = PromptStore(2)
    for first in (10, 20):
        store.insert([first, 1, 2], [fed(KVCache(), 3)])
    assert store.fetch([10, 1, 2, 3])[1] == [3]
    store.insert([30, 1, 2], [fed(KVCache(), 3)])
    assert len(store) == 2
    assert store.fetch([10, 1, 2, 3])[1] == [3]
    assert store.fetch([20, 1, 2, 3]) == (None, [20, 1, 2, 3])
    with pytest.raises(ValueError, match="max_entries"):
        PromptStore(0)
    with pytest.raises(ValueError, match="at least one"):
        store.insert([], [])
