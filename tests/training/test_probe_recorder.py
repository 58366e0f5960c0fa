"""The size of the residual stream in the trace, and a run of before it was recorded that goes on."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr

from tracer import data
from tracer.data import probes
from tracer.presets import preset
from tracer.store import Run
from tracer.training.loop import resume, train
from tracer.training.probe_recorder import record_steps, snapshot_steps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    toy = preset("induction").config
    config = replace(
        toy, run=str(tmp_path_factory.mktemp("runs") / "toy"), steps=8, device="cpu",
        model=replace(toy.model, d_model=32, n_ctx=24), data=replace(toy.data, period_min=4, period_max=10),
        optim=replace(toy.optim, batch_size=8), 
        record=replace(toy.record, every=4, snapshot_every=4, val_rows=4, repeat_rows=20, pattern_ctx=9),
    )  # fmt: skip
    return train(config, quiet=True)


def test_it_is_the_median_token_of_the_stream(run: Run) -> None:
    """Another way to it: the activations that transformer_lens caches, in float64."""
    config = run.config
    rows = data.build(config.data, config.model.n_ctx, config.seed).val(4)
    model: Any = run.model(4)
    _, cache = model.run_with_cache(rows[:, :-1])
    names = ["blocks.0.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_resid_post"]
    sizes = [np.sqrt((cache[name].double().numpy() ** 2).mean(-1)).ravel() for name in names]
    expected = [np.sort(size)[(len(size) - 1) // 2] for size in sizes]  # torch takes the lower of two middle values
    np.testing.assert_allclose(run.trace["resid_rms"].sel(step=4), expected, rtol=1e-5)
    assert run.trace["resid_rms"].dims == ("step", "depth")


def test_a_run_that_was_begun_without_it_goes_on_with_it(run: Run, tmp_path: Path) -> None:
    old = Path(shutil.copytree(run.dir, tmp_path / "old"))
    shutil.rmtree(old / "trace.zarr" / "resid_rms")
    with warnings.catch_warnings(action="ignore"):  # zarr warns of other implementations
        zarr.consolidate_metadata(str(old / "trace.zarr"))
    assert "resid_rms" not in Run(old).trace
    longer = resume(old, 12, quiet=True).trace["resid_rms"]
    assert longer["step"].values.tolist() == [0, 1, 2, 4, 8, 12]
    assert np.isnan(longer.sel(step=slice(0, 4))).all() and np.isfinite(longer.sel(step=12)).all()


def test_standard_errors_are_those_of_the_rows(run: Run) -> None:
    """Held-out loss by row, from the model itself."""
    config = run.config
    rows = data.build(config.data, config.model.n_ctx, config.seed).val(4)
    logits = torch.log_softmax(run.model(8)(rows[:, :-1]).double(), -1)
    by_row = -logits.gather(2, rows[:, 1:, None])[..., 0].mean(1).detach().numpy()
    last = run.trace.isel(step=-1)
    assert float(last["val_loss_se"]) == pytest.approx(by_row.std(ddof=1) / 2, rel=1e-4)
    for name in ("induction", "entropy", "repeat_loss", "first_copy_loss", "icl_score"):
        assert np.isfinite(last[f"{name}_se"]).all() and (last[f"{name}_se"] >= 0).all()
        assert last[f"{name}_se"].dims == last[name].dims
    sequences = {"val_loss": 4, "entropy": 4, "induction": 20, "repeat_loss": 20, "icl_score": 40}
    for name, n in (sequences | {"induction_control": 16, "duplicate_control": 16, "first_copy_loss": 16}).items():
        said = run.trace[f"{name}_se"].attrs
        assert said["sequences"] == n and not {"chance", "valid_min", "valid_max", "note"} & said.keys(), name


def test_losses_on_repeats_are_those_of_a_whole_pass(run: Run) -> None:
    """In float64, every position unembedded; new tokens of the first 16 rows, copies of all."""
    c = run.config
    repeat = probes.repeated(run.meta["d_vocab"], c.model.n_ctx, batch=c.record.repeat_rows)
    nats = -torch.log_softmax(run.model(8)(repeat.tokens[:, :-1]).double(), -1)
    loss, period, last = (
        nats.gather(2, repeat.tokens[:, 1:, None])[..., 0].detach(),
        repeat.period,
        run.trace.isel(step=-1),
    )
    assert float(last["repeat_loss"]) == pytest.approx(float(loss[:, 2 * period + 1 : 3 * period].mean()), rel=1e-5)
    assert float(last["first_copy_loss"]) == pytest.approx(float(loss[:16, 1 : 2 * period].mean()), rel=1e-5)


@pytest.mark.parametrize(
    ("mb", "snapshots"),
    [
        (12.0, [*range(0, 1000, 100), 1000]),  # 12 of 1 MB fit: one in a hundred steps, and one to spare
        (11.9, [0, 200, 400, 600, 800, 1000]),
        (3.0, [0, 800, 1000]),
        (0.1, [0, 1000]),  # the first and the last whatever the budget
    ],
)
def test_snapshots_fit_their_budget(mb: float, snapshots: list[int]) -> None:
    base = preset("induction").config
    config = replace(base, steps=1000, record=replace(base.record, every=300, snapshot_every=100, snapshot_mb=mb))
    assert snapshot_steps(config, 10**6) == snapshots
    early = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert record_steps(config, snapshots) == sorted({*early, 0, 300, 600, 900, *snapshots})


def test_the_beginnings_of_patterns_are_kept(run: Run) -> None:
    """Of the first rows of both probes, those of the model itself."""
    config, trace = run.config, run.trace
    text = data.build(config.data, config.model.n_ctx, config.seed).val(4)
    repeat = probes.repeated(run.meta["d_vocab"], config.model.n_ctx, batch=config.record.repeat_rows).tokens
    model: Any = run.model(4)
    for kind, rows, count in (
        ("text", text, config.record.text_prompts), ("repeat", repeat, config.record.repeat_prompts),
    ):  # fmt: skip
        names = [f"{kind} {i}" for i in range(count)]
        assert [name for name in trace["prompt"].values if str(name).startswith(kind)] == names
        np.testing.assert_array_equal(trace["prompt_tokens"].sel(prompt=names), rows[:count, :9])
        _, cache = model.run_with_cache(rows[:count, : config.model.n_ctx])
        for layer in range(2):
            kept = trace["pattern"].sel(step=4, prompt=names, layer=layer)
            np.testing.assert_allclose(kept, cache["pattern", layer][..., :9, :9], atol=1e-3)


def test_half_of_the_context_is_the_prompt_of_samples(run: Run) -> None:
    """12 tokens, the start token among them."""
    config = run.config
    words = data.build(config.data, config.model.n_ctx, config.seed).prompt.split()
    assert len(words) == 12 and {one["prompt"] for one in run.samples()} == {" ".join(words[:11])}


def test_the_context_score_is_recorded_less_often(run: Run) -> None:
    assert run.trace["step"].values[np.isfinite(run.trace["icl_score"])].tolist() == [0, 8]
