"""The residual stream of every family, in float64: parts sum to it, and what heads read gives the model's patterns."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tracer
from tests.causal_families import CAUSAL, QUICK, causal
from tests.tiers import quick
from tracer import ablate
from tracer.interventions.edits import Edit, applied, recording
from tracer.model.residual_stream import Component, ResidualStream

hf: Any = transformers
IDS = torch.randint(2, 50, (2, 9), generator=torch.Generator().manual_seed(0))
CLOSE: Any = {"atol": 5e-6, "rtol": 0.0}
"""Norms and softmaxes of transformers work in float32 whatever the model is in; sums are exact."""


@pytest.fixture(scope="module", params=quick(CAUSAL, QUICK))
def known(request: Any) -> tuple[Any, ResidualStream]:
    model = tracer.load_hf(causal(request.param))
    return model, model.residual_stream(IDS)


def test_parts_sum_to_the_stream_of_every_layer(known: tuple[Any, ResidualStream]) -> None:
    model, stream = known
    for layer, one in enumerate(stream.layers):
        torch.testing.assert_close(stream.parts(layer).sum(0), one.resid_pre, **CLOSE)
    torch.testing.assert_close(stream.parts().sum(0), stream.final, **CLOSE)
    assert len(stream.parts(2, [1, 4])) == len(stream.sources(2)) and stream.parts(2, [1, 4]).shape[2] == 2
    assert stream.sources()[0] == Component("embed") and Component("head", 2, 3) in stream.sources()


def test_the_last_stream_gives_the_logits(known: tuple[Any, ResidualStream]) -> None:
    model, stream = known
    torch.testing.assert_close(model.logits(stream.final), model(IDS), **CLOSE)
    assert stream.logits.dtype == torch.float64


def test_scores_from_weights_and_stream_give_the_patterns(known: tuple[Any, ResidualStream]) -> None:
    model, stream = known
    with recording("hook_pattern") as seen:
        model(IDS)
    for i, layer in enumerate(stream.layers):
        for head in range(4):
            pattern = seen[f"blocks.{i}.attn.hook_pattern"][:, head].double()
            scores = layer.seen_scores(layer.scores(head), head).masked_fill(pattern == 0, -torch.inf)
            torch.testing.assert_close(scores.softmax(-1), pattern, **CLOSE)
            torch.testing.assert_close(pattern @ layer.whole("v", head), layer.z[:, :, head], **CLOSE)


def test_a_score_is_a_sum_over_pairs_of_parts(known: tuple[Any, ResidualStream]) -> None:
    model, stream = known
    layer, (query, key) = stream.layers[2], ([6], [3])
    q, k = (torch.cat([layer.read(into, 1, stream.parts(2, at), at), layer.constant(into, 1, at)[None]])
            for into, at in (("q", query), ("k", key)))  # fmt: skip
    table = torch.einsum("abpd,cbpd->acb", q, k) * layer.weights.scale
    torch.testing.assert_close(table.sum((0, 1)), layer.scores(1)[:, 6, 3], **CLOSE)


def test_what_cannot_be_said_is_refused(build: Callable[..., Any]) -> None:
    falcon = tracer.load_hf(build("falcon", "eager"))
    for ask in (lambda: falcon.residual_stream(IDS), falcon.head_weights):
        with pytest.raises(
            ValueError, match=r"FalconForCausalLM \(model_type='falcon'\) is not known.*gpt_neox, granite"
        ):
            ask()
    config = hf.OPTConfig(vocab_size=50, hidden_size=24, ffn_dim=32, num_hidden_layers=2, num_attention_heads=4,
                          max_position_embeddings=64, word_embed_proj_dim=24, do_layer_norm_before=False)  # fmt: skip
    opt = tracer.load_hf(hf.OPTForCausalLM(config).eval())
    with pytest.raises(ValueError, match="do_layer_norm_before=False: norms come after each sum"):
        opt.residual_stream(IDS)


def test_a_model_that_computes_something_else_is_found_out() -> None:
    theirs = causal("Llama")
    model = tracer.load_hf(theirs)
    before = theirs.model.layers[1].forward
    theirs.model.layers[1].forward = lambda x, *args, **kwargs: before(x, *args, **kwargs) + 1
    with pytest.raises(ValueError, match=r"do not add up: what enters layer 2 is off by"):
        model.residual_stream(IDS)
    del theirs.model.layers[1].forward
    theirs.model.layers[1].self_attn.scaling *= 2
    assert model.residual_stream(IDS).layers[1].weights.scale == pytest.approx(2 * 8**-0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Gemma 2", "BLOOM", "OPT"])
def test_a_coarse_model_is_answered_as_finely_as_it_computes(name: str, dtype: torch.dtype) -> None:
    """Beside a model of the same weights in float64; what it computes has steps of `eps`."""
    coarse, fine = causal(name).to(dtype), causal(name)
    fine.load_state_dict(coarse.state_dict())
    found, wanted = (
        torch.from_numpy(tracer.logit_attribution(model, IDS, IDS).heads.values) for model in (coarse, fine)
    )
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 10 * torch.finfo(dtype).eps


def test_two_views_of_one_model_edit_it_once() -> None:
    theirs, vector = causal("GPT-2"), torch.randn(32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = tracer.load_hf(theirs)
    with applied([Edit("blocks.1.hook_resid_pre", instead=lambda x: x + vector)]):
        alone = one(IDS)
        tracer.load_hf(theirs)
        assert torch.equal(one(IDS), alone)
        torch.testing.assert_close(torch.tensor(tracer.logit_lens(theirs, IDS).log_p.values[-1, 0, 0]),
                                   alone.log_softmax(-1)[0, 0, IDS[0, 1]])  # fmt: skip


@pytest.mark.parametrize("shape", [(0, 8), (2, 0)], ids=str)
def test_an_empty_batch_is_refused_in_words(shape: tuple[int, int]) -> None:
    model, empty = tracer.load_hf(causal("GPT-2")), torch.zeros(shape, dtype=torch.int64)
    with pytest.raises(ValueError, match="empty"):
        model(empty)
    for ask in (tracer.logit_lens, tracer.logit_attribution, tracer.survey, tracer.ablate.sweep):
        with pytest.raises(ValueError, match="empty"):
            ask(model, empty)
    with pytest.raises(ValueError, match="empty"):
        tracer.patch(model, empty, empty)


@pytest.mark.parametrize(
    ("name", "mode"),  # resample, the dearest, replaces in the places where zero does: the quick ones show it
    quick(
        [(name, mode) for name in CAUSAL for mode in ablate.MODES if name in QUICK or mode != "resample"],
        [(name, mode) for name in QUICK for mode in ablate.MODES],
    ),
)
def test_a_sweep_that_begins_at_a_later_block_is_one_of_whole_passes(name: str, mode: ablate.Mode) -> None:
    model, how = tracer.load_hf(causal(name)), {"frozen": mode == "mean", "draws": 2}
    expected = [
        [ablate.effect(model, IDS, [(layer, head)], mode, **how).delta.mean() for head in range(model.n_heads)]
        for layer in range(model.n_layers)
    ]
    np.testing.assert_allclose(ablate.sweep(model, IDS, mode, **how), expected, atol=1e-6)


def test_blocks_before_the_head_are_not_run_again() -> None:
    """Of 3 layers of 4 heads: a clean pass, one a layer that keeps what enters it, and one a head, from there on."""
    theirs, ran = causal("Llama"), [0, 0, 0]
    model = tracer.load_hf(theirs)
    for layer, block in enumerate(theirs.model.layers):
        block.mlp.register_forward_hook(lambda *_, layer=layer: ran.__setitem__(layer, ran[layer] + 1))
    ablate.sweep(model, IDS)
    assert ran == [1 + 4 + 1, 1 + 4 + 1 + 4 + 1, 1 + 4 + 1 + 4 + 1 + 4]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_views_go_in_any_order_and_a_copy_is_no_view(order: tuple[int, int]) -> None:
    theirs = causal("Llama")
    views = [tracer.load_hf(theirs), tracer.load_hf(theirs)]
    expected, other = theirs(IDS).logits, copy.deepcopy(theirs)
    for block in theirs.model.layers:
        block.mlp.down_proj.weight.data.zero_()
    assert torch.equal(other(IDS).logits, expected) and not torch.equal(theirs(IDS).logits, expected)
    for i in order:
        views[i].release()
    assert not any("forward" in vars(block) for block in theirs.model.layers)
