"""The Ablate page: choosing heads changes the numbers, and the numbers are `tracer.ablate`'s.

What the first tier leaves.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.loading import ablation
from tests.dashboard.test_ablate import Open
from tests.dashboard.words import changes, written
from tracer import ablate, data
from tracer.analysis.run_sweep import sweep_run
from tracer.store import Run
from tracer.training.loop import train


def test_one_row_of_everything_is_measured_as_far_as_it_goes(workplace: Path, small_run: Run, open_page: Open) -> None:
    directory = workplace / "checkpoints" / "alone"
    record = replace(small_run.config.record, repeat_rows=1, val_rows=1)
    try:
        run = train(replace(small_run.config, record=record, run=str(directory), steps=1), quiet=True)
        for mode in ablate.MODES:
            for off in ((), ((0, 0),)):
                app = open_page("ablate", run="alone", mode=mode, off=off, section="effect" if off else "heads")
                assert not app.exception, (mode, off)
        found = sweep_run(run)["effect"].sel(mode="resample")
        assert found.sel(probe="repeat").notnull().all() and found.sel(probe="text").isnull().all()
        assert ablation.swept(run) == len(run.steps) and ablation.repeats(run)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_where_no_tokens_can_repeat_text_is_measured(workplace: Path, small_run: Run, open_page: Open) -> None:
    """A Markov chain of three symbols: a token that repeats alone is foretold by nothing."""
    config, directory = small_run.config, workplace / "checkpoints" / "chains"
    small = replace(config, data=replace(config.data, corpus="markov"), run=str(directory), steps=1)
    try:
        run = train(small, quiet=True)
        tokens = data.build(run.config.data, run.config.model.n_ctx, run.config.seed).val(run.config.record.val_rows)
        model = run.model(run.steps[-1])
        cost = ablate.effect(model, tokens, [(1, 0)], "zero").over(slice(None))

        app = open_page("ablate", run="chains", off=((1, 0),), step=run.steps[-1])
        assert not app.exception and "tests of an induction head need tokens that repeat" in written(app)
        assert changes(app) == pytest.approx([cost.mean], abs=6e-4)

        found = sweep_run(run, ["zero"])
        assert found["probe"].values.tolist() == ["text"] and not ablation.repeats(run)
        swept = float(found["effect"].sel(step=run.steps[-1], mode="zero", probe="text", layer=1, head=0))
        assert swept == pytest.approx(cost.mean, abs=1e-5)
        for section in ("text", "heads", "when", "patch"):
            assert not open_page("ablate", run="chains", off=((1, 0),), section=section).exception, section
        assert not open_page("ablate", run="chains", off=((1, 0),), compare=small_run.name).exception
    finally:
        shutil.rmtree(directory, ignore_errors=True)
