"""Loops as they are written: what comes before the training, and optimisers, losses and steps of other kinds.

What the first tier leaves.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tests.watching.loops import batches
from tests.watching.test_recorder_loops import Plain, train
from tracer.store import open_run


@pytest.mark.parametrize("settings", [{}, {"lr": None}])
def test_an_optimizer_may_have_no_learning_rate(
    here: Path, gpt: Callable[..., Any], settings: dict[str, Any]
) -> None:  # fmt: skip
    model = gpt()
    train(model, tracer.watch(model, run="r", every=1), Plain(model.parameters(), **settings))
    run = open_run("r")
    assert run.trace["learning_rate"].isnull().all() and np.isfinite(run.trace["train_loss"][:-1]).all()


def test_ids_that_no_token_has_are_shown_as_numbers(here: Path, gpt: Callable[..., Any]) -> None:
    """An embedding is filled up to a round number; Probe R is drawn from all of it."""
    model, letters = gpt(), dict(enumerate("abcdefghijklmnopq"))
    ids = torch.arange(20).expand(4, 20)
    recorder = tracer.watch(model, run="r", tokenizer=lambda ids: "".join(letters[i] for i in ids), every=1)
    recorder.step(model(ids, ids)[1])
    recorder.close()
    assert recorder.off is None
    strings = open_run("r").trace["prompt_tokens"].attrs["strings"][0]
    assert strings[:20] == [*"abcdefghijklmnopq", "17", "18", "19"]


def test_snapshots_of_all_jobs_fit_in_what_they_are_given(here: Path, build: Callable[..., Any]) -> None:
    model = build("gpt2")
    megabytes = sum(p.numel() for p in model.parameters()) * 4 / 1e6
    rows = torch.randint(2, 50, (4, 12), generator=torch.Generator().manual_seed(0))
    for first in (0, 4, 8):
        with tracer.watch(model, run="r", every=2, snapshot_mb=3.1 * megabytes, start_step=first) as recorder:
            for _ in range(4):
                recorder.step(model(input_ids=rows, labels=rows).loss)
        assert recorder.off is None
    run = open_run("r")
    assert run.trace["step"].values[-1] == 12 and len(run.steps) == 5 and run.steps[-3:] == [4, 8, 12]


def test_what_was_found_in_weights_of_a_lost_future_is_taken_back(here: Path, build: Callable[..., Any]) -> None:
    model = build("gpt2")
    rows = torch.randint(2, 50, (4, 12), generator=torch.Generator().manual_seed(0))
    for first in (0, 2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + first)
        with tracer.watch(model, run="r", every=1, start_step=first) as recorder:
            for _ in range(4 - first):
                loss = model(input_ids=rows, labels=rows).loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
        assert recorder.off is None
        run = open_run("r")
        swept = tracer.sweep_run(run, modes=["zero"], steps=[4])["effect"].values
        survey = tracer.survey(run, rows, step=4, tokens=48)["entropy"].values
    shutil.rmtree(run.dir / "effects.zarr")
    shutil.rmtree(run.dir / "surveys")
    np.testing.assert_array_equal(swept, tracer.sweep_run(run, modes=["zero"], steps=[4])["effect"])
    np.testing.assert_array_equal(survey, tracer.survey(run, rows, step=4, tokens=48)["entropy"])


def test_of_several_processes_the_next_record_is_told_in_advance(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process stands for two, which both say the same."""
    model: Any = gpt(dropout=0.0)
    recorder = tracer.watch(model, run="r", every=4)
    first, *more = batches(9)
    recorder.step(model(first[:, :-1], first[:, 1:])[1])
    recorder.ranks.world, told = 2, []
    with monkeypatch.context() as patched:
        patched.setattr(recorder.ranks, "all", lambda mine: [mine, mine])
        for batch in more:
            recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
            told.append(recorder._gathering.next)
    recorder.ranks.world = 1
    recorder.close()
    assert recorder.off is None and told == [2, 4, 4, 8, 8, 8, 8, 12]
