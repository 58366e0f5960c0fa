"""Findings of runs made sick on purpose, silence about healthy ones, and the arithmetic behind them by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from tracer.analysis.run_sweep import sweep_run
from tracer.diagnosis import RULES, diagnose, examine, searches
from tracer.diagnosis.attention_faults import BATCHES, FLOAT32_RANGE, collapse, pull, scores, stands_in, typical
from tracer.diagnosis.causes import held
from tracer.diagnosis.findings import since
from tracer.diagnosis.growth import residual, updates
from tracer.diagnosis.unused import reach
from tracer.presets import preset
from tracer.store import Run, open_run
from tracer.training.loop import train

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
        ([1, 1, np.inf, 1], [1, 1, 1, 1], np.nan),  # the last record before a divergence
    ],
)
def test_pull_is_a_ratio_of_two_norms(grad: list[float], weight: list[float], expected: float) -> None:
    np.testing.assert_allclose(pull(np.array(grad, float), np.array(weight, float)), expected)


def test_typical_is_a_median_of_the_last_records() -> None:
    rows = np.r_[np.zeros(BATCHES), [5.0] * 3, np.zeros(3)]
    found = typical(rows)
    assert np.isinf(found[: BATCHES - 1]).all() and (found[BATCHES - 1 :] == 0).all()  # three of nine do not decide
    assert np.isinf(typical(np.zeros(BATCHES - 1))).all()


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([[9, 9, 2, 3], [9, 9, 1, 6], [9, 9, 1, 0]], [1, 1, 0]),
        ([[1, 1, 4, np.nan], [1, 1, 2, np.nan], [1, 1, 1, np.nan]], [2, 1, 0.5]),  # no W_O
        ([[1, 1, 0, 1], [1, 1, 0, 1], [1, 1, 0, 1]], [np.nan] * 3),
        ([[1, 1, np.nan, 1], [1, 1, np.nan, 1]], [np.nan] * 2),  # a layer that broke
        ([[1, 1, np.inf, 1], [1, 1, np.inf, 1], [1, 1, 3, 1]], [np.nan, np.nan, 1]),  # its neighbours are not dead
    ],
)
def test_reach_is_what_a_head_can_write_beside_the_median_head(weights: list, expected: list) -> None:
    np.testing.assert_allclose(reach(np.array([weights], float)), [expected])


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
    findings = list(collapse({}, trace(val_loss=loss, entropy_normalised=heads(entropy, FLAT))))
    assert tuple(head for finding in findings for head in finding.heads) == found
    assert [finding.step for finding in findings] == [300] * len(
        findings
    )  # 0.9 - i 0.8 / 39 < 0.3 from i = 30 on, step 300


@pytest.mark.parametrize(("top", "step"), [(FLOAT32_RANGE - 1, None), (120.0, 290)])
def test_scores_beyond_the_softmax(top: float, step: int | None) -> None:
    found = list(scores({}, trace(max_logit=heads(np.linspace(0, top, N), FLAT))))
    assert [f.step for f in found] == ([] if step is None else [step])
    assert all(f.heads == ((0, 0),) for f in found)


def test_scores_of_one_hot_heads_are_told_as_such() -> None:
    """What the finding of one-hot attention says already is not said again."""
    above = heads(np.full(N, 120.0), np.full(N, 120.0))
    (found,) = scores({}, trace(max_logit=above, entropy_normalised=heads(np.full(N, 0.001), np.full(N, 0.5))))
    assert found.heads == ((0, 1),)


@pytest.mark.parametrize(
    ("start", "end", "norm", "severity", "step"),
    [
        (1.0, 99.0, "none", None, None),
        (1.0, 196.0, "none", "bad", 200),  # 1 + 195 i / 39 = 1 + 5 i > 100 from i = 20 on
        (1.0, 196.0, "rms", "watch", 200),
        (0.01, 99.0, "rms", None, None),  # a stream that began small has room to grow to 1
        (2.0, 197.0, "rms", None, None),
    ],
)
def test_a_stream_explodes_a_hundredfold(
    start: float, end: float, norm: str, severity: str | None, step: int | None
) -> None:
    rms = np.stack([np.full(N, start), np.linspace(start, end, N)], -1)
    dataset = xr.Dataset({"resid_rms": (("step", "depth"), rms)}, {"step": np.arange(N) * 10})
    found = list(residual({"config": {"model": {"norm": norm}}}, dataset))
    assert [(f.severity, f.step) for f in found] == ([] if severity is None else [(severity, step)])
    assert all("after block 0" in f.evidence and "196" in f.evidence for f in found)


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
    assert [f.title for f in updates({}, trace(update_ratio=np.tile(ratios, (N, 1))))] == titles


def trained(tmp_path: Path, name: str, steps: int, optim: dict[str, Any] | None = None, **model: Any) -> Run:
    """A specimen, narrow and short, on random tokens so that no text has to be read."""
    config = preset(name).config
    size: dict[str, Any] = {
        "d_model": 32,
        "n_ctx": 16,
        **{k: (64, 64) for k in ("mlp_hidden", "unembed_hidden") if getattr(config.model, k)},
    }
    config = replace(
        config, run=str(tmp_path / name), steps=steps, device="cpu",
        model=replace(config.model, **size | model),
        data=replace(config.data, corpus="repeated-random", vocab_size=64, period_min=4, period_max=7),
        optim=replace(config.optim, **dict[str, Any](batch_size=16) | (optim or {})),
        record=replace(config.record, every=5, snapshot_every=50, val_rows=8),
    )  # fmt: skip
    return train(config, preset=name, quiet=True)


def test_one_hot_attention_is_found_where_it_began(tmp_path: Path) -> None:
    """Steps so small that no rounding grows, and rows so few that two keys tie in the fewer batches."""
    still: dict[str, Any] = {"lr": 1e-6, "batch_size": 2}
    found = diagnose(trained(tmp_path, "single-head-unscaled", 60, still, d_model=128))
    assert [(f.kind, f.heads) for f in found if f.severity == "bad"] == [
        ("one-hot", ((0, 0),)), ("vanishing", ((0, 0),)),
    ]  # fmt: skip
    assert found[0].step == 0
    assert "sqrt(d_head)" in found[0].advice.candidates[0] and not found[0].advice.remedy


@pytest.fixture(scope="module")
def too_fast(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The healthy toy at 250 times its learning rate: norms hide that its stream explodes."""
    return toy(tmp_path_factory.mktemp("fast"), steps=60, lr=0.5)


