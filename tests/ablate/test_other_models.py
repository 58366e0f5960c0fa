"""MLPs, paths, self-repair and the card of models that others wrote, in every family, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

import tracer
from tests.causal_families import CAUSAL, QUICK, causal
from tests.tiers import quick
from tracer import ablate
from tracer.huggingface.architectures import family_of
from tracer.interventions.edits import Edit, applied, recording

hf: Any = transformers
TOKENS = torch.randint(2, 50, (3, 8), generator=torch.Generator().manual_seed(0))
OTHER = torch.randint(2, 50, (3, 8), generator=torch.Generator().manual_seed(1))
SENDER = (0, 1)


@pytest.fixture(scope="module", params=quick(CAUSAL, QUICK))
def model(request: Any) -> Any:
    return tracer.load_hf(causal(request.param))


def test_the_mlp_of_the_last_layer_by_hand(model: Any) -> None:
    stream, last = model.residual_stream(TOKENS), model.n_layers - 1
    (edits,) = ablate.planner(model, TOKENS)([ablate.MLP(last)])
    with applied(edits):
        after = model(TOKENS)
    wanted = model.logits(stream.final - stream.mlp_out[last])
    torch.testing.assert_close(after, wanted, atol=5e-6, rtol=0)
    assert (after - stream.logits).abs().max() > 1e-3
    assert ablate.effect(model, TOKENS, [ablate.MLP(0)]).delta.abs().max() > 1e-4


@pytest.mark.parametrize("mode", ["zero", "paired"])
def test_all_paths_into_a_layer_are_the_head_but_for_the_mlp_between(model: Any, mode: str) -> None:
    """The next layer's heads read what they read with the sender off, when the MLP between stays what it was."""
    plans = ablate.planner(model, TOKENS, mode, reference=None if mode == "zero" else OTHER)
    with recording("hook_mlp_out") as clean:
        model(TOKENS)
    mlp = Edit("blocks.0.hook_mlp_out", instead=clean["blocks.0.hook_mlp_out"])
    with applied([*plans([SENDER])[0], mlp]), recording("hook_z") as off:
        model(TOKENS)
    paths = [ablate.Path(SENDER, (1, head), into) for head in range(model.n_heads) for into in ("q", "k", "v")]
    with applied(plans(paths)[0]), recording("hook_z") as cut:
        model(TOKENS)
    torch.testing.assert_close(cut["blocks.1.attn.hook_z"], off["blocks.1.attn.hook_z"], atol=5e-6, rtol=0)
    with applied(plans(paths[:2])[0]), recording("hook_z") as some:
        model(TOKENS)
    assert (some["blocks.1.attn.hook_z"] - off["blocks.1.attn.hook_z"]).abs().max() > 1e-3
    assert torch.equal(some["blocks.0.attn.hook_z"].float(), cut["blocks.0.attn.hook_z"].float())


def test_a_direct_effect_is_what_is_missed_and_what_comes_back(model: Any) -> None:
    found = ablate.self_repair(model, TOKENS, (1, 2))
    assert found.direct == pytest.approx(found.missed + found.by_norm + found.by_others, abs=1e-9)
    share = tracer.logit_attribution(model, TOKENS).heads[1, 2, :, :-1].mean()
    if family_of(model.model) not in ("gemma2", "gemma3_text", "olmo2"):  # their own norm is computed anew
        assert found.direct == pytest.approx(float(share), abs=1e-5)


def test_the_card_measures_all_that_it_names(model: Any) -> None:
    card = ablate.verdict(model, 1, 0, sequences=4)
    unmeasured = [str(test) for test in card.tests if "Not measured" in str(test)]
    if str(family_of(model.model)).startswith("deepseek"):  # a norm stands between the weights of a head
        assert len(unmeasured) == 1 and "(MLA)" in unmeasured[0]
        with pytest.raises(ValueError, match="norms a narrow vector between two weights"):
            model.head_weights()
    else:
        assert unmeasured == []
    assert len(card.tests) == 6 and "previous-token partners" in str(card)


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_any_module_can_be_asked(name: str) -> None:
    theirs, wrapped = causal(name), tracer.load_hf(causal(name))
    for ask in (
        lambda model: ablate.effect(model, TOKENS, [(0, 1), ablate.MLP(1)]).delta,
        lambda model: torch.tensor(ablate.sweep(model, TOKENS).values),
        lambda model: torch.tensor(ablate.self_repair(model, TOKENS, (0, 1)).direct),
        lambda model: torch.tensor(ablate.verdict(model, 1, 1, sequences=4).previous_token),
    ):
        torch.testing.assert_close(ask(theirs), ask(wrapped))
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in theirs.modules())


def test_what_is_not_known_of_a_family_is_refused() -> None:
    config = hf.FalconConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4)
    falcon = tracer.load_hf(hf.FalconForCausalLM(config).eval())
    for part in (ablate.MLP(0), ablate.Path((0, 1), (1, 1), "k")):
        with pytest.raises(ValueError, match="model_type='falcon'.* is not known"):
            ablate.effect(falcon, TOKENS, [part])
    assert ablate.effect(falcon, TOKENS, [(0, 1)]).delta.abs().max() > 0


def test_pairs_go_row_by_row() -> None:
    """A random draw of corrupted prompts would give row i the other's: refused, or said."""
    model = tracer.load_hf(causal("GPT-2"))
    with pytest.raises(ValueError, match="has 3 rows as the input has, and none in common.*mode='paired'"):
        ablate.effect(model, TOKENS, [(0, 1)], "resample", reference=OTHER)
    with pytest.raises(ValueError, match=r"the input is \[3, 8\], so must the reference be, not \[2, 8\]"):
        ablate.effect(model, TOKENS, [(0, 1)], "paired", reference=OTHER[:2])
    with pytest.raises(ValueError, match="not None"):
        ablate.effect(model, TOKENS, [(0, 1)], "paired")
    together = ablate.effect(model, TOKENS, [(0, 1), (2, 3)], "paired", reference=OTHER).ablated
    for row in range(3):
        one = slice(row, row + 1)
        alone = ablate.effect(model, TOKENS[one], [(0, 1), (2, 3)], "paired", reference=OTHER[one]).ablated
        torch.testing.assert_close(together[one], alone)
