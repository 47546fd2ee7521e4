"""Runs: operations on a fresh cache, mirrored on the token log and recorded as Python.

A check drives a :class:`Run`. Every call of the subject goes through :meth:`Run.call`, so that
what the subject raises is a finding about it, while any other exception is an error of the suite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NoReturn

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from conformance.helpers import make_tokens, opened
from conformance.limits import Interrupted, OutOfLimits, is_ours
from conformance.log import TokenLog
from conformance.program import listed, ranges
from conformance.subject import Profile
from conformance.tags import (
    KEYS,
    UNKNOWN,
    VALUES,
    Dims,
    FloatArray,
    IntArray,
    expected_rows,
    identify,
    to_numpy,
)
from kvproto.visibility import Chunk, Full, Lossy, Visibility

BoolArray = npt.NDArray[np.bool_]

MODEL_MASK = object()
"""Stands for the mask that a chunked model builds itself from the positions of the keys."""

REFUSALS = (ValueError, TypeError, RuntimeError)  # NotImplementedError is a RuntimeError


_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class Violation(Exception):
    """A subject broke a clause; carries what a reader needs to see it."""

    def __init__(
        self,
        message: str,
        *,
        expected: str = "",
        observed: str = "",
        run: Run | None = None,
        code: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        # Addresses of objects would make two runs differ.
        self.message = _ADDRESS.sub("0x...", message)
        self.expected = _ADDRESS.sub("0x...", expected)
        self.observed = _ADDRESS.sub("0x...", observed)
        self.body = [*(run.lines if run else ()), *code]
        self.operations = list(run.operations) if run else []
        self.dims = run.dims if run else None
        self.imports = list(run.imports) if run else []


class Runaway(Violation):
    """A cache hung, or took all memory: nothing more can be tried with it."""


class EndOfTrace(Exception):
    """A trace cannot go on, for a reason that is not this check's business."""


@dataclass(frozen=True)
class Ask:
    """One step as a consumer takes it: ask for the mask, then append ``count`` tokens."""

    count: int
    window_size: int | None = None
    return_array: bool = False


@dataclass(frozen=True)
class Trim:
    """Remove the newest tokens, where the cache says that it can."""

    count: int


Operation = Ask | Trim


