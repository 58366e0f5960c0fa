"""The verdict card: on a circuit written by hand, on a run that was just trained, and on models it can say less of."""

from __future__ import annotations

import math
import pathlib
import shutil
from typing import Any

import pytest
import torch
from torch import nn
from transformers import FalconConfig, FalconForCausalLM, LlamaConfig, LlamaForCausalLM

from tests.tiers import quick
from tracer.ablate import Effect, Path, Verdict, effect, planner, reference_z, verdict
from tracer.ablate.induction_tests import ablation
from tracer.ablate.repeats import Repeats
from tracer.ablate.verdict_card import SEQUENCES
from tracer.config import ModelConfig
from tracer.data import probes
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import Edit, applied
from tracer.interventions.replacements import MORE
from tracer.model import Transformer
from tracer.store import Run

VOCAB, CTX = 27, 51


def induction_circuit(copies: int = 1, partners: int = 1) -> Transformer:
    """Two layers that do nothing but induction, in columns of a stream without norms.

    Columns: the token, the position, the previous token (which L0H1 writes), the prediction. L1H0 looks for keys whose
    previous token is its own, and predicts what is there; with `copies=2` L1H1 does the same, with `partners=2` L0H0
    writes half of the previous token.
    """
    token, place, before, out = (slice(a, b) for a, b in ((0, 27), (27, 78), (78, 105), (105, 132)))
    config = ModelConfig(n_layers=2, n_heads=2, d_model=132, d_head=51, n_ctx=CTX, d_vocab=VOCAB, norm="none")
    model = Transformer(config).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    words, places = torch.eye(VOCAB).double(), torch.eye(CTX).double()
    model.embed.W_E[:, token], model.pos_embed.W_pos[:, place] = words, places
    model.W_U[out] = words
    first, second = (block.attn for block in model.blocks)
    assert first.W_O is not None and second.W_O is not None
    for head in (1, 0)[:partners]:
        first.W_Q[head, place], first.W_K[head, place] = 200 * places.roll(-1, 1), places  # q at p asks for p - 1
        first.W_V[head, token, :VOCAB], first.W_O[head, :VOCAB, before] = words, words / partners
    for head in range(copies):
        second.W_Q[head, token, :VOCAB], second.W_K[head, before, :VOCAB] = 200 * words, words
        second.W_V[head, token, :VOCAB], second.W_O[head, :VOCAB, out] = words, 12 * words
    model.W_U[token] = 0.01 * words  # so that copying is an eigenvalue: raising a token raises its own logit
    return model


@pytest.fixture(scope="module")
def card() -> Verdict:
    return verdict(induction_circuit(), 1, 0)


def test_an_induction_head_by_hand_passes_everything(card: Verdict) -> None:
    prefix, copying, weights, ablation, partners, behind = card.tests
    assert [test.passed for test in card.tests] == [True] * 6 and card.is_induction_head and card.passed == 6
    assert prefix.value == pytest.approx(1.0, abs=1e-6) and prefix.low == pytest.approx(1.0, abs=1e-6)
    assert prefix.chance == pytest.approx(sum(1 / (q + 1) for q in range(17, 25)) / 8)
    assert copying.value == 1 and copying.chance == 0.5 and "100% of all comparisons" in copying.sentence
    assert weights.value == pytest.approx(1.0, abs=1e-6) and math.isnan(weights.low) and abs(weights.chance) < 0.05
    assert "100% of the tokens are among the 5" in weights.sentence
    assert ablation.low > 0.75
    assert card.partners == ((0, 1),) and partners.value > 0.95 and abs(partners.chance) < 1e-6
    assert "prefix matching goes from 1.00 to 0.0" in partners.sentence and "L0H1 (1.00 of" in partners.sentence
    assert card.repair is None
    assert behind.value == pytest.approx(1.0, abs=1e-6)
    assert card.headline == "L1H0 of this Transformer is an induction head: 6 of 6 tests passed"


