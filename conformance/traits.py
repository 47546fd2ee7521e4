"""What was read off a class, as far as it decides what a consumer can do with it.

A report carries it, so that profiles are computed from a report alone, wherever it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from conformance.limits import Interrupted, limited
from conformance.subject import Profile
from conformance.trace import Ask, Run
from kvproto.visibility import Chunk, Sinks, SlidingWindow

KINDS = ("attention", "data-free", "recurrent", "composite", "other")


@dataclass(frozen=True)
class Traits:
    """What a cache is, what it offers, and what it answers when it is asked."""

    kind: str
    """One of :data:`KINDS`: the kind of layer that it can stand for."""
    members: tuple[str, ...]
    """The members of the contracts that it has, sorted."""
    quantized: bool
    opaque: bool
    """Whether update_and_fetch may return handles, over which only its own attend attends."""
    batched: bool
    """Whether it was constructed as a batch of several sequences."""
    restores: bool
    """Whether it has from_state, or a state that can be assigned."""
    head_dims: tuple[tuple[int, int], ...]
    """Pairs (keys, values) that it takes."""
    trims_new: bool | None
    """What ``is_trimmable()`` says of a new cache; None where there is no answer."""
    trims_later: bool | None
    """The same once more tokens than a window or chunk holds were appended."""

    def __contains__(self, member: str) -> bool:
        return member in self.members

    @classmethod
    def of(cls, profile: Profile, *, asks: bool = True) -> Traits:
        """Traits of a cache; without ``asks`` no cache is made, and nothing asked of it."""
        found = profile.capabilities
        new, later = _answers(profile) if asks else (None, None)
        return cls(
            kind=kind_of(profile),
            members=tuple(sorted(found.members)),
            quantized=found.quantized,
            opaque=found.opaque,
            batched=profile.claims.left_padding is not None,
            restores=profile.restores,
            head_dims=profile.claims.head_dims,
            trims_new=new,
            trims_later=later,
        )

    def to_json(self) -> dict[str, Any]:
        pairs = [list(pair) for pair in self.head_dims]
        return {**asdict(self), "members": list(self.members), "head_dims": pairs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Traits:
        pairs = tuple((int(keys), int(values)) for keys, values in data["head_dims"])
        return cls(**{**data, "members": tuple(data["members"]), "head_dims": pairs})


def kind_of(profile: Profile) -> str:
    """The kind of layer that a cache can stand for."""
    found = profile.capabilities
    if found.data_free is not None:
        return "data-free"
    if found.storage_backed:
        return "attention"
    if "recurrent" in profile.contracts:
        return "recurrent"
    return "composite" if "composite" in profile.contracts else "other"


def _answers(profile: Profile) -> tuple[bool | None, bool | None]:
    """What ``is_trimmable()`` says when new, and after more tokens than are kept."""
    if "is_trimmable" not in profile.capabilities.members:
        return None, None
    try:
        with limited():
            if not profile.capabilities.storage_backed:
                answer = bool(profile.subject.factory().is_trimmable())
                return answer, answer
            run = Run(profile, masks=False)
            new = bool(run.cache.is_trimmable())
            for _ in range(_more_than_kept(profile)):
                run.step(Ask(1))
            return new, bool(run.cache.is_trimmable())
    except Interrupted:
        raise
    except BaseException:  # an append that fails is the business of its own contract
        return None, None


def _more_than_kept(profile: Profile) -> int:
    visibility = profile.claims.visibility
    if isinstance(visibility, (SlidingWindow, Sinks)):
        return visibility.window + 1
    return visibility.chunk + 1 if isinstance(visibility, Chunk) else 2