@dataclass
class Step:
    """What one :class:`Ask` gave."""

    run: Run
    ask: Ask
    start: int
    """Columns logged before the append."""
    ids: list[int]
    """The numbers of all logged tokens after it, by column."""
    mask: Any
    refused: Exception | None
    """Why no mask was made; None where one was."""
    keys: Any
    values: Any
    index: int
    lines: list[str] = field(default_factory=list)
    reads: bool = True
    """Whether rows and mask are looked at; if not, nothing is evaluated."""

    @property
    def columns(self) -> range:
        """The columns of this step's queries."""
        return range(self.start, self.start + self.ask.count)

    @property
    def visibility(self) -> Visibility:
        """What its queries may see: the declared visibility, narrowed by the asked window."""
        declared = self.run.profile.claims.visibility
        if self.ask.window_size is None:
            return declared
        return declared.narrowed(self.ask.window_size) or declared

    def __post_init__(self) -> None:
        # Read at once: what was returned may change under its holder later (UPD-8). Evaluated
        # together, for each evaluation waits for another thread.
        if self.reads and not self.run.virtual:
            mx.eval(self.keys, self.values, self.mask)
            _ = self.key_ids, self.value_ids
        if isinstance(self.mask, mx.array):
            _ = self.mask_rows

    @cached_property
    def mask_rows(self) -> FloatArray:
        """An array mask as numbers."""
        return to_numpy(self.mask) if isinstance(self.mask, mx.array) else np.array(self.mask)

    @cached_property
    def length(self) -> int:
        """L: how many keys the append returned."""
        if self.run.virtual:
            return len(self.ids)
        return int((self.keys[0] if self.run.is_triples(self.keys) else self.keys).shape[2])

    @cached_property
    def key_ids(self) -> IntArray:
        """Which token each returned key is, shape (B, heads, L)."""
        if self.run.virtual:
            return np.array(self.ids, dtype=np.int64).reshape(1, 1, -1)
        return self.run.identify(self.keys, KEYS, self.ids)

    @cached_property
    def value_ids(self) -> IntArray:
        """Which token each returned value is; values of width 0 say nothing."""
        return self.run.identify(self.values, VALUES, self.ids)

    @property
    def heads(self) -> tuple[int | None, ...]:
        """The heads to look at one by one; None stands for all, which hold the same tokens.

        Where the cache's own policy evicts, each head may have kept other ones.
        """
        if isinstance(self.visibility, Lossy):
            return tuple(range(self.key_ids.shape[1]))
        return (None,)

    @property
    def symbolic(self) -> bool:
        """Whether the mask is None or a string."""
        return self.mask is None or isinstance(self.mask, str)

    @cached_property
    def dense(self) -> BoolArray:
        """The mask as booleans of shape (B, N, L), True = may attend.

        Raises:
            Violation: it is neither None nor "causal" nor an array that broadcasts.
        """
        batch, count, length = self.run.dims.batch, self.ask.count, self.length
        if self.mask is MODEL_MASK:
            ids = self.key_ids[:, 0]
            return np.array(
                [
                    [np.isin(ids[row], self.visible(row, query)) for query in range(count)]
                    for row in range(batch)
                ],
                dtype=np.bool_,
            )
        try:
            rows = None if self.symbolic else self.mask_rows
            return densify(self.mask, batch, count, length, rows=rows)
        except ValueError:
            self.run.fail(
                f"the mask of shape {tuple(self.mask_rows.shape)} does not fit the keys",
                expected=f"a shape that broadcasts to {(batch, 1, count, length)}",
                observed=str(tuple(self.mask_rows.shape)),
                code=[
                    f"keys_returned = {self.run.length_code()}",
                    f"mx.broadcast_to(mask, ({batch}, 1, {count}, keys_returned))",
                ],
                step=self,
            )

    def seen(self, row: int, query: int, head: int = 0) -> list[int]:
        """The token numbers that one query sees, in the order returned; ``UNKNOWN`` rows too."""
        ids = self.key_ids[row if self.key_ids.shape[0] > 1 else 0, head]
        return [int(number) for number in ids[self.dense[row, query]]]

    def visible(self, row: int, query: int, visibility: Visibility | None = None) -> list[int]:
        """The token numbers that one query must see."""
        log = self.run.log
        column = self.start + query
        columns = log.visible(row, column, visibility or self.visibility)
        return [self.ids[column] for column in columns]


def densify(
    mask: Any, batch: int, count: int, length: int, *, rows: FloatArray | None = None
) -> BoolArray:
    """A mask as booleans of shape (batch, count, length), True = may attend.

    Args:
        rows: an array mask as numbers, where they were read before.

    Raises:
        ValueError: an array that does not broadcast to that shape.
    """
    if mask is None:
        return np.ones((batch, count, length), dtype=np.bool_)
    if isinstance(mask, str):  # aligned at the lower right
        causal = np.arange(length) <= np.arange(length - count, length)[:, None]
        return np.broadcast_to(causal, (batch, count, length))
    if rows is None:
        rows = to_numpy(mask)
    boolean = mask.dtype == (mx.bool_ if isinstance(mask, mx.array) else np.bool_)
    allowed = rows != 0 if boolean else rows == 0
    return np.broadcast_to(allowed, (batch, 1, count, length))[:, 0]


