"""conformance: property-based tests that anyone runs against a KV cache.

    pytest --pyargs conformance --cache mypkg.caches:MyCache
    kvproto check mypkg.caches:MyCache

or from Python, without pytest::

    from conformance import check

    report = check(MyCache)
    assert report.conforms, report
"""

try:
    import hypothesis as _hypothesis  # noqa: F401
    import mlx.core as _mlx  # noqa: F401
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"The conformance suite needs {error.name}: pip install 'mlx-kvproto[suite]', or "
        "'mlx-kvproto[cpu]' on Linux without a GPU"
    ) from error

from conformance.api import check
from conformance.subject import Claims, Subject
from conformance.target import TargetError
from conformance.verdict import Report, Result, Verdict

__all__ = ["Claims", "Report", "Result", "Subject", "TargetError", "Verdict", "check"]
