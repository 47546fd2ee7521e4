"""``update_and_fetch``: append new keys and values, get back what is retained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from kvproto.clause import REGISTRY, Clause, Level

if TYPE_CHECKING:
    import mlx.core as mx

KV_co = TypeVar("KV_co", covariant=True)


class UpdatesAndFetches(Protocol[KV_co]):
    """A cache that takes arrays and gives ``UpdatesAndFetches[mx.array]``: plain arrays back, or
    ``UpdatesAndFetches[AffineTriple]``: quantised ones.

    Beware: a data-free cache whose ``update_and_fetch`` is typed ``-> Never`` satisfies this
    protocol, because ``Never`` is a subtype of everything, unless its parameters are typed
    ``Never`` too, as those of :class:`~kvproto.contracts.datafree.DataFreeCache` are. Ask
    :func:`kvproto.is_storage_backed`.
    """

    def update_and_fetch(self, keys: mx.array, values: mx.array, /) -> tuple[KV_co, KV_co]:
        """Append S tokens and return the retained keys and values.

        Args:
            keys: ``(B, n_kv_heads, S, Dk)``.
            values: ``(B, n_kv_heads, S, Dv)``; Dv may differ from Dk and may be 0.

        Returns:
            Two results of L rows each on axis 2, in the same order, the new rows included.
        """
        ...


ATTENTION = "mlx-lm: models/*.py (105 call update_and_fetch and attend to what it returns)"
MLA = "mlx-lm: deepseek_v3, kimi_linear, minimax_m3 (latent attention: Dk != Dv, Dv == 0)"
CHUNKED = "mlx-lm: generate_step (prompts are fed in chunks of prefill_step_size, then one by one)"

CONTRACT = REGISTRY.register(
    "update",
    "Update",
    "`update_and_fetch(keys, values)` appends S tokens and returns the retained ones.",
    (
        Clause(
            "UPD-1",
            Level.MUST,
            "return exactly two results from update_and_fetch(keys, values), with the same "
            "tokens in the same order in both, the new ones included (lossy kinds: the newest).",
            "Every attention layer unpacks two results and multiplies scores by the values that "
            "stand at the same index.",
            (ATTENTION,),
        ),
        Clause(
            "UPD-2",
            Level.MUST,
            "return the retained tokens as they were appended, bit for bit (lossy kinds: within "
            "their stated bound), none stale and none twice; further rows are legal only if the "
            "mask of that step hides them from every query.",
            "The model attends to another token, to one token twice, or to another request's rows.",
            (ATTENTION,),
            (
                "ml-explore/mlx-examples#1015",
                "ml-explore/mlx-lm#1494",
                "waybarrios/vllm-mlx#384",
            ),
        ),
        Clause(
            "UPD-3",
            Level.MUST,
            "show every query the same tokens however the same tokens are split into appends.",
            "The same prompt gives other text when the chunk size or a cached prefix changes.",
            (CHUNKED,),
            (
                "ml-explore/mlx-lm#1189",
                "rajveer43/VeloxQuant-MLX#84",
                "Blaizzy/mlx-vlm#973",
            ),
        ),
        Clause(
            "UPD-4",
            Level.MUST,
            "never lose tokens by growing, for any append size and capacity.",
            "Growth happens once in hundreds of tokens, so the loss is met in production only.",
            (CHUNKED, "sglang: write_token past the capacity"),
            (
                "ml-explore/mlx-examples#766",
                "ml-explore/mlx-lm#950",
                "sgl-project/sglang#29271",
            ),
        ),
        Clause(
            "UPD-5",
            Level.MUST,
            "accept Dk != Dv, Dv == 0 and any float dtype, and give back shape and dtype as "
            "they came; or declare the restriction, and refuse cleanly (UPD-6).",
            "Latent attention stores a latent and a rope part of other widths; a changed dtype "
            "silently recasts the rest of the layer.",
            (MLA,),
            ("ml-explore/mlx-lm#1550",),
        ),
        Clause(
            "UPD-6",
            Level.SHOULD,
            "refuse a wrong batch size, head count or head dim and unequal key and value "
            "lengths with ValueError or TypeError before anything changes, and never broadcast.",
            "A batch of 1 that is broadcast over B rows gives every request the same token.",
        ),
        Clause(
            "UPD-7",
            Level.SHOULD,
            "be unchanged by an append of zero tokens.",
            "Empty chunks appear at the edges of prefill schedulers.",
        ),
        Clause(
            "UPD-8",
            Level.SHOULD,
            "not change arrays that it returned earlier.",
            "Layers that share keys and values hold them while the owner goes on.",
        ),
        Clause(
            "UPD-9",
            Level.SHOULD,
            "not write into arrays that the caller passed.",
            "The caller's keys change under it one step later.",
        ),
        Clause(
            "UPD-10",
            Level.SHOULD,
            "be, when update_and_fetch raises, as if the call had not happened: offset, content "
            "and masks.",
            "An engine that catches the error goes on with an offset that has no rows behind it.",
        ),
        Clause(
            "UPD-11",
            Level.SHOULD,
            "move O(T) rows in total over T one-token appends, and hold O(T) memory.",
            "Growth by a fixed step copies T*T/(2*step) rows: at 128k tokens most of the traffic.",
        ),
        Clause(
            "UPD-12",
            Level.SHOULD,
            "evaluate nothing: no method on the hot path forces mx.eval.",
            "A hidden evaluation stops the pipeline that builds one step ahead.",
        ),
        Clause(
            "UPD-13",
            Level.MUST,
            "treat each row of an unpadded batch as it would treat it alone.",
            "A request's text depends on what else is in the batch.",
            ("mlx-lm: BatchGenerator", "mlx-lm: evaluate (scores in batches)"),
        ),
        Clause(
            "UPD-14",
            Level.MUST,
            "give, with the mask it made, the attention that dense attention over the token log "
            "gives under the declared visibility, in every dtype it accepts.",
            "This is what a cache is for; the other clauses say which part of it is broken.",
            (ATTENTION,),
        ),
        Clause(
            "UPD-15",
            Level.SHOULD,
            "have one rule for a dtype that changes mid-stream: it casts always, or refuses "
            "always, whether or not the append makes it grow.",
            "A dtype that depends on the fill level of a buffer changes the numbers at random.",
        ),
        Clause(
            "UPD-16",
            Level.SHOULD,
            "keep keys and values in dtypes of their own where they come in different ones, or "
            "refuse them.",
            "Values that are float32 by design are rounded to the keys' float16.",
            (),
            ("ml-explore/mlx-lm#1550",),
        ),
    ),
)