def losses_by_hand(tokens: torch.Tensor, off: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean loss of each row's first and second copy of a model that gives the right token 12 logits where it has seen
    it follow, and 0.01 to its own."""
    found = []
    for row in tokens.tolist():
        loss = []
        for j in range(len(row) - 1):
            logits = torch.zeros(VOCAB, dtype=torch.float64)
            logits[row[j]] += 0.01
            if not off and row[j] in row[:j]:
                logits[row[row.index(row[j]) + 1]] += 12
            loss.append(float(logits.logsumexp(0) - logits[row[j + 1]]))
        found.append(loss)
    period = (tokens.shape[1] - 1) // 3
    losses = torch.tensor(found, dtype=torch.float64)
    return losses[:, 1 : 2 * period].mean(1), losses[:, 2 * period + 1 : 3 * period].mean(1)


def test_the_share_of_the_gain_by_hand() -> None:
    """Against losses of the algorithm itself; a new token meets no earlier one, so zero costs nothing there."""
    model, rows = exact_circuit(), Repeats(probes.repeated(VOCAB, CTX).tokens)
    found, _ = ablation(rows, {mode: effect(model, rows.tokens, [(1, 0)], "zero") for mode in ("a", "b", "c")})
    new, again = losses_by_hand(rows.tokens, off=False)
    _, without = losses_by_hand(rows.tokens, off=True)
    assert found.value == pytest.approx(float((without - again).mean() / (new - again).mean()), rel=1e-4)


def exact_circuit() -> Transformer:
    """The circuit whose second layer looks at the start token, and so says nothing, where nothing matches."""
    model = induction_circuit()
    attn = model.blocks[1].attn
    attn.W_K[0, 27, :VOCAB] = 0.5  # the column of position 0
    model.blocks[1].attn.W_V[0, 0] = 0  # the start token is not copied
    return model


def harm(again: float, new: float) -> Effect:
    """A model that gains 4 nats from repetition, and a head whose loss costs this much."""
    rows = Repeats(probes.repeated(VOCAB, CTX).tokens)
    spread = torch.linspace(-0.01, 0.01, 32, dtype=torch.float64)[:, None]
    clean = 4.0 * ~rows.again + spread
    return Effect(clean, clean + again * rows.again + new * ~rows.again + spread)


HARMS = [
    ((2.0, 0.0), 0.5, True),
    ((2.0, 2.0), 0.0, False),  # both copies alike: the head is needed, but not for repetition
    ((3.0, 1.0), 0.5, True),
    ((0.0, -2.0), 0.0, False),  # new tokens gain without it, which is no harm to repeated ones
    ((0.2, 0.0), 0.05, False),  # beyond doubt, and next to nothing
    ((-1.0, 0.0), -0.25, False),
]


@pytest.mark.parametrize(("costs", "share", "passed"), HARMS)
def test_an_effect_has_a_size(costs: tuple[float, float], share: float, passed: bool) -> None:
    rows = Repeats(probes.repeated(VOCAB, CTX).tokens)
    found, changes = ablation(rows, dict.fromkeys(("zero", "mean", "resample"), harm(*costs)))
    assert found.value == pytest.approx(share, abs=0.01) and found.passed is passed
    assert changes["mean"].mean == pytest.approx(costs[0])


def test_where_repetition_gains_nothing_no_head_is_needed_for_it() -> None:
    rows = Repeats(probes.repeated(VOCAB, CTX).tokens)
    clean = 3.0 + 0.05 * ~rows.again
    found, _ = ablation(rows, dict.fromkeys(("zero", "mean", "resample"), Effect(clean, clean + 0.04 * rows.again)))
    assert found.passed is False and math.isnan(found.value) and "gains this model 0.05" in found.sentence


def test_an_untrained_model_passes_nothing(run: Run) -> None:
    """Before induction exists, intervals of many heads exclude 0; the gain of 0.0 nats is not theirs to lose."""
    model = run.model(10)
    for layer in range(2):
        for head in range(4):
            tests = {test.name: test.passed for test in verdict(model, layer, head, sequences=16).tests}
            assert not tests["ablation"] and not tests["prefix matching"] and not tests["previous-token partners"]


def test_effects_are_those_of_the_three_replacements(card: Verdict) -> None:
    """Mean and resample come from rows that do not repeat."""
    model, probe = induction_circuit(), probes.repeated(VOCAB, CTX)
    others = probes.repeated(VOCAB, CTX, batch=MORE * SEQUENCES, seed=probes.PROBE_SEED + 1).control
    for mode, reference in {"zero": None, "resample": others}.items():
        expected = effect(model, probe.tokens, [(1, 0)], mode, reference=reference).over(probe.predictable)
        assert card.effects[mode].mean == pytest.approx(expected.mean)
        assert card.effects[mode].low == pytest.approx(expected.low)
    z = reference_z(model, probes.repeated(VOCAB, CTX, batch=2000, seed=5).control)
    expected = effect_of_mean(model, probe.tokens, z["blocks.1.attn.hook_z"].mean(0)[:, 0])
    assert card.effects["mean"].mean == pytest.approx(expected, rel=0.03)
    assert list(card.effects) == ["zero", "mean", "resample"]


def effect_of_mean(model: Transformer, tokens: torch.Tensor, mean: torch.Tensor) -> float:
    """Change in loss of the second copy of L1H0 at the mean over a large batch, by an edit."""
    where = probes.repeated(VOCAB, CTX).predictable
    with applied([Edit("blocks.1.attn.hook_z", (0,), instead=mean[None, :, None])]):
        after = probes.per_token_loss(model(tokens), tokens)
    return float((after - probes.per_token_loss(model(tokens), tokens))[:, where].mean())


def test_the_card_in_text(card: Verdict) -> None:
    text = str(card)
    assert text.startswith(card.headline) and text.endswith("print(verdict(model, 1, 0))")
    for test in card.tests:
        assert f"pass  {test.name}" in text
    assert "1.00 [1.00, 1.00]" in text and "-0.00" not in text
    assert "Attention to the token before: 0.10 on these repeated random tokens." in text
    assert max(map(len, text.splitlines())) <= 110
    under = "\n".join(line for test in card.tests for line in str(test).splitlines()[1:]).splitlines()
    assert len(under) > len(card.tests) and all(line[:6].isspace() and not line[6].isspace() for line in under)


def test_its_previous_token_head() -> None:
    found = verdict(induction_circuit(), 0, 1)
    passed = [test.passed for test in found.tests]
    assert passed == [False, False, None, True, None, False]  # what it writes is in no logit
    assert "is a previous-token head (1.00 of its attention here), not an induction head: 1" in found.headline
    assert found.partners == () and "no layer before the first" in found.tests[4].sentence
    assert "  -   previous-token partners\n" in str(found)


def test_a_head_that_does_nothing_passes_nothing() -> None:
    """It writes nothing, so neither of the two tests of copying is one that it failed."""
    found = verdict(induction_circuit(), 1, 1)
    assert [test.passed for test in found.tests] == [False, None, None, False, False, False]
    assert found.headline.endswith("is not an induction head: 0 of 4 tests passed") and "nan" not in str(found)
    assert all(e.mean == pytest.approx(0, abs=1e-9) for e in found.effects.values())


def needs_two_back(model: Transformer) -> Transformer:
    """L0H1 looks one and two tokens back, L0H0 one back with a fifth of the weight, and L1H0 asks for its own token and
    for the last ones, less than half of which the start token is as good as.

    A whole match is 0.77. The keys lose 0.3 of it without what L0H1 brings from one token back, and 0.35 without what
    it brings from two; 0.52 is what the start token has.
    """
    first, second = (block.attn for block in model.blocks)
    words, places = torch.eye(VOCAB).double(), torch.eye(CTX).double()
    first.W_Q[1, 27:78] = 200 * (places.roll(-1, 1) + places.roll(-2, 1))
    assert first.W_O is not None
    first.W_O[0, :VOCAB, 78:105], first.W_O[1, :VOCAB, 78:105] = 0.2 * words, words
    second.W_Q[0, :VOCAB, :VOCAB], second.W_Q[0, 78:105, :VOCAB] = 480 * words, 800 * words
    second.W_K[0, 27, :VOCAB] = 0.52 / 1.8  # the column of position 0
    return model


def test_one_of_two_that_do_the_same_work() -> None:
    found = verdict(induction_circuit(copies=2), 1, 0)
    assert found.is_induction_head and found.effects["zero"].mean < 0.1
    assert "is an induction head that others can stand in for: " in found.headline
    assert found.repair is not None and "others may do the same work" in found.repair
    assert "Switching L1H0 off costs only" in str(found)


def test_partners_that_share_the_work_are_found_together() -> None:
    """Scores go from 28 to 14 with one path cut, still far above the others: alone, each of the two seems unneeded."""
    found = verdict(induction_circuit(partners=2), 1, 0)
    assert found.tests[4].passed and found.partners == ((0, 0), (0, 1)) and found.tests[4].value > 0.95
    rows, model = Repeats(probes.repeated(VOCAB, CTX).tokens), induction_circuit(partners=2)
    for alone in ((0, 0), (0, 1)):
        with applied(planner(model, rows.tokens, "mean")([Path(alone, (1, 0), "k")])[0]):
            assert rows.attention(model)[0][:, 1, 0].mean() > 0.99


def test_rows_may_have_any_periods() -> None:
    """Blocks of 5 to 25 tokens, each as often as fits, put to the test by what the tokens themselves say."""
    rng, rows = torch.Generator().manual_seed(1), []
    for period in (5, 9, 13, 17, 21, 25) * 2:
        block = 1 + torch.randperm(VOCAB - 1, generator=rng)[:period]
        rows.append(torch.cat([torch.zeros(1, dtype=torch.long), block.repeat(11)])[:CTX])
    found = verdict(induction_circuit(), 1, 0, tokens=torch.stack(rows))
    assert found.is_induction_head and found.passed == 6 and found.partners == ((0, 1),)
    assert found.snippet.endswith("print(verdict(model, 1, 0, tokens=tokens))")


@pytest.fixture(scope="module")
def run(short_toy: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(shutil.copytree(short_toy, tmp_path_factory.mktemp("runs") / "it's one"))


def test_a_step_of_a_run_is_that_snapshot(run: Run) -> None:
    early, late = (verdict(run, 1, 0, step, sequences=4) for step in (10, 30))
    direct = verdict(run.model(10), 1, 0, sequences=4)
    assert [test.value for test in early.tests] == [test.value for test in direct.tests]
    assert early.tests[2].value != late.tests[2].value
    by_name = verdict(str(run.dir), 1, 0, 10, sequences=4)
    assert [test.value for test in by_name.tests] == [test.value for test in early.tests]
    recorded = float(run.trace["previous_token"].sel(step=10, layer=1, head=0))
    assert f"{recorded:.2f} on the run's held-out text" in early.elsewhere and "held-out" not in direct.elsewhere


WITHOUT = [
    ({"unembed_hidden": (8,)}, "no W_U"),
    ({"residual": False, "norm": "none"}, "plain sum"),
    ({"norm_position": "post"}, "plain sum"),
    ({"attn_out": False}, None),
    ({"tie_embeddings": True, "positions": "rotary"}, None),
]


@pytest.mark.parametrize(("fields", "reason"), WITHOUT)
def test_what_cannot_be_measured_is_said(fields: dict, reason: str | None) -> None:
    config = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=11, d_vocab=13, **fields)
    found = verdict(Transformer(config, seed=1).eval().requires_grad_(False), 1, 1, sequences=4)
    assert [test.passed is None for test in found.tests] == [False, False, reason is not None, False, False, True]
    assert reason is None or reason in found.tests[2].sentence
    assert f"of {4 if reason else 5} tests passed" in found.headline and str(found)


def llama(seed: int = 0) -> WrappedModel:
    torch.manual_seed(seed)
    config = LlamaConfig(
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=64, head_dim=32, vocab_size=30,
        intermediate_size=16, max_position_embeddings=21, tie_word_embeddings=False,
    )  # fmt: skip
    return WrappedModel(LlamaForCausalLM(config).eval().requires_grad_(False), n_ctx=21, d_vocab=30)


def test_no_head_of_a_random_model_that_others_wrote_passes() -> None:
    found = verdict(llama(), 1, 0, sequences=4)
    assert [test.passed for test in found.tests] == [False] * 6 and 0.2 < found.tests[1].value < 0.75


class Attention(nn.Module):
    """One layer of the circuit, as somebody else would write it."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Parameter(x.clone()) for x in (ours.W_Q, ours.W_K, ours.W_V, ours.W_O))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("bpm,hmd->bhpd", x, weight) for weight in (self.q, self.k, self.v))
        z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bhpd,hdm->bpm", z, self.o)


class Circuit(nn.Module):
    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention(block.attn) for block in ours.blocks)
        self.ours = [ours.embed.W_E, ours.pos_embed.W_pos, ours.W_U]

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embed, places, unembed = self.ours
        x = embed[tokens] + places[: tokens.shape[1]]
        for layer in self.layers:
            x = x + layer(x)
        return x @ unembed


