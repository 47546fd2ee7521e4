"""Probing and narrowing: what a cache is, without calling it."""

import copy
from typing import NoReturn

import pytest
from typing_extensions import Never

from kvproto import (
    DataFreeEvidence,
    capabilities,
    data_free_evidence,
    is_batched,
    is_data_free,
    is_quantized,
    is_storage_backed,
    makes_mask,
    register_data_free,
)
from reference_impl import KVCache, OffsetCache, SlidingWindowKVCache


class Bomb:
    """A cache whose every method explodes: probing must not call any."""

    def update_and_fetch(self, keys, values):
        raise AssertionError("probing called update_and_fetch")
        return keys, values

    def make_mask(self, N, **options):
        raise AssertionError("probing called make_mask")

    @property
    def state(self):
        raise AssertionError("probing read state")


class TypedNever:
    def update_and_fetch(self, keys, values) -> Never:
        raise RuntimeError("TypedNever holds no data")


class TypedNoReturn:
    def update_and_fetch(self, keys, values) -> "NoReturn":
        raise RuntimeError("TypedNoReturn holds no data")


class Untyped:
    state = ()

    def update_and_fetch(self, keys, values):
        raise RuntimeError("Untyped holds no data")


class Conditional(Untyped):
    def update_and_fetch(self, keys, values):
        if keys is None:
            raise RuntimeError("no keys")
        return keys, values


class RefusesButHolds(Untyped):
    state = (1, 2)


class Proxy:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


class HidesMerge(KVCache):
    @property
    def merge(self):
        raise AttributeError("merge")


@pytest.mark.parametrize(
    ("cache", "evidence"),
    [
        (OffsetCache(3), DataFreeEvidence.TYPED),
        (TypedNever(), DataFreeEvidence.TYPED),
        (TypedNoReturn(), DataFreeEvidence.TYPED),
        (Untyped(), DataFreeEvidence.CODE),
        (Proxy(OffsetCache()), DataFreeEvidence.TYPED),
        (Conditional(), None),
        (RefusesButHolds(), None),
        (KVCache(), None),
        (object(), None),
        (None, None),
    ],
)
def test_data_free_evidence(cache, evidence):
    assert data_free_evidence(cache) is evidence
    assert is_data_free(cache) == (evidence is not None)


@pytest.mark.parametrize(
    ("cache", "stores"),
    [
        (KVCache(), True),
        (SlidingWindowKVCache(4), True),
        (Conditional(), True),
        (Proxy(KVCache()), True),
        (OffsetCache(), False),
        (Untyped(), False),
        (RefusesButHolds(), False),
        (object(), False),
    ],
)
def test_storage_backed(cache, stores):
    assert is_storage_backed(cache) is stores


def test_an_empty_storing_cache_is_not_data_free_whatever_its_state():
    class Lazy(Conditional):
        state = ()

    assert not is_data_free(Lazy())
    assert is_storage_backed(Lazy())


def test_nothing_is_called():
    found = capabilities(Bomb())
    assert {"update_and_fetch", "make_mask", "state"} <= found.members


def test_registering_a_class_and_its_heirs():
    @register_data_free
    class Registered:
        def update_and_fetch(self, keys, values):
            return self._refuse()

        def _refuse(self):
            raise RuntimeError("Registered holds no data")

    class Heir(Registered):
        pass

    class Stores(Registered):
        def update_and_fetch(self, keys, values):
            return keys, values

    assert data_free_evidence(Registered()) is DataFreeEvidence.REGISTERED
    assert is_data_free(Heir())
    assert not is_data_free(Stores())


def test_registering_by_name_matches_vendored_and_path_loaded_copies():
    register_data_free("some.package.caches:NamedOnly")
    NamedOnly = type(
        "NamedOnly", (Conditional,), {"update_and_fetch": Conditional.update_and_fetch}
    )
    for module, known in [
        ("some.package.caches", True),
        ("caches", True),
        ("vendor.some.package.caches", True),
        ("other_caches", False),
        ("package.cache", False),
    ]:
        NamedOnly.__module__ = module
        assert is_data_free(NamedOnly()) is known, module


@pytest.mark.parametrize("wrong", ["NoColon", ":Name", "module:", 3])
def test_registering_nonsense_is_refused(wrong):
    with pytest.raises((TypeError, ValueError), match="register_data_free"):
        register_data_free(wrong)


def test_hidden_members_are_absent():
    assert "merge" not in capabilities(HidesMerge()).members


def test_unset_slots_are_absent():
    class Slotted:
        __slots__ = ("keys", "offset")

        def __init__(self):
            self.offset = 0

    assert capabilities(Slotted()).members == {"offset"}


def test_quantized_and_batched_are_read_off_members():
    class Quantized(KVCache):
        bits = 8

    class Padded(KVCache):
        left_padding = (1, 0)

    assert is_quantized(Quantized())
    assert not is_quantized(KVCache())
    assert is_batched(Padded())
    assert not is_batched(KVCache())


def test_a_recurrent_make_mask_is_not_an_attention_mask():
    class Recurrent:
        def __getitem__(self, slot):
            return None

        def make_mask(self, N):
            return None

    assert not makes_mask(Recurrent())
    assert makes_mask(KVCache())


def test_probing_leaves_a_cache_as_it_was():
    cache = OffsetCache(4)
    before = copy.deepcopy(vars(cache)) if hasattr(cache, "__dict__") else cache.offset
    capabilities(cache)
    after = vars(cache) if hasattr(cache, "__dict__") else cache.offset
    assert before == after
