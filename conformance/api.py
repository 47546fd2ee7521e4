"""The plain function: run the suite on a factory, without pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import conformance.checks  # noqa: F401 (registers the checks)
from conformance.engine import Session
from conformance.subject import Subject, subject_from_factory, subjects_from_target
from conformance.target import TargetError
from conformance.verdict import Report, Result


def check(
    cache: Callable[[], Any] | Subject | str,
    *,
    claims: Mapping[str, Any] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    effort: str = "default",
    strict: bool = False,
    clauses: Iterable[str] | None = None,
    seed: str = "",
    progress: Callable[[Result], None] | None = None,
) -> Report:
    """Run the conformance suite on one cache.

    Args:
        cache: a class or a function that makes a fresh cache without arguments, a
            :class:`Subject`, or a target such as ``"mypkg.caches:MyCache(8)"``.
        claims: what the cache claims to be, by name, where it cannot be read off the class; for
            example ``{"visibility": "window(8)"}`` or ``{"visibility": "lossy"}``.
        expected_failures: clause id -> reason; one that passes is reported as a failure.
        effort: ``"quick"``, ``"default"`` or ``"deep"``.
        strict: whether SHOULD clauses decide, too.
        clauses: only these ids; the report is then incomplete, and does not conform.
        seed: another seed for exploring; verdicts use the empty one.
        progress: called with each result as it comes.

    Returns:
        The report. ``report.conforms`` is the verdict, ``print(report)`` shows it.

    Raises:
        TargetError: the cache cannot be constructed, or nothing can be inferred of it.
    """
    options: dict[str, Any] = {"claims": claims or {}, "expected_failures": expected_failures or {}}
    if isinstance(cache, str):
        found = subjects_from_target(cache, **options)
        if len(found) != 1:
            raise TargetError(f"{cache!r} names {len(found)} subjects; check them one by one.")
        subject = found[0]
    elif isinstance(cache, Subject):
        if claims or expected_failures:
            raise TypeError("check: give claims and expected_failures to the Subject itself")
        subject = cache
    elif callable(cache):
        subject = subject_from_factory(cache, **options)
    else:
        raise TypeError(
            f"check: expected a class, a function, a Subject or a target, got {cache!r}. Every "
            "test needs a fresh cache, so an object will not do."
        )
    session = Session(subject, effort=effort, strict=strict, seed=seed)
    return session.report(clauses, progress)
