"""Findings of runs made sick on purpose, silence about healthy ones, and the arithmetic behind them by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tracer.diagnosis import FLOAT32_RANGE, _collapse, _scores, _stands_in, _updates, diagnose, pull, since
from tracer.presets import preset
from tracer.store import Run
from tracer.training import train

N = 40


@pytest.mark.parametrize(
    ("holds", "first"),
    [([0, 1, 1], 1), ([1, 1, 1], 0), ([1, 1, 0], 3), ([1, 0, 1], 2), ([0, 0, 0], 3)],
)
def test_since_is_the_first_row_of_the_last_stretch(holds: list[int], first: int) -> None:
    assert since(np.array(holds, bool)) == first


@pytest.mark.parametrize(
    ("grad", "weight", "expected"),
    [
        ([3, 4, 5, 0], [1, 1, 1, 1], 1.0),
        ([0, 0, 1, 1], [9, 9, 1, 1], 0.0),
        ([3, 4, 6, 8], [2, 2, 1, 1], 1.0),
        ([1, 0, 1, np.nan], [1, 1, 2, np.nan], 0.5),  # no W_O
        ([1, 1, 0, 0], [1, 1, 1, 1], np.nan),
    ],
)
def test_pull_is_a_ratio_of_two_norms(grad: list[float], weight: list[float], expected: float) -> None:
    np.testing.assert_allclose(pull(np.array(grad, float), np.array(weight, float)), expected)


def trace(**variables: np.ndarray) -> xr.Dataset:
    """Variables [step], [step param] or [step layer head] over N steps of one layer of two heads."""
    dims = {1: ("step",), 2: ("step", "param"), 3: ("step", "layer", "head")}
    arrays = {name: (dims[values.ndim], values.astype(float)) for name, values in variables.items()}
    return xr.Dataset(arrays, {"step": np.arange(N) * 10, "param": ["W_E", "W_U"]})


def heads(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.stack([one, other], -1)[:, None, :]


FALLING, FLAT = np.linspace(0.9, 0.1, N), np.full(N, 0.8)
WORSE = np.r_[np.linspace(6, 3, 20), np.linspace(3, 5, 16), np.full(4, 5.0)]


@pytest.mark.parametrize(
    ("loss", "entropy", "found"),
    [
        pytest.param(WORSE, FALLING, ((0, 0),), id="both"),
        pytest.param(np.linspace(6, 3, N), FALLING, (), id="a sharp head that learns is healthy"),
        pytest.param(WORSE, FLAT, (), id="a loss that breaks for another reason"),
        pytest.param(np.r_[np.linspace(6, 3, 36), [3, 3.5, 3, 3.5]], FALLING, (), id="noise"),
    ],
)  # fmt: skip
def test_collapse_is_low_entropy_and_trouble(loss: np.ndarray, entropy: np.ndarray, found: tuple) -> None:
    findings = list(_collapse(trace(val_loss=loss, entropy_normalised=heads(entropy, FLAT))))
    assert tuple(head for finding in findings for head in finding.heads) == found
    assert [finding.step for finding in findings] == [300] * len(
        findings
    )  # 0.9 - i 0.8 / 39 < 0.3 from i = 30 on, step 300


@pytest.mark.parametrize(("top", "step"), [(FLOAT32_RANGE - 1, None), (120.0, 290)])
def test_scores_beyond_the_softmax(top: float, step: int | None) -> None:
    found = list(_scores(trace(max_logit=heads(np.linspace(0, top, N), FLAT))))
    assert [f.step for f in found] == ([] if step is None else [step])
    assert all(f.heads == ((0, 0),) for f in found)


@pytest.mark.parametrize(
    ("ratios", "titles"),
    [
        ((1e-3, 1e-3), []),
        ((1e-3, 0.3), ["A step replaces too much of a weight"]),
        ((1e-5, 1e-6), ["Nothing moves"]),
        ((1e-5, 1e-3), []),
        ((np.nan, 1e-3), []),
    ],
)
def test_updates_out_of_band(ratios: tuple[float, float], titles: list[str]) -> None:
    assert [f.title for f in _updates(trace(update_ratio=np.tile(ratios, (N, 1))))] == titles


def trained(tmp_path: Path, name: str, steps: int, **model: object) -> Run:
    """A specimen, narrow and short, on random tokens so that no text has to be read."""
    config = preset(name).config
    size = {
        "d_model": 32,
        "n_ctx": 16,
        **{k: (64, 64) for k in ("mlp_hidden", "unembed_hidden") if getattr(config.model, k)},
    }
    config = replace(
        config, run=str(tmp_path / name), steps=steps, device="cpu",
        model=replace(config.model, **{**size, **model}),
        data=replace(config.data, corpus="repeated-random", vocab_size=64, period_min=4, period_max=7),
        optim=replace(config.optim, batch_size=16),
        record=replace(config.record, every=5, snapshot_every=50, val_rows=8),
    )  # fmt: skip
    return train(config, preset=name, quiet=True)


def test_one_hot_attention_is_found_where_it_began(tmp_path: Path) -> None:
    found = diagnose(trained(tmp_path, "single-head-unscaled", 60, d_model=128))
    assert [(f.kind, f.severity, f.step, f.heads) for f in found if f.severity == "bad"] == [
        ("one-hot", "bad", 0, ((0, 0),))
    ]
    assert "sqrt(d_head)" in found[0].remedy


def test_a_head_that_stands_in_for_the_residual(tmp_path: Path) -> None:
    """Without a residual connection a model that learns which token follows which has to look at the token itself."""
    run = trained(tmp_path, "single-head-scaled", 5)
    assert [f.kind for f in diagnose(run)] == []
    share = np.where(np.arange(N) < 25, 0.2, 0.95)
    (found,) = _stands_in(run, trace(current_token=heads(share, FLAT)))
    assert (found.kind, found.step, found.heads) == ("stands-in", 250, ((0, 0),))
    assert list(_stands_in(trained(tmp_path, "single-head", 5), trace(current_token=heads(share, FLAT)))) == []


def test_divergence_names_the_first_bad_tensor(tmp_path: Path) -> None:
    run = trained(tmp_path, "four-blocks", 60, d_model=256)
    assert run.status == "diverged"
    (worst, *_) = diagnose(run)
    assert (worst.kind, worst.severity, worst.step) == ("divergence", "bad", run.meta["divergence"]["step"])
    assert run.meta["divergence"]["non_finite"]["where"] in worst.evidence
    assert "put a norm in front of every sublayer" in worst.remedy


def test_a_healthy_run_gets_no_finding(tmp_path: Path) -> None:
    """Induction and previous-token heads are sharp: that is what they are for."""
    toy = preset("induction").config
    run = train(replace(toy, run=str(tmp_path / "toy"), device="cpu"), quiet=True)
    assert float(run.trace["induction"].isel(step=-1).max()) > 0.6
    assert diagnose(run) == []
