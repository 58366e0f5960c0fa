"""The verdict card: on a circuit written by hand, on a run that was just trained, and on models it can say less of."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tracer.ablate import Verdict, effect, verdict
from tracer.analysis.composition import random_composition
from tracer.config import ModelConfig
from tracer.data import probes
from tracer.huggingface.wrapped import WrappedModel
from tracer.model import Transformer
from tracer.presets import PRESETS
from tracer.store import Run
from tracer.training.loop import train

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
    prefix, copying, ablation, partner = card.tests
    assert [test.passed for test in card.tests] == [True] * 4 and card.is_induction_head and card.passed == 4
    assert prefix.value == pytest.approx(1.0, abs=1e-6) and prefix.low == pytest.approx(1.0, abs=1e-6)
    assert prefix.chance == pytest.approx(sum(1 / (q + 1) for q in range(17, 25)) / 8)
    assert copying.value == pytest.approx(1.0, abs=1e-6) and math.isnan(copying.low) and abs(copying.chance) < 0.05
    assert ablation.value == sorted(e.mean for e in card.effects.values())[1] and ablation.low > 1
    # |OV QK^T| = 200 sqrt(27), |OV| = sqrt(27), |QK| = 200 sqrt(27)
    assert partner.value == pytest.approx(27**-0.5 - random_composition(132, 51)[0]) and card.partner == (0, 1)
    assert "prefix matching goes from 1.00 to 0.0" in partner.sentence and "which puts 1.00 of" in partner.sentence
    assert card.repair is None
    assert card.headline == "L1H0 of this Transformer is an induction head: 4 of 4 tests passed"


def test_effects_are_those_of_the_three_replacements(card: Verdict) -> None:
    model, probe = induction_circuit(), probes.repeated(VOCAB, CTX)
    for mode, found in card.effects.items():
        assert found == effect(model, probe.tokens, [(1, 0)], mode).over(probe.predictable)
    assert list(card.effects) == ["zero", "mean", "resample"]


def test_the_card_in_text(card: Verdict) -> None:
    text = str(card)
    assert text.startswith(card.headline) and text.endswith("print(verdict(model, 1, 0))")
    for test in card.tests:
        assert f"pass  {test.name}" in text
    assert "1.00 [1.00, 1.00]" in text and "-0.00" not in text
    assert max(map(len, text.splitlines())) <= 110


def test_its_previous_token_head() -> None:
    found = verdict(induction_circuit(), 0, 1)
    assert [test.passed for test in found.tests] == [False, False, True, None]
    assert "is a previous-token head (1.00 of its attention), not an induction head: 1 of 3" in found.headline
    assert found.partner is None and "no layer before the first" in found.tests[3].sentence
    assert "  -   previous-token partner\n" in str(found)


def test_a_head_that_does_nothing_passes_nothing() -> None:
    found = verdict(induction_circuit(), 1, 1)
    assert not any(test.passed for test in found.tests) and found.passed == 0
    assert all(e.mean == pytest.approx(0, abs=1e-9) for e in found.effects.values())


def test_one_of_two_that_do_the_same_work() -> None:
    found = verdict(induction_circuit(copies=2), 1, 0)
    assert found.is_induction_head and found.effects["zero"].mean < 0.1
    assert found.repair is not None and "others may do the same work" in found.repair
    assert "Switching L1H0 off costs only" in str(found)


def test_one_of_two_partners_is_not_missed() -> None:
    """Scores go from 28 to 14 with one path cut, still far above the others: all of the prefix matching stays."""
    found = verdict(induction_circuit(partners=2), 1, 0).tests[3]
    assert found.passed is False and "prefix matching goes from 1.00 to 1.00" in found.sentence


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    toy = PRESETS["induction"].config
    config = replace(
        toy, run=str(tmp_path_factory.mktemp("runs") / "it's one"), steps=10, device="cpu",
        optim=replace(toy.optim, batch_size=8),
        record=replace(toy.record, every=5, snapshot_every=5, val_rows=4, text_prompts=1, repeat_prompts=1),
    )  # fmt: skip
    return train(config, preset="induction", quiet=True)


def test_the_snippet_computes_the_card_again(run: Run) -> None:
    found = verdict(run, 1, 0, sequences=8)
    done = subprocess.run(
        [sys.executable, "-c", found.snippet], capture_output=True, text=True, cwd=run.dir,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(found)
    assert "it's one at step 10 is not an induction head" in found.headline and "step=10" in found.snippet


def test_a_step_of_a_run_is_that_snapshot(run: Run) -> None:
    early, late = (verdict(run, 1, 0, step, sequences=4) for step in (5, 10))
    direct = verdict(run.model(5), 1, 0, sequences=4)
    assert [test.value for test in early.tests] == [test.value for test in direct.tests]
    assert early.tests[1].value != late.tests[1].value


WITHOUT = [
    ({"unembed_hidden": (8,)}, {1: "no W_U"}),
    ({"residual": False, "norm": "none"}, {1: "plain sum", 3: "plain sum"}),
    ({"norm_position": "post"}, {1: "plain sum", 3: "plain sum"}),
    ({"attn_out": False}, {}),
    ({"tie_embeddings": True, "positions": "rotary"}, {}),
]


@pytest.mark.parametrize(("fields", "reasons"), WITHOUT)
def test_what_cannot_be_measured_is_said(fields: dict, reasons: dict[int, str]) -> None:
    config = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=11, d_vocab=13, **fields)
    found = verdict(Transformer(config, seed=1).eval().requires_grad_(False), 1, 1, sequences=4)
    for index, test in enumerate(found.tests):
        assert (test.passed is None) is (index in reasons) and reasons.get(index, "") in test.sentence
    assert f"of {4 - len(reasons)} tests passed" in found.headline and str(found)


def test_a_model_that_others_wrote_is_judged_by_what_it_does() -> None:
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=21, vocab_size=30)).eval()
    found = verdict(WrappedModel(gpt2.requires_grad_(False), n_ctx=21, d_vocab=30), 1, 0, sequences=4)
    assert [test.passed for test in found.tests] == [False, None, found.tests[2].passed, None]
    assert "the weights of a WrappedModel are laid out as its author wished" in found.tests[1].sentence


def test_errors(run: Run) -> None:
    with pytest.raises(ValueError, match="L2H0 does not exist"):
        verdict(run, 2, 0)
    with pytest.raises(ValueError, match="no snapshot of step 7; the nearest is 5"):
        verdict(run, 1, 0, 7)
    with pytest.raises(ValueError, match="step=5 needs a run"):
        verdict(run.model(), 1, 0, 5)