def toy(folder: Path, steps: int, **optim: Any) -> Run:
    config = preset("induction").config
    config = replace(
        config, run=str(folder / "toy"), steps=steps, device="cpu",
        model=replace(config.model, d_model=32, n_ctx=24),
        data=replace(config.data, period_min=4, period_max=10),
        optim=replace(config.optim, batch_size=16, **dict[str, Any](clip=None) | optim),
        record=replace(config.record, every=5, snapshot_every=50, val_rows=8),
    )  # fmt: skip
    return train(config, quiet=True)


def test_gradients_that_vanish_behind_one_hot_rows(too_fast: Run) -> None:
    (found,) = [f for f in diagnose(too_fast) if f.kind == "vanishing"]
    assert found.severity == "bad" and found.heads
    last = too_fast.trace.isel(step=slice(-BATCHES, None))
    answers = pull(last["head_grad_norm"].values, last["head_weight_norm"].values)
    for layer, head in found.heads:
        assert np.median(answers[:, layer, head]) < 0.01
        assert float(last["entropy_normalised"][-1, layer, head]) < 0.02


def test_a_residual_stream_that_explodes_behind_its_norms(too_fast: Run) -> None:
    (found,) = [f for f in diagnose(too_fast) if f.kind == "residual"]
    rms = too_fast.trace["resid_rms"].values
    assert found.severity == "watch" and found.heads == ()  # nothing diverged: the norms hide it
    row = too_fast.trace["step"].values.tolist().index(found.step)
    limit = 100 * rms[0].max()
    assert rms[row:].max(axis=1).min() > limit >= rms[row - 1].max()


def test_weights_that_are_replaced(too_fast: Run) -> None:
    assert [f.title for f in diagnose(too_fast) if f.kind == "updates"] == ["A step replaces too much of a weight"]


def test_scores_that_explode_before_rows_are_one_hot(tmp_path: Path) -> None:
    """W_Q and W_K at thirty times the learning rate of the rest."""
    (found,) = diagnose(toy(tmp_path, steps=40, lr=3e-3, qk_lr_factor=30.0, warmup=0))
    assert (found.kind, found.severity) == ("scores", "watch") and len(found.heads) == 8


