"""``python -m conformance`` is the ``kvproto`` command."""

from conformance.cli import main

raise SystemExit(main())