@pytest.mark.parametrize("partners", quick([1, 2], (1,)))
def test_a_model_that_others_wrote_is_judged_by_what_it_does(partners: int) -> None:
    ours = induction_circuit(partners=partners)
    theirs = WrappedModel(Circuit(ours).eval().requires_grad_(False), n_ctx=CTX, d_vocab=VOCAB)
    found, own = verdict(theirs, 1, 0), verdict(ours, 1, 0)
    assert found.is_induction_head and [test.passed for test in found.tests] == [True, True, None, True, True, True]
    assert found.partners == own.partners and "kept from all that comes after" in found.tests[4].sentence
    for one, other in zip(found.tests, own.tests, strict=True):
        assert math.isnan(one.value) or one.value == pytest.approx(other.value, abs=0.05)
    for mode, ours_says in own.effects.items():  # of as many rows, the same
        assert found.effects[mode].mean == pytest.approx(ours_says.mean, rel=1e-9, abs=1e-9), mode
    assert not verdict(theirs, 0, 1).is_induction_head


def test_weights_that_cannot_be_told_apart_are_said() -> None:
    torch.manual_seed(0)
    falcon = FalconConfig(num_hidden_layers=2, num_attention_heads=2, hidden_size=16, vocab_size=30)
    found = verdict(WrappedModel(FalconForCausalLM(falcon).eval(), n_ctx=21, d_vocab=30), 1, 0, sequences=4)
    assert found.tests[2].passed is None and "model_type='falcon') is not known" in found.tests[2].sentence
    assert found.tests[1].passed is not None


def test_errors(run: Run) -> None:
    with pytest.raises(ValueError, match="L2H0 does not exist"):
        verdict(run, 2, 0)
    with pytest.raises(ValueError, match="no snapshot of step 7; the nearest is 10"):
        verdict(run, 1, 0, 7)
    with pytest.raises(ValueError, match="step=5 needs a run"):
        verdict(run.model(), 1, 0, 5)
