"""The registry says what the code does."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tracer.data.probes import repeated
from tracer.heads import probe_scores, stats
from tracer.measures import HEAD_MEASURES, MEASURES, PROBES, UPDATE_BANDS, Setting, expected_range, update_band

HEAD = ("step", "layer", "head")
PARAM = ("step", "param")
MATRIX = ("step", "layer", "head", "matrix")
DIMS = {
    **dict.fromkeys(("entropy", "entropy_normalised", "previous_token", "current_token", "first_token"), HEAD),
    **dict.fromkeys(("confidence", "attended_distance", "duplicate_token", "induction", "max_logit"), HEAD),
    **dict.fromkeys(("grad_norm", "grad_norm_clipped", "weight_norm", "update_ratio"), PARAM),
    **dict.fromkeys(("head_grad_norm", "head_grad_norm_clipped", "head_weight_norm", "head_update_ratio"), MATRIX),
    **dict.fromkeys(("train_loss", "val_loss", "icl_score", "repeat_loss", "first_copy_loss"), ("step",)),
    **dict.fromkeys(("tokens_seen", "tokens_per_second", "step_ms", "learning_rate", "clip_factor"), ("step",)),
    "induction_control": HEAD,
    "loss_by_position": ("step", "pos"),
    "resid_rms": ("step", "depth"),
    "pattern": ("step", "prompt", "layer", "head", "query_pos", "key_pos"),
}


def test_every_variable_of_a_trace_is_explained() -> None:
    assert {name: measure.dims for name, measure in MEASURES.items()} == DIMS


@pytest.mark.parametrize("name", MEASURES)
def test_rows_are_complete(name: str) -> None:
    measure = MEASURES[name]
    assert measure.name == name
    assert measure.label and measure.short and measure.formula and measure.source
    assert measure.probe in PROBES
    assert measure.palette == ("diverging" if name == "icl_score" else "sequential")
    assert bool(measure.chance) == bool(measure.chance_text)
    assert measure.low is None or measure.high is None or measure.low < measure.high


def test_labels_tell_head_measures_apart() -> None:
    assert len({MEASURES[name].label for name in HEAD_MEASURES}) == len(HEAD_MEASURES)
    assert len({MEASURES[name].short for name in HEAD_MEASURES}) == len(HEAD_MEASURES)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("n_ctx", [8, 64])
def test_chance_is_what_uniform_attention_scores(n_ctx: int, causal: bool) -> None:
    probe = repeated(d_vocab=100, n_ctx=n_ctx, batch=2)
    blind = torch.zeros(2, n_ctx, 1, 4)
    n = probe.tokens.shape[1]
    text = stats(blind, blind, scale=1.0, causal=causal)
    repeat = stats(blind[:, :n], blind[:, :n], probe.tokens, scale=1.0, causal=causal)
    measured = probe_scores(text, repeat, repeat, probe.second_copy)
    setting = replace(Setting.of(d_vocab=100, n_ctx=n_ctx), causal=causal)
    for name in HEAD_MEASURES:
        chance = MEASURES[name].at_chance(setting)
        if chance is not None:
            assert measured[name].item() == pytest.approx(chance, rel=1e-5), name
    assert [name for name in HEAD_MEASURES if MEASURES[name].chance is None] == ["max_logit"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("induction", 0.0245), ("duplicate_token", 0.0245), ("entropy_normalised", 1), ("val_loss", math.log(1024))],
)
def test_chance_by_hand(name: str, expected: float) -> None:
    chance = MEASURES[name].chance
    assert chance is not None
    assert chance(Setting(n_ctx=64, period=16, d_vocab=1024)) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.0, "slow"),
        (9e-5, "slow"),
        (1e-4, "usual"),
        (1e-3, "usual"),
        (0.02, "fast"),
        (0.1, "very fast"),
        (7.0, "very fast"),
    ],
)
def test_update_bands(ratio: float, expected: str) -> None:
    band = update_band(ratio)
    assert band is not None and band.name == expected


def test_update_bands_meet() -> None:
    assert [band.high for band in UPDATE_BANDS[:-1]] == [band.low for band in UPDATE_BANDS[1:]]
    assert update_band(math.nan) is None


@pytest.mark.parametrize("module", ["tracer.measures", "tracer.measures.change_points"])
def test_read_without_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("optimiser", "expected"),
    [("sgd", (1e-4, 1e-2)), (None, (1e-4, 1e-2)), ("adamw", (1e-4, 1e-1)), ("muon", (1e-4, 1e-1))],
)
def test_the_range_of_an_update_ratio_is_that_of_its_optimiser(
    optimiser: str | None, expected: tuple[float, float]
) -> None:
    assert expected_range(optimiser) == expected
