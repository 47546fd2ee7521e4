"""Profiles against the consumers themselves: real mlx-lm code on a tiny random model.

The log probabilities of every step are compared with those of the same model without any cache.
"""

import mlx.core as mx
import pytest
from mlx.utils import tree_map

from conformance import check
from conformance.profiles import CONSUMERS
from kvproto import REGISTRY
from tests.judging import needs_mlx_lm_032

mlx_lm_cache = pytest.importorskip("mlx_lm.models.cache", reason="mlx-lm is not installed")

pytestmark = needs_mlx_lm_032

PROMPT = [3, 14, 15, 9, 26, 5, 35, 8, 97, 9, 32]
NEW = 12


def model(seed):
    from mlx_lm.models import llama

    mx.random.seed(seed)
    made = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=32,
            num_hidden_layers=2,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            vocab_size=100,
            tie_word_embeddings=False,  # else a random model repeats its last token for ever
        )
    )
    made.update(tree_map(lambda weight: 3 * weight, made.parameters()))  # attention that matters
    return made


def right(target, steps):
    """Whether each step has the log probabilities that the model has without a cache."""
    tokens = mx.array([PROMPT + [token for token, _ in steps]])
    logits = target(tokens)[0, len(PROMPT) - 1 : -1]  # no cache is passed
    expected = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    assert len({token for token, _ in steps}) > 3  # it does not repeat itself
    return bool(mx.allclose(mx.stack([found for _, found in steps]), expected, atol=1e-2))


def generate(target, factory):
    from mlx_lm.generate import generate_step

    caches = [factory() for _ in target.layers]
    steps = generate_step(
        mx.array(PROMPT), target, max_tokens=NEW, prompt_cache=caches, prefill_step_size=4
    )
    return [(int(token), logprobs) for token, logprobs in steps]


def speculative(target, factory):
    from mlx_lm.generate import speculative_generate_step

    draft = model(2)  # another model, so that most of its tokens are rejected
    caches = [factory() for _ in [*target.layers, *draft.layers]]
    steps = speculative_generate_step(
        mx.array(PROMPT),
        target,
        draft,
        num_draft_tokens=3,
        max_tokens=NEW,
        prompt_cache=caches,
        prefill_step_size=4,
    )
    return [(int(token), logprobs) for token, logprobs, _ in steps]


@pytest.mark.parametrize("name", ["KVCache", "ConcatenateKVCache"])
@pytest.mark.parametrize("use", [generate, speculative])
def test_the_consumer_and_its_profile_agree(name, use):
    target = model(1)
    consumer = CONSUMERS[f"mlx-lm:{use.__name__}"]
    clauses = [clause for clause in consumer.relied_on() if clause in REGISTRY]
    report = check(f"mlx_lm.models.cache:{name}", effort="quick", clauses=clauses)
    judgement = report.profiles[consumer.name]
    try:
        works = right(target, use(target, getattr(mlx_lm_cache, name)))
    except ValueError:
        works = False
    assert works is (str(judgement.answer) == "yes"), judgement


def test_speculative_refuses_what_its_profile_refuses():
    with pytest.raises(ValueError, match="trimmable"):
        speculative(model(1), lambda: mlx_lm_cache.ArraysCache(2))


def test_speculative_keeps_rejected_tokens_of_a_full_window():
    def windowed():
        return mlx_lm_cache.RotatingKVCache(max_size=8)

    target = model(1)
    tokens = [token for token, _ in generate(target, windowed)]
    assert [token for token, _ in speculative(target, windowed)] != tokens