class Run:
    """One cache, its log, and the program that led there.

    For a data-free cache the owner moves the offset, and the keys that an append would return are
    those of the log (``virtual``): its masks are judged as those of a storing cache.
    """

    def __init__(self, profile: Profile, dims: Dims | None = None, *, masks: bool = True) -> None:
        claims = profile.claims
        self.profile = profile
        self.dims = dims or default_dims(profile)
        self.log = TokenLog(claims.left_padding or (0,) * self.dims.batch)
        self.lines: list[str] = []
        self.imports: list[str] = []
        """What its lines import beside the subject's own."""
        self.operations: list[dict[str, Any]] = []
        self.steps: list[Step] = []
        self.virtual = profile.capabilities.data_free is not None
        self.cache = profile.subject.factory()
        self.has_mask = "make_mask" in profile.capabilities.members
        self.asks_masks = masks
        self.given: list[tuple[mx.array, mx.array]] = []
        """What the caller passed to each append."""
        self.handles: tuple[Any, Any] | None = None
        """What the last append returned, where it was handles (OPQ)."""
        if claims.start:
            self.log.append(claims.start)

    # -- calling the subject ------------------------------------------------------------------

    def call(self, line: str, function: Callable[[], Any]) -> Any:
        """Run a call of the subject and record its line; what it raises is a violation."""
        self.lines.append(line)
        try:
            return function()
        except Interrupted:
            raise
        except BaseException as error:
            self.raised(error, line)

    def raised(self, error: BaseException, line: str) -> NoReturn:
        called = line if line.startswith("cache.") else line.partition(" = ")[2] or line
        hint = ""
        if isinstance(error, RuntimeError) and "update_and_fetch" in called and not self.steps:
            hint = (
                " (does it hold no data on purpose? Then type update_and_fetch `-> Never`, or "
                "call kvproto.register_data_free)"
            )
        if isinstance(error, (OutOfLimits, MemoryError)):
            why = str(error) if isinstance(error, OutOfLimits) else "takes all memory"
            raise Runaway(
                f"`{called}` {why}", expected="a result", observed="none", run=self
            ) from error
        raise Violation(
            f"`{called}` raises {type(error).__name__}{hint}",
            expected="no exception",
            observed=f"{type(error).__name__}: {_first_line(error)}",
            run=self,
        ) from error

    def unchanged(self, what: str, before: dict[str, Any], at: int) -> None:
        """Fail if anything that was observed reads otherwise now.

        Args:
            before: what :meth:`observe` gave.
            at: the line of the program at which it did.
        """
        masks = any("make_mask" in name for name in before)
        after = self.observe(state="cache.state" in before, masks=masks)
        for name, value in before.items():
            if name not in after or after[name] == value:
                continue
            self.lines.insert(at, f"before = str({name})")
            self.fail(
                f"{what} changes {name.removeprefix('cache.')}",
                expected=f"{value}"[:80],
                observed=f"{after[name]}"[:80],
                code=[f"assert str({name}) == before, {name}"],
            )

    def read(self, expression: str, function: Callable[[], Any]) -> Any:
        """Read something off the cache; what that raises is a violation."""
        try:
            return function()
        except Interrupted:
            raise
        except BaseException as error:
            self.lines.append(expression)
            self.raised(error, expression)

    def attempt(self, line: str, function: Callable[[], Any]) -> Exception | None:
        """Run a call that may be refused; return what it raised. The line is recorded guarded."""
        self.lines += ["try:", f"    {line}", "except Exception as error:", "    print(error)"]
        try:
            function()
        except Exception as error:
            return error
        return None

    def fail(
        self,
        message: str,
        *,
        expected: str,
        observed: str,
        code: Sequence[str] = (),
        step: Step | None = None,
    ) -> NoReturn:
        """Raise the violation, the program ending at ``step`` or here."""
        violation = Violation(message, expected=expected, observed=observed, run=self, code=code)
        if step is not None:
            violation.body = [*step.lines, *code]
            violation.operations = self.operations[: step.index + 1]
        raise violation

    # -- operations ---------------------------------------------------------------------------

    def apply(self, operations: Iterable[Operation]) -> Run:
        """Run a trace."""
        for operation in operations:
            if isinstance(operation, Trim):
                self.trim(operation.count)
            else:
                self.step(operation)
        return self

    def step(self, ask: Ask, *, evaluate: bool = True) -> Step:
        """Ask for the mask of the next tokens, then append them, as every model does."""
        start = self.log.length
        self.operations.append({"op": "step", **vars(ask)})
        if "maybe_trim_front" in self.profile.capabilities.members:
            self.call("cache.maybe_trim_front()", lambda: self.cache.maybe_trim_front())
        mask, refused = self.mask(ask) if self.asks_masks else (None, None)
        keys, values = self.append(ask.count)
        step = Step(
            self,
            ask,
            start,
            list(self.log.ids),
            mask,
            refused,
            keys,
            values,
            index=len(self.operations) - 1,
            lines=list(self.lines),
            reads=evaluate,
        )
        self.steps.append(step)
        return step

    def mask(self, ask: Ask) -> tuple[Any, Exception | None]:
        """The mask for the next ``ask.count`` tokens, and why it was refused, if it was.

        A windowed cache may refuse a mask for the full context (WIN-4); a consumer that has such
        a cache passes its window, and so does this. Without make_mask the mask is the one that
        consumers fall back to.
        """
        if not self.has_mask:
            return self._fallback(ask), None
        call = mask_call(ask)
        if ask.window_size is None and not isinstance(self.profile.claims.visibility, Full):
            before = len(self.lines)
            self.lines.append(f"mask = {call}")
            try:
                return self.ask_mask(ask), None
            except Interrupted:
                raise
            except BaseException as error:
                if not isinstance(error, REFUSALS):
                    self.raised(error, self.lines[-1])
                window = getattr(self.profile.claims.visibility, "window", None)
                if window is None or self.log.length + ask.count <= window:
                    self.raised(error, self.lines[-1])
                del self.lines[before:]
                narrowed = Ask(ask.count, window, ask.return_array)
                again = mask_call(narrowed)
                return self.call(f"mask = {again}", lambda: self.ask_mask(narrowed)), error
        return self.call(f"mask = {call}", lambda: self.ask_mask(ask)), None

    def ask_mask(self, ask: Ask) -> Any:
        return self.cache.make_mask(
            ask.count, return_array=ask.return_array, window_size=ask.window_size
        )

    def _plain_mask(self, ask: Ask) -> Any:
        return plain(self.ask_mask(ask))

    def _fallback(self, ask: Ask) -> Any:
        """What consumers use for a cache without make_mask (mlx-lm create_attention_mask)."""
        if isinstance(self.profile.claims.visibility, Chunk):
            return MODEL_MASK
        count, window = ask.count, ask.window_size
        if count == 1:
            self.lines.append("mask = None  # no make_mask: what mlx-lm falls back to")
            return None
        if ask.return_array or (window is not None and count > window):
            limit = window or count
            self.lines.append(
                f"mask = mx.array([[i - {limit} < j <= i for j in range({count})] "
                f"for i in range({count})])  # no make_mask: what mlx-lm falls back to"
            )
            return mx.array([[i - limit < j <= i for j in range(count)] for i in range(count)])
        self.lines.append('mask = "causal"  # no make_mask: what mlx-lm falls back to')
        return "causal"

    def append(self, count: int) -> tuple[Any, Any]:
        """Append new tokens; returns what update_and_fetch returned (None, None if data-free)."""
        if self.virtual:
            self.log.append(count)
            if "offset" in self.profile.capabilities.members:
                self.lines.append(f"cache.offset = {self.log.length}  # its owner moves it")
                try:
                    self.cache.offset = self.log.length
                except AttributeError as error:
                    raise EndOfTrace("its offset cannot be moved (FREE-5)") from error
            return None, None
        ids = self.log.append(count)
        keys, values = self.tokens(ids)
        self.given.append((keys, values))
        call = f"cache.update_and_fetch(*tokens({listed(ids)}))"
        if self.profile.capabilities.opaque:
            call = f"opened(tokens, cache, *{call})"
        result = self.call(
            f"keys, values = {call}",
            lambda: self.cache.update_and_fetch(keys, values),
        )
        return self.unpack(result)

    def unpack(self, result: Any) -> tuple[Any, Any]:
        """Exactly two results (UPD-1)."""
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            size = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
            self.fail(
                "update_and_fetch does not return two results",
                expected="(keys, values)",
                observed=f"a {type(result).__name__}{size}",
                code=["keys, values"],
            )
        keys, values = result
        if self.profile.capabilities.opaque:
            keys, values = self._opened(keys, values)
        for name, rows in (("keys", keys), ("values", values)):
            if not self.is_rows(rows):
                self.fail(
                    f"update_and_fetch returns {name} that are no array",
                    expected="an mx.array with 4 axes"
                    if not self.profile.capabilities.quantized
                    else "a (packed, scales, biases) triple of mx.array",
                    observed=_describe(rows),
                    code=[f"assert isinstance({name}, mx.array) and {name}.ndim == 4, {name}"],
                )
        return keys, values

    def _opened(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """The tokens behind handles, which are kept as they are in :attr:`handles`."""
        self.handles = None
        if isinstance(keys, (mx.array, tuple, list)):
            return keys, values
        self.handles = keys, values
        shape = getattr(keys, "shape", None)
        if not isinstance(shape, tuple) or len(shape) != 4:
            self.fail(
                "the handle of the keys has no shape (OPQ-4)",
                expected="(B, n_kv_heads, L, D)",
                observed=repr(shape),
                code=["assert len(keys.shape) == 4"],
            )
        call = "opened(tokens, cache, keys, values)"
        found: tuple[Any, Any] = self.read(
            call, lambda: opened(self.tokens, self.cache, keys, values)
        )
        return found

    def tokens(self, ids: Any) -> tuple[mx.array, mx.array]:
        dims = self.dims
        return make_tokens(ids, dims.batch, dims.heads, dims.key_dim, dims.value_dim, dims.mx_dtype)

    def trim(self, count: int) -> int:
        """Trim, if the cache says that it can; the log follows the count that it returns."""
        members = self.profile.capabilities.members
        if not {"is_trimmable", "trim"} <= members or self.virtual or not self.log.ids:
            return 0
        if not self.cache.is_trimmable():
            return 0
        self.operations.append({"op": "trim", "count": count})
        self.lines.append(f"trimmed = cache.trim({count})")
        try:
            removed = self.cache.trim(count)
        except Exception as error:
            raise EndOfTrace(f"trim raises {error!r}") from error
        if not isinstance(removed, int) or not 0 <= removed <= min(count, self.log.length):
            # The trim contract reports it; here the log could not follow.
            raise EndOfTrace(f"trim({count}) returns {removed!r}")
        self.log.trim(removed)
        return removed

    # -- going on elsewhere -------------------------------------------------------------------

    def onto(self, cache: Any) -> Run:
        """A run that goes on with another cache at the same place; this one keeps its own."""
        other = Run(self.profile, self.dims)
        other._follow(self, cache)
        return other

    def _follow(self, run: Run, cache: Any) -> None:
        self.cache = cache
        self.imports = list(run.imports)
        self.log = TokenLog(run.log.left_padding)
        self.log.ids = list(run.log.ids)
        # Numbers of its own, so that a token tells which branch it was given to.
        self.log._next = run.log._next + 100

    # -- reading rows -------------------------------------------------------------------------

    def is_triples(self, rows: Any) -> bool:
        return self.profile.capabilities.quantized and isinstance(rows, (tuple, list))

    def is_rows(self, rows: Any) -> bool:
        if self.is_triples(rows):
            return len(rows) == 3 and all(isinstance(part, mx.array) for part in rows)
        return isinstance(rows, mx.array) and rows.ndim == 4

    def length_code(self) -> str:
        return "keys[0].shape[2]" if self.profile.capabilities.quantized else "keys.shape[2]"

    def decode(self, rows: Any) -> FloatArray:
        """Rows as numbers, affine triples dequantised."""
        if self.is_triples(rows):
            rows = self.dequantize(rows)
        return to_numpy(rows)

    def dequantize(self, rows: Any) -> mx.array:
        packed, scales, biases = rows
        return mx.dequantize(
            packed, scales, biases, group_size=self.cache.group_size, bits=self.cache.bits
        )

    def quantized(self, rows: mx.array) -> list[mx.array]:
        """What mx.quantize makes of rows, with the cache's own parameters."""
        return list(mx.quantize(rows, group_size=self.cache.group_size, bits=self.cache.bits))

    def identify(self, rows: Any, salt: int, ids: Sequence[int]) -> IntArray:
        """Which token each returned row is, of those ever appended."""
        if not self.is_triples(rows):
            return identify(self.decode(rows), salt, self.dims.dtype)
        # Affine quantisation is row-wise, so a row is recognised exactly by its code.
        every = list(range(max(ids, default=-1) + 1))
        got = np.concatenate([to_numpy(part) for part in rows], axis=-1)
        found = np.full(got.shape[:3], UNKNOWN, dtype=np.int64)
        if not every:
            return found
        codes = self.quantized(self.tokens(every)[0 if salt == KEYS else 1])
        known = np.concatenate([to_numpy(part) for part in codes], axis=-1)
        if got.shape[-1] != known.shape[-1] or got.shape[:2] != known.shape[:2]:
            return found
        for place in np.ndindex(*got.shape[:2]):
            number_of = {code.tobytes(): number for number, code in enumerate(known[place])}
            found[place] = [number_of.get(code.tobytes(), UNKNOWN) for code in got[place]]
        if (found == UNKNOWN).any():
            self._nearest(found, rows, codes)
        return found

    def _nearest(self, found: IntArray, rows: Any, codes: Any) -> None:
        """Name rows of another code by the token they are nearest to, within eight steps of the
        quantiser; whether the code itself is right is QNT-3's business."""
        near, known = to_numpy(self.dequantize(rows)), to_numpy(self.dequantize(codes))
        step = 8 * float(np.abs(to_numpy(rows[1])).max())
        for b, h, index in np.argwhere(found == UNKNOWN):
            distance = np.abs(known[b, h] - near[b, h, index]).max(axis=-1)
            if distance.size and distance.min() <= step:
                found[b, h, index] = int(distance.argmin())

    def expected_rows(self, ids: Sequence[int], salt: int) -> FloatArray:
        return expected_rows(ids, self.dims, salt)

    # -- observing the cache ------------------------------------------------------------------

    def offset_value(self) -> Any:
        """The offset as plain numbers, read from the live cache."""
        return plain(getattr(self.cache, "offset", None))

    def observe(self, *, state: bool = True, masks: bool = True) -> dict[str, Any]:
        """What a consumer can see of the cache, by expression.

        Everything is read twice, and what differs between two readings is left out: a reading
        that changes something is the business of the clause about that member.
        """
        first, second = self._readings(state, masks), self._readings(state, masks)
        return {name: value for name, value in first.items() if second[name] == value}

    def _readings(self, state: bool, masks: bool) -> dict[str, Any]:
        members = self.profile.capabilities.members
        seen: dict[str, Any] = {}
        for name in ("offset", *(("state",) if state else ())):
            if name in members:
                seen[f"cache.{name}"] = guarded(partial(self._plain_attribute, name))
        if self.has_mask and masks:
            for ask in (Ask(1), Ask(2, None, True), Ask(1, 2), Ask(3, 2)):
                seen[mask_call(ask)] = guarded(partial(self._plain_mask, ask))
        for name in ("size", "empty", "is_trimmable"):
            if name in members:
                seen[f"cache.{name}()"] = guarded(getattr(self.cache, name))
        return seen

    def _plain_attribute(self, name: str) -> Any:
        return plain(getattr(self.cache, name))


def mask_call(ask: Ask) -> str:
    return (
        f"cache.make_mask({ask.count}, return_array={ask.return_array}, "
        f"window_size={ask.window_size})"
    )


def default_dims(profile: Profile, *, batch: int | None = None, dtype: str | None = None) -> Dims:
    """The sizes that most runs use: those that the cache was found to accept."""
    claims = profile.claims
    key_dim, value_dim = claims.head_dims[0]
    return Dims(
        batch=batch or claims.batch_sizes[0],
        heads=claims.heads,
        key_dim=key_dim,
        value_dim=value_dim,
        dtype=dtype or claims.dtypes[0],
    )


class Snapshot:
    """The content of an array at one moment."""

    def __init__(self, array: Any) -> None:
        self.dtype = str(array.dtype).removeprefix("mlx.core.")
        self.rows = to_numpy(array) if isinstance(array, mx.array) else np.asarray(array)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Snapshot)
            and self.dtype == other.dtype
            and np.array_equal(self.rows, other.rows, equal_nan=True)
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.rows.shape))

    def __repr__(self) -> str:
        if self.rows.size <= 12:
            numbers = self.rows.tolist()
            return f"{numbers}" if "float" in self.dtype else f"{self.rows.astype(int).tolist()}"
        return f"array of shape {self.rows.shape}"


