"""Limits on a cache under test: time for each example, memory for each clause.

A cache that hangs or allocates without bound ends its own run, and no other. A timer looks every
quarter of a second; it needs the main thread and ``SIGALRM`` (Linux and macOS), elsewhere there is
no limit. What runs in C without coming back to Python cannot be ended from inside the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import mlx.core as mx

SECONDS = 30.0
"""How long one example may take; the options of a run change it. Examples take milliseconds, the
slowest one a few seconds."""

MEMORY = 4 << 30
"""By how many bytes a process may grow under one clause. No check needs a tenth of it."""

_TICK = 0.25


class OutOfLimits(BaseException):
    """An example took too long or too much memory. No ``except Exception`` gets hold of it."""


class Interrupted(KeyboardInterrupt):
    """A person pressed Ctrl-C; a plain KeyboardInterrupt comes from the cache under test."""


class _Watch:
    """The limits of the clause that is being judged."""

    def __init__(self, seconds: float, memory: int) -> None:
        self.seconds = seconds
        self.memory = memory
        self.started = time.monotonic()
        self.before = memory_in_use()

    def look(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self.started > self.seconds:
            raise OutOfLimits(f"does not return within {self.seconds:g} s")
        if memory_in_use() - self.before > self.memory:
            raise OutOfLimits(f"takes more than {self.memory / 2**30:g} GiB of memory")


_watch: _Watch | None = None


def memory_in_use() -> int:
    """Bytes that this process holds in memory, or where the system does not say, in MLX arrays."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return int(mx.get_active_memory())
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_ours(error: BaseException) -> bool:
    """Whether an exception must be let through: neither the cache nor a check raised it."""
    return isinstance(error, (Interrupted, OutOfLimits))


def restart() -> None:
    """Give the next example its whole time."""
    if _watch is not None:
        _watch.started = time.monotonic()


@contextmanager
def limited() -> Iterator[None]:
    """Run a block whose examples are limited; nested ones belong to the outermost.

    A timer that somebody else has set (pytest-timeout) is left alone; then there is no limit here.

    Raises:
        OutOfLimits: an example took too long, or the block too much memory.
        Interrupted: a person pressed Ctrl-C.
    """
    global _watch
    if _watch is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    _watch = _Watch(SECONDS, MEMORY)
    handlers = {}
    timed = hasattr(signal, "setitimer") and not signal.getitimer(signal.ITIMER_REAL)[0]
    if timed:
        handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, _watch.look)
        signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _watch = None


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
