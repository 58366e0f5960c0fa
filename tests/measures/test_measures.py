"""The registry says what the code does."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tracer.data.probes import repeated
from tracer.heads import probe_scores, stats
from tracer.measures import (
    HEAD_MEASURES,
    MEASURES,
    NO_MEANS,
    PROBES,
    UPDATE_BANDS,
    Setting,
    described,
    expected_range,
    update_band,
)  # fmt: skip

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
    **dict.fromkeys(("same_batch", "unmoved", "unigram_loss", "bigram_loss", "future_effect"), ("step",)),
    **dict.fromkeys(("copy_loss", "common_token", "silent_rows", "row_effect"), ("step",)),
    "shifted_loss": ("step", "target"),
    **dict.fromkeys(("duplicate_control", "induction_control", "fixed_distance", "fixed_distance_at"), HEAD),
    "loss_by_position": ("step", "pos"),
    "resid_rms": ("step", "depth"),
    "pattern": ("step", "prompt", "layer", "head", "query_pos", "key_pos"),
}


@pytest.mark.parametrize("name", MEASURES)
def test_a_trace_says_all_of_a_measure(name: str) -> None:
    """Read back under a name that no registry has: as on a machine that never had its code."""
    setting, measure = Setting.of(512, 64), MEASURES[name]
    found = described("somebodys", measure.dims, json.loads(json.dumps(measure.attributes(setting))))
    fields = ("label", "short", "formula", "source", "probe", "dims", "unit", "low", "high", "palette", "worse", "note")
    assert {field: getattr(found, field) for field in fields} == {field: getattr(measure, field) for field in fields}
    assert found.at_chance(setting) == measure.at_chance(setting)
    assert found.chance_text == (measure.chance_text if measure.at_chance(setting) is not None else "")


def test_what_a_stranger_writes_of_a_measure_is_cut_and_checked() -> None:
    said = {"long_name": "a\nb\u202e" + "x" * 200, "valid_min": 1, "valid_max": 1, "chance": "0.5", "palette": [],
            "worse": "very", "units": 3, "formula": None, "note": "y" * 9999}  # fmt: skip
    found = described("on_nothing", ("step", "layer", "head"), said)
    assert found.label == "a b " + "x" * 76 and found.short == "a b xxxx" and len(found.note) == 600
    assert (found.low, found.high, found.chance, found.palette, found.worse, found.unit) == (
        None, None, None, "sequential", "", "",
    )  # fmt: skip
    assert found.formula == found.source == "not written in the run" and found.probe == "unknown"
    bare = described("on_nothing", (), {})
    assert (bare.label, bare.short) == ("On nothing", "On nothi")
    for number in (float("nan"), float("inf"), 10**400):
        assert described("x", (), {"valid_min": number, "chance": number}).low is None


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


SHARES = {
    "entropy_normalised", "confidence", "previous_token", "current_token", "first_token", "duplicate_token",
    "duplicate_control", "induction", "induction_control", "fixed_distance", "pattern", "clip_factor", "same_batch",
    "unmoved", "common_token", "silent_rows",
}  # fmt: skip
UNITS = {
    **dict.fromkeys(("entropy", "train_loss", "val_loss", "loss_by_position", "icl_score"), "nats"),
    **dict.fromkeys(("repeat_loss", "first_copy_loss", "unigram_loss", "bigram_loss", "shifted_loss"), "nats"),
    **dict.fromkeys(("attended_distance", "fixed_distance_at", "tokens_seen"), "tokens"),
    "copy_loss": "nats",
    "step_ms": "ms",
    "tokens_per_second": "tokens/s",
}
PLAIN = {
    "head_grad_norm_clipped", "head_weight_norm", "tokens_seen", "step_ms", "tokens_per_second", "learning_rate",
}  # fmt: skip
"""Measures that nobody reads wrongly."""
LOSSES = {
    "train_loss",
    "val_loss",
    "loss_by_position",
    "repeat_loss",
    "first_copy_loss",
    "unigram_loss",
    "bigram_loss",
    "copy_loss",
    "shifted_loss",
}


@pytest.mark.parametrize("name", MEASURES)
def test_bounds_units_and_notes(name: str) -> None:
    """A share is between 0 and 1, a score or the logarithm of an odds has no bound, all else is at least 0."""
    measure = MEASURES[name]
    bounds = (0, 1) if name in SHARES else (None, None) if name in {"max_logit", "icl_score"} else (0, None)
    assert (measure.low, measure.high) == bounds
    assert measure.unit == UNITS.get(name, "")
    assert bool(measure.note) == (name not in PLAIN)
    assert (measure.chance is not None) == (name in {"icl_score", *LOSSES, *HEAD_MEASURES} - set(NO_MEANS))
    if name in LOSSES | {"icl_score"}:
        assert measure.at_chance(Setting(n_ctx=8, period=2, d_vocab=3)) == (0 if name == "icl_score" else math.log(3))


@pytest.mark.parametrize(
    ("d_vocab", "n_ctx", "expected"),
    [(1000, 64, 16), (1000, 49, 16), (1000, 48, 15), (1000, 9, 2), (1000, 3, 0), (49, 64, 16), (48, 64, 15), (9, 64, 2),
     (3, 64, 1), (1, 64, 1), (0, 64, 1)],
)  # fmt: skip
def test_the_period_fits_three_times_into_the_context_and_the_vocabulary(
    d_vocab: int, n_ctx: int, expected: int
) -> None:
    """Beside a start token; of a small vocabulary a block has one token at least."""
    assert Setting.of(d_vocab, n_ctx) == Setting(n_ctx, expected, d_vocab)


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
    assert [name for name in HEAD_MEASURES if MEASURES[name].chance is None] == ["fixed_distance_at", "max_logit"]


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
        (9.9e-3, "usual"),
        (1e-2, "fast"),
        (9.9e-2, "fast"),
        (0.1, "very fast"),
        (7.0, "very fast"),
    ],
)
def test_update_bands(ratio: float, expected: str) -> None:
    band = update_band(ratio)
    assert band is not None and band.name == expected


def test_update_bands_meet() -> None:
    assert [band.high for band in UPDATE_BANDS[:-1]] == [band.low for band in UPDATE_BANDS[1:]]
    assert (UPDATE_BANDS[0].low, UPDATE_BANDS[-1].high) == (0, math.inf)
    assert update_band(math.nan) is None


@pytest.mark.parametrize(
    ("causal", "name", "expected"),
    [
        (True, "first_token", (1 / 2 + 1 / 3) / 2),
        (False, "first_token", 1 / 3),
        (True, "entropy", (math.log(2) + math.log(3)) / 2),
        (False, "entropy", math.log(3)),
        (True, "attended_distance", (1 / 2 + 3 / 3) / 2),
        (False, "attended_distance", (2 / 3 + 3 / 3) / 2),  # row 1 sees tokens 1, 0 and 1 away, row 2 those 2, 1 and 0
        (True, "induction", (1 / 4 + 0) / 1),
        (False, "induction", 1 / 4),
    ],
)
def test_chance_of_three_tokens_by_hand(causal: bool, name: str, expected: float) -> None:
    """A block of one token: Probe R is the start token and three of it, of which row 3 alone has a copy before."""
    setting = Setting(n_ctx=3, period=1, d_vocab=0, causal=causal)
    assert MEASURES[name].at_chance(setting) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_ctx", "causal", "expected"), [(6, True, (1 / 4 + 1 / 5 + 1 / 6) / 3), (6, False, 1 / 6), (4, True, 1 / 4)]
)
def test_chance_of_a_fixed_distance_by_hand(n_ctx: int, causal: bool, expected: float) -> None:
    """Two back, from the fourth token on: there uniform weights are largest."""
    setting = Setting(n_ctx=n_ctx, period=1, d_vocab=0, causal=causal)
    assert MEASURES["fixed_distance"].at_chance(setting) == pytest.approx(expected)
    assert MEASURES["fixed_distance"].at_chance(Setting(n_ctx=3, period=1, d_vocab=0)) is None


def test_where_nothing_is_known_there_is_no_chance() -> None:
    assert MEASURES["induction"].at_chance(Setting(n_ctx=8, period=0, d_vocab=5)) is None
    assert MEASURES["val_loss"].at_chance(Setting(n_ctx=8, period=2, d_vocab=0)) is None
    assert MEASURES["val_loss"].at_chance(None) is None


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
