"""Known faults of mlx-lm 0.32.2's classes, and the clause under which each shows up.

The ids are those of the project's collection of faults; public ones are named by their issue.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One known fault."""

    id: str
    call: str
    clause: str
    says: str
    """A part of the verdict's message that tells this fault from others under the clause."""
    source: str = "found by probing"


FULL = "KVCache()"
CONCATENATED = "ConcatenateKVCache()"
QUANTISED = "QuantizedKVCache(group_size=32, bits=8)"
WINDOW = "RotatingKVCache(max_size=8)"
SINKS = "RotatingKVCache(max_size=8, keep=2)"
CHUNKED = "ChunkedKVCache(8)"
BATCH = "BatchKVCache([1, 0])"
WINDOW_BATCH = "BatchRotatingKVCache(8, [1, 0])"
SLOTS = "ArraysCache(2)"
COMPOSITE = "CacheList()"

ROWS = (
    Row("P01", CONCATENATED, "TRIM-1", "which was trimmed", "ml-explore/mlx-lm#1494"),
    Row("P01b", CONCATENATED, "READ-2", "rows past offset", "ml-explore/mlx-lm#1494"),
    Row("P02", CONCATENATED, "REST-3", "AttributeError"),
    Row("P03", QUANTISED, "MEAS-3", "nbytes` raises AttributeError"),
    Row("P05", QUANTISED, "MEAS-1", "size() after 1 tokens is 0", "ml-explore/mlx-lm#941"),
    Row("P05b", CHUNKED, "MEAS-1", "size() after 1 tokens is 0"),
    Row("P05c", CONCATENATED, "MEAS-1", "size() after 1 tokens is 0"),
    Row("P06", QUANTISED, "QNT-6", "scales of the values", "ml-explore/mlx-lm#1550"),
    Row("P11", SLOTS, "REC-5", "when a slot was assigned", "waybarrios/vllm-mlx#575"),
    Row("P11", SLOTS, "REST-6", "does not hold what was assigned", "waybarrios/vllm-mlx#575"),
    Row("P12", SLOTS, "REC-2", "read before"),
    Row("P13", SLOTS, "REC-6", "graph behind the counters grows", "ml-explore/mlx-lm#1185"),
    Row("P15", WINDOW, "TRIM-3", "says that it removed", "ml-explore/mlx-lm#1512"),
    Row("P16a", FULL, "TRIM-7", "trim(-1) is not refused", "ml-explore/mlx-lm#1868"),
    Row("P16b", CONCATENATED, "TRIM-7", "trim(-1) is not refused"),
    Row("P16c", QUANTISED, "TRIM-7", "trim(-1) is not refused"),
    Row("P16d", WINDOW, "TRIM-7", "trim(-1) is not refused"),
    Row("P16e", CHUNKED, "TRIM-7", "trim(-1) is not refused"),
    Row("P16f", BATCH, "TRIM-7", "trim(-1) is not refused"),
    Row("P16g", WINDOW_BATCH, "TRIM-7", "trim(-1) is not refused"),
    Row("P17", SINKS, "MASK-3", "sees other tokens"),
    Row("P17", SINKS, "WIN-3", "does not see the attention sinks"),
    Row("P22", FULL, "BATCH-10", "ValueError"),
    Row("P22", BATCH, "BATCH-10", "ValueError"),
    Row("P23", FULL, "BATCH-3", "extract(0)` raises TypeError", "ml-explore/mlx-lm#1430"),
    # One clause, one counterexample: what is pending is extracted, finalised and filtered wrong.
    Row("P24", FULL, "BATCH-5", "after finalize", "ml-explore/mlx-lm#1746"),
    Row("P26", BATCH, "BATCH-5", "after finalize", "Blaizzy/mlx-vlm#1870"),
    Row("P27", BATCH, "REST-2", "finalize()` raises AttributeError"),
    Row("P28", WINDOW_BATCH, "REST-3", "AttributeError"),
    Row("P30", WINDOW_BATCH, "BATCH-6", "RuntimeError"),
    Row("P31", COMPOSITE, "COMP-4", "UnboundLocalError"),
    Row("P35", CHUNKED, "TRIM-8", "is_trimmable() is True", "ml-explore/mlx-lm#1494"),
    Row("P36", FULL, "STATE-6", "changed"),
    Row("P36b", FULL, "REST-6", "missing"),
    Row("P36d", QUANTISED, "REST-6", "missing"),
    Row("P36e", CHUNKED, "REST-6", "missing"),
    # REST-6 waits for REST-2 (P27) there; what both share is that state is a view.
    Row("P36f", BATCH, "STATE-6", "changed"),
    Row("P37", FULL, "UPD-8", "earlier append returned changed"),
    Row("P37c", WINDOW, "UPD-9", "passed to an earlier append changed"),
    Row("P47", FULL, "UPD-15", "how full the buffer is"),
    Row("P51", FULL, "UPD-6", "more values than keys"),
    Row("P56", BATCH, "RUN-3", "RuntimeError", "ml-explore/mlx-lm#1181"),
)

