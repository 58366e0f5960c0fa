"""A user's measures and probes in somebody's own loop: the same numbers as of the patterns, and never in the way.

What the first tier leaves.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tests.watching.test_own_measures_watched import OWN, TOKENS, on_even, record
from tracer.heads import own_measures


def test_one_that_the_loop_does_not_pay_for_is_taken_at_fewer_records(
    gpt: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_measures, "FREE_SECONDS", 0.0)
    monkeypatch.setattr(own_measures, "SHARE", 0.0)
    with pytest.warns(RuntimeWarning, match="the measure on_even .* is taken at fewer records: it took"):
        record(gpt(True, dropout=0.0), "r", measures=[on_even])
    trace = tracer.open_run("r").trace
    there = np.isfinite(trace["on_even"].values)
    assert there[0].all() and not there.all() and np.isfinite(trace["entropy"].values).all()


def test_a_probe_that_the_model_does_not_run_on_is_said_and_left_out(gpt: Any, here: Path) -> None:
    long = torch.zeros(1, 40, dtype=torch.long)
    with pytest.warns(RuntimeWarning, match="nothing is recorded on the probe long: the model cannot be run on it"):
        record(gpt(), "r", probes={"long": tracer.Probe(long, {"x": [(3, 1)]})}, measures=on_even)
    trace = tracer.open_run("r").trace
    assert trace.long_x.isnull().all() and trace.on_even.notnull().all()


def test_a_job_that_goes_on_is_given_the_same_probe(gpt: Any, here: Path) -> None:
    record(gpt(), "r", **OWN)
    other: Any = {**OWN, "probes": {"mine": tracer.Probe(TOKENS.flip(0), OWN["probes"]["mine"].targets)}}
    with pytest.warns(RuntimeWarning, match="was begun with another probe mine: give"):
        record(gpt(), "r", start_step=4, **other)
    before = tracer.open_run("r").trace.mine_two_back
    record(gpt(), "r", start_step=4)
    run = tracer.open_run("r")
    assert run.meta["probes"] == {"mine": OWN["probes"]["mine"].digest} and len(run.meta["measures"]) == 3
    np.testing.assert_array_equal(run.trace.mine_two_back.sel(step=slice(0, 3)), before.sel(step=slice(0, 3)))