def plain(value: Any) -> Any:
    """A tree with its arrays read into :class:`Snapshot`, so that two readings compare."""
    if isinstance(value, (mx.array, np.ndarray)):
        return Snapshot(value)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def reachable_arrays(cache: Any, depth: int = 4) -> list[mx.array]:
    """Every array that an object holds in attributes, slots and containers."""
    if isinstance(cache, mx.array):
        return [cache]
    if depth == 0 or isinstance(cache, (str, bytes, int, float, type)) or cache is None:
        return []
    if isinstance(cache, Mapping):
        members: list[Any] = list(cache.values())
    elif isinstance(cache, (tuple, list, set, frozenset)):
        members = list(cache)
    else:
        members = attributes(cache)
    return [array for member in members for array in reachable_arrays(member, depth - 1)]


def attributes(thing: Any) -> list[Any]:
    """The values of an object's attributes and slots."""
    members = list(getattr(thing, "__dict__", {}).values())
    for cls in type(thing).__mro__:
        slots = vars(cls).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            members.append(getattr(thing, slot, None))
    return members


def guarded(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BaseException as error:
        if is_ours(error):
            raise
        return f"raises {type(error).__name__}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return text if len(text) <= 160 else text[:157] + "..."


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}{f' of shape {tuple(shape)}' if shape is not None else ''}"