def test_weights_that_do_not_move(tmp_path: Path) -> None:
    assert [(f.kind, f.title) for f in diagnose(toy(tmp_path, steps=30, lr=1e-9))] == [
        ("unigram", "Learned nothing but how frequent tokens are"), ("updates", "Nothing moves"),
    ]  # fmt: skip


def test_entropy_that_collapses_takes_the_loss_with_it(tmp_path: Path) -> None:
    """A learning rate that rises too far, and no norm: what Zhai et al. describe, with an end that no rounding averts.

    Decay takes lr * weight_decay of every weight at each step. Above 2, from step 23 on (0.2 * 24 / 30 * 13 = 2.08), it
    throws them beyond zero, farther than they were: from step 30 on each grows 1.6-fold a step, until float32 ends.
    """
    config = preset("induction").config
    config = replace(
        config, run=str(tmp_path / "rising"), steps=120, device="cpu",
        model=replace(config.model, d_model=32, n_ctx=24, norm="none"),
        data=replace(config.data, period_min=4, period_max=10),
        optim=replace(config.optim, name="adamw", lr=0.2, weight_decay=13.0, warmup=30, batch_size=16, clip=None),
        record=replace(config.record, every=1, snapshot_every=50, val_rows=8),
    )  # fmt: skip
    run = train(config, quiet=True)
    found = {f.kind: f for f in diagnose(run)}
    entropy, loss = run.trace["entropy_normalised"].values, run.trace["val_loss"].values
    assert run.status == "diverged" and {"divergence", "collapse", "residual", "one-hot"} <= set(found)
    assert found["collapse"].severity == found["residual"].severity == found["one-hot"].severity == "bad"
    assert found["collapse"].heads and found["one-hot"].heads and found["collapse"].step > 23
    row = run.trace["step"].values.tolist().index(found["collapse"].step)
    for layer, head in found["collapse"].heads:
        assert np.nanmax(entropy[row:, layer, head]) < np.nanmax(entropy[:, layer, head]) / 3
    loss = loss[np.isfinite(loss)]
    assert loss[-3:].min() > loss[0] > loss.min()


@pytest.mark.parametrize(
    ("entropy", "job", "found"),
    [
        pytest.param(np.r_[np.full(20, 0.6), np.full(20, 0.01)], 0.1, 200, id="1.20 nats to 0.02"),
        pytest.param(np.r_[np.full(20, 0.6), np.full(20, 0.04)], 0.1, None, id="sharp"),
        pytest.param(np.full(N, 0.01), 0.1, None, id="it began so: that is another finding"),
        pytest.param(np.r_[np.full(20, 0.6), np.full(20, 0.01)], 0.95, None, id="previous-token heads"),
        pytest.param(np.r_[np.full(38, 0.6), np.full(2, 0.01)], 0.1, None, id="two records"),
    ],
)
def test_entropy_of_a_whole_model_collapses_whatever_the_loss(
    entropy: np.ndarray, job: float, found: int | None
) -> None:
    jobs = heads(np.full(N, job), np.full(N, job))
    both = trace(entropy_normalised=heads(entropy, entropy), previous_token=jobs, val_loss=np.linspace(6, 3, N))
    assert [one.step for one in collapse({}, both)] == ([] if found is None else [found])
    mixed = trace(entropy_normalised=heads(entropy, FLAT), previous_token=jobs, val_loss=np.linspace(6, 3, N))
    assert list(collapse({}, mixed)) == []  # one sharp head of two is healthy


LINES = [
    "the cat sat on the mat.",
    "the dog ran to the log.",
    "the bird sang to the sea.",
    "the fish looked at the hill.",
]


