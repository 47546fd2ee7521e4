"""Restrictions: shapes and dtypes that a cache refuses cleanly.

A clear exception before anything changed restricts a claim, and is reported as such. A crash that
leaves traces does not: UPD-5 reports it, and the other checks go on with what works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from conformance.limits import is_ours
from conformance.subject import Profile
from conformance.tags import KEYS, UNKNOWN, VALUES, Dims
from conformance.trace import REFUSALS, Run, Violation, default_dims

T = TypeVar("T")


def refusal(profile: Profile, dims: Dims, *, exact: bool = False) -> tuple[str, str]:
    """How a fresh cache takes two tokens of these sizes.

    With ``exact``, rows that come back rounded do not count as working.

    Returns:
        ``("works", "")``, ``("refused", why)`` if it raised clearly and nothing changed, or
        ``("broken", why)``.
    """
    run = Run(profile, dims)
    before = run.observe()
    keys, values = run.tokens(run.log.append(2))
    try:
        result = run.cache.update_and_fetch(keys, values)
        returned = run.unpack(result)
        for rows, salt, width in zip(
            returned, (KEYS, VALUES), (dims.key_dim, dims.value_dim), strict=True
        ):
            if exact and width and (run.identify(rows, salt, run.log.ids) == UNKNOWN).any():
                return "broken", "rows come back changed"
    except REFUSALS as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return ("refused" if run.observe() == before else "broken"), text
    except Violation as violation:
        return "broken", violation.message
    except BaseException as error:
        if is_ours(error):
            raise
        return "broken", f"{type(error).__name__}: {error}"
    return "works", ""


def restrict(profile: Profile) -> tuple[Profile, list[str]]:
    """The profile with its claims cut to what the cache takes, and a note on each cut.

    Claims that a person made are left alone.
    """
    if not profile.capabilities.storage_backed:
        return profile, []
    notes: list[str] = []

    def keep(
        name: str, options: Sequence[T], dims_of: Callable[[T], Dims], *, exact: bool = False
    ) -> tuple[T, ...]:
        if profile.claims.source(name) == "claimed":
            return tuple(options)
        kept = []
        for option in options:
            verdict, why = refusal(profile, dims_of(option), exact=exact)
            if verdict == "works":
                kept.append(option)
            elif verdict == "refused":
                notes.append(f"{name.replace('_', ' ')}: {option} refused ({why})")
        return tuple(kept) or tuple(options[:1])

    # The most forgiving sizes first, so that one restriction does not look like another.
    plain = replace(default_dims(profile, batch=min(profile.claims.batch_sizes)))
    equal = replace(plain, value_dim=plain.key_dim)
    head_dims = keep(
        "head_dims",
        profile.claims.head_dims,
        lambda pair: replace(plain, key_dim=pair[0], value_dim=pair[1]),
    )
    base = replace(plain, key_dim=head_dims[0][0], value_dim=head_dims[0][1])
    if refusal(profile, base)[0] != "works" and refusal(profile, equal)[0] == "works":
        base = equal
    dtypes = keep(
        "dtypes", profile.claims.dtypes, lambda dtype: replace(base, dtype=dtype), exact=True
    )
    batches = keep(
        "batch_sizes", profile.claims.batch_sizes, lambda size: replace(base, batch=size)
    )
    claims = replace(profile.claims, head_dims=head_dims, dtypes=dtypes, batch_sizes=batches)
    return replace(profile, claims=claims), notes