MUSTS = {
    # extract of an empty batch raises (ml-explore/mlx-lm#1430); what is pending between prepare
    # and finalize is not filtered (Blaizzy/mlx-vlm#1870).
    FULL: {"BATCH-3", "BATCH-5"},
    # trim lowers offset and leaves the rows (ml-explore/mlx-lm#1494); its empty state.
    CONCATENATED: {"MEAS-1", "POS-6", "READ-1", "READ-2", "REST-3", "TRIM-1"},
    # size() is 0 (ml-explore/mlx-lm#941), nbytes of an empty one raises.
    QUANTISED: {"MEAS-1", "MEAS-3"},
    # to_quantized is there and raises (ml-explore/mlx-lm#1573); a wrapped ring is trimmed all the
    # same (ml-explore/mlx-lm#1512); a chunk fed to a batch that wrapped hides each short row's
    # first token (BATCH-1); a chunk of one token is refused while padding is pending (BATCH-6).
    WINDOW: {"REF-1", "TRIM-3", "BATCH-1", "BATCH-3", "BATCH-5", "BATCH-6"},
    # Kept tokens are hidden from the later queries of a multi-token step, and lost by merge.
    SINKS: {"REF-1", "MASK-3", "UPD-3", "WIN-3", "WIN-4", "BATCH-7"},
    # A trim across the front that was dropped leaves visible tokens missing.
    CHUNKED: {"MEAS-1", "TRIM-1"},
    BATCH: {"BATCH-3", "BATCH-5", "REST-2"},
    WINDOW_BATCH: {"BATCH-3", "BATCH-5", "BATCH-6", "REF-1", "REST-2", "REST-3", "TRIM-3"},
    # advance works in place, lazily (ml-explore/mlx-lm#1185).
    SLOTS: {"REC-2", "REC-6"},
    COMPOSITE: set(),
}
"""Every MUST that fails on a class, each looked at; nothing else may."""

CONTROLS = (
    ("P49", QUANTISED, "UPD-7", "an append of no tokens"),
    ("P53", FULL, "BATCH-2", "members of a merge come out as they went in"),
    ("P54", FULL, "COPY-1", "a deep copy is independent"),
    ("P54", CONCATENATED, "UPD-1", "what it is fed is what it returns"),
    ("P54", QUANTISED, "COPY-1", "a deep copy is independent"),
    ("P54", WINDOW, "COPY-1", "a deep copy is independent"),
    ("P54", BATCH, "COPY-1", "a deep copy is independent"),
    ("P54", WINDOW_BATCH, "COPY-1", "a deep copy is independent"),
    ("P55", FULL, "REST-3", "an empty state comes back"),
    ("P55", QUANTISED, "REST-3", "an empty state comes back"),
    ("P55", WINDOW, "REST-3", "an empty state comes back"),
    ("P55", CHUNKED, "REST-3", "an empty state comes back"),
    ("P57a", FULL, "RUN-1", "goes on in another thread"),
    ("P57b", QUANTISED, "RUN-1", "goes on in another thread"),
    ("P57c", WINDOW, "RUN-1", "goes on in another thread"),
    ("P57e", CHUNKED, "RUN-1", "goes on in another thread"),
    ("P57f", BATCH, "RUN-1", "goes on in another thread"),
    # W+S-1 rows after an append of S are no fault (ml-explore/mlx-lm#1914).
    ("N01", WINDOW, "WIN-1", "rows after a multi-token append"),
    ("N01", WINDOW, "WIN-6", "rows after a multi-token append"),
    *(
        ("mask", WINDOW, clause, "the window that it declares")
        for clause in ("MASK-1", "MASK-2", "MASK-3", "MASK-4", "MASK-5", "MASK-6", "MASK-7")
    ),
    ("attention", WINDOW, "UPD-14", "attention over the window"),
)
"""Right behaviour that is not flagged: id, call, clause, what is right."""

FUNCTIONS = (
    ("control", (FULL, FULL), set()),
    # trim_prompt_cache lets layers fall apart that trim different numbers of tokens
    # (ml-explore/mlx-lm#1494), and the store hands them out (P43).
    ("P33", (FULL, "ChunkedKVCache(4)"), {"PROMPT-1", "PROMPT-2", "PROMPT-4"}),
    ("P43", ("ChunkedKVCache(4)",), {"PROMPT-4"}),
    # A file names classes of its own module only (ml-explore/mlx-lm#80); a saved cache without
    # arrays is not there when the file is loaded.
    ("P38", (FULL, "OfAnotherModule()"), {"PROMPT-1", "PROMPT-3"}),
    ("P39", (FULL, "OffsetCache()"), {"PROMPT-3"}),
)
"""Known faults of mlx-lm's functions over lists of caches: id, the caches, the MUSTs that fail."""

NOT_SHOWN = {
    "P09": "ArraysCache(0), a recurrent cache without a slot, is no cache of any layer",
    "P10": "prepare(left_padding=[...]) with a list: consumers pass an array to this class",
    "P13b": "the graph behind offset while only keys and values are evaluated: no clause yet",
    "P18": "needs fields that are set by hand to values that no operation gives them",
    "P21": "needs a padded batch that is filtered while empty: no check yet",
    "P25": "prepare and finalize with no append between: BATCH-5 finds P24 first",
    "P41": "PromptTrie is a store of prompts, no cache",
    "P42": "LRUPromptCache is a store of prompts, no cache",
    "P44": "LRUPromptCache is a store of prompts, no cache",
    "P45": "make_prompt_cache chooses classes, it is no cache",
    "P46": "_BaseCache is abstract",
}
"""Known faults that no run on a class shows, with the reason."""