def seen_violation(
    step: Step, row: int, query: int, expected: Sequence[int], head: int | None = None
) -> NoReturn:
    """Raise the violation that a query sees other tokens than it must."""
    run = step.run
    seen = sorted(step.seen(row, query, head or 0))
    missing = [number for number in expected if number not in seen]
    extra = [number for number in seen if number not in expected]
    facts = []
    if missing:
        facts.append(f"missing: {ranges(missing)}")
    if extra:
        future = [number for number in extra if number > step.ids[step.start + query]]
        facts.append(f"too many: {ranges(extra)}{' (the future)' if future == extra else ''}")
    where = f"query {query} of {step.ask.count}" if step.ask.count > 1 else "the query"
    row_text = f" of row {row}" if run.dims.batch > 1 else ""
    row_text += f" in head {head}" if head is not None else ""
    position = step.start + query - run.log.left_padding[row]
    if run.virtual:
        keys = f"tokens({listed(step.ids)})[0]"
    elif run.profile.capabilities.quantized:
        keys = "dequantized(keys, cache)"
    else:
        keys = "keys"
    which = f", {row}" if row or head is not None else ""
    which += f", {head}" if head is not None else ""
    code = [
        f"got = seen(mask, {keys}, {step.ask.count}, {query}{which})",
        f"assert got == {list(expected)}, got",
    ]
    run.fail(
        f"{where}{row_text}, at position {position}, sees other tokens than "
        f"{step.visibility} visibility gives it; {'; '.join(facts)}",
        expected=f"tokens {ranges(expected)}",
        observed=f"tokens {ranges(seen)}",
        code=code,
        step=step,
    )