@pytest.fixture(scope="module")
def forbidden(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four heads of which one is held off while it trains, so that weight decay takes what nothing renews."""
    folder = tmp_path_factory.mktemp("forbidden")
    (folder / "text.txt").write_text("\n".join(LINES * 1000))
    config = preset("single-head-scaled").config
    config = replace(
        config, run=str(folder / "run"), steps=240, device="cpu", clamp=("L0H1 off",),
        model=replace(config.model, d_model=32, n_ctx=16, n_heads=4, mlp_hidden=(), unembed_hidden=(),
                      attn_out=True),
        data=replace(config.data, corpus=str(folder / "text.txt"), vocab_size=280),
        optim=replace(config.optim, name="adamw", lr=1e-2, weight_decay=2.5, warmup=0, batch_size=16, clip=1.0),
        record=replace(config.record, every=10, snapshot_every=80, val_rows=8),
    )  # fmt: skip
    return train(config, quiet=True)


def test_a_dead_head_writes_nothing(forbidden: Run) -> None:
    (found,) = [f for f in diagnose(forbidden) if f.kind == "dead"]
    assert found.heads == ((0, 1),) and found.step > 0
    model: Any = forbidden.model()
    attn = model.blocks[0].attn
    writes = [float((attn.W_V[head] @ attn.W_O[head]).norm()) for head in range(4)]
    assert writes[1] < 0.01 * sorted(writes)[2]


def test_idle_heads_need_a_sweep(forbidden: Run) -> None:
    assert not [f for f in diagnose(forbidden) if f.kind == "idle"]
    assert RULES["idle"].name in examine(forbidden).not_measured
    sweep_run(forbidden, ("resample",), (240,), 2)
    (found,) = [f for f in diagnose(forbidden) if f.kind == "idle"]
    assert found.step == 240 and (0, 1) in found.heads and len(found.heads) < 4
    assert RULES["idle"].name in examine(forbidden).looked_for


def test_a_head_that_stands_in_for_the_residual(tmp_path: Path) -> None:
    """Without a residual connection a model that learns which token follows which has to look at the token itself."""
    run = trained(tmp_path, "single-head-scaled", 5)
    assert [f.kind for f in diagnose(run)] == []
    share = np.where(np.arange(N) < 25, 0.2, 0.95)
    (found,) = stands_in(run.meta, trace(current_token=heads(share, FLAT)))
    assert (found.kind, found.step, found.heads) == ("stands-in", 250, ((0, 0),))
    assert list(stands_in(trained(tmp_path, "single-head", 5).meta, trace(current_token=heads(share, FLAT)))) == []


def test_divergence_names_the_first_bad_tensor(tmp_path: Path) -> None:
    run = trained(tmp_path, "four-blocks", 60, d_model=256)
    assert run.status == "diverged"
    (worst, *_) = diagnose(run)
    assert (worst.kind, worst.severity, worst.step) == ("divergence", "bad", run.meta["divergence"]["step"])
    assert run.meta["divergence"]["non_finite"]["where"] in worst.evidence
    assert any("model.norm" in cause for cause in worst.advice.candidates) or worst.advice.remedy


def test_a_healthy_run_gets_no_finding(trained_toy: Path) -> None:
    """Induction and previous-token heads are sharp: that is what they are for."""
    run = open_run(trained_toy)
    assert float(run.trace["entropy_normalised"].isel(step=-1).min()) < 0.25
    assert float(run.trace["induction"].isel(step=-1).max()) > 0.6
    assert diagnose(run) == []


def test_a_search_reads_no_more_than_its_rule_says(too_fast: Run) -> None:
    meta = {"config": {"model": {"residual": False}}, "d_vocab": 65, "classes": 4}
    for kind, rule in RULES.items():
        if rule.needs and set(rule.needs) <= set(too_fast.trace.data_vars):  # not what watched runs have alone
            list(searches(meta, too_fast.trace[list(rule.needs)])[kind])
    with pytest.raises(KeyError, match="val_loss"):
        list(searches(meta, too_fast.trace[["train_loss"]])["overfit"])


def test_every_rule_says_when_and_why() -> None:
    for rule in RULES.values():
        assert rule.text.startswith("Found when") and rule.text.endswith(".")
    run_free = [kind for kind, rule in RULES.items() if not rule.needs]
    assert run_free == ["divergence", "positions", "unigram", "idle"]


def test_a_clamp_that_no_head_could_hold_holds_none() -> None:
    """In a loop of one's own it ends the pass, and is in run.json all the same."""
    meta = {"layers": [{"n_heads": 2}, {"n_heads": 1}], "clamp": ["L0 off", "L1H7 off", "L9 off", "L1H0 off"]}
    assert held(meta) == {(0, 0), (0, 1), (1, 0)}
    assert held({"layers": [], "clamp": ["L0 off"]}) == set()
