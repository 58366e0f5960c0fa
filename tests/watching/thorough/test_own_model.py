"""Trainings of a model of somebody's own, to their ends: repeated, replaced, stopped, broken, on data of one's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tracer
from tests.own_data import Addition, named_here_alone  # noqa: F401 (a fixture)
from tests.own_gpt import LAYOUT
from tests.training.test_own_corpus import small
from tests.watching.test_own_model import HERE, Small, doubled, run, train, updates_of  # noqa: F401 (a fixture)
from tracer.data import build as build_data
from tracer.data.probes import per_token_loss
from tracer.huggingface import building
from tracer.huggingface.architectures import Layout
from tracer.store import Run
from tracer.training import loop
from tracer.training.job import dropout_seed


def test_the_same_training_is_the_same_to_the_bit(run: Run, tmp_path: Path) -> None:
    again = train(tmp_path / "again", layout=Layout(**LAYOUT), loss=doubled)
    mine, theirs = (one.model(8, build=Small).model.state_dict() for one in (run, again))  # pyrefly: ignore[missing-attribute]
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_nothing_is_replaced_unless_it_is_said(run: Run, tmp_path: Path) -> None:
    first = train(tmp_path / "r", steps=2)
    with pytest.raises(ValueError, match="already holds a run or other files.*--overwrite"):
        train(tmp_path / "r", steps=3)
    assert train(tmp_path / "r", steps=3, overwrite=True).meta["step"] == 3 and first.dir.exists()


def test_who_asks_for_a_stop_gets_one(tmp_path: Path) -> None:
    def stop(model: Any, step: int) -> dict[str, float]:
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"x": step}

    run = train(tmp_path / "r", scalars=stop)
    assert run.status == "stopped" and run.meta["step"] == 4


@pytest.mark.usefixtures("named_here_alone")
def test_on_data_of_ones_own_the_targets_that_count_are_counted(tmp_path: Path) -> None:
    config = small(tmp_path / "r", steps=2)
    run = tracer.train(config, quiet=True, build=Small, corpus=Addition)
    data = build_data(run_config := loop.on_corpus(config, Addition).data, 4, config.seed)
    assert run_config.is_own and run.meta["references"]["uniform"] == Addition.references["uniform"]
    rows, model = data.val(8), run.model(2, build=Small)
    losses = per_token_loss(model(rows[:, :-1]), rows)[:, 3]
    assert float(run.trace["val_loss"][-1]) == pytest.approx(losses.mean().item(), rel=1e-5)
    batch = data.train(0, 8)
    torch.manual_seed(dropout_seed(config.seed, 0, 0))
    at_first: Any = run.model(0, build=Small)
    first = per_token_loss(at_first.model.train()(batch[:, :-1]).logits, batch)[:, 3]
    assert float(updates_of(run)["train_loss"][0]) == pytest.approx(first.mean().item(), rel=1e-5)


class Leaks(Small):
    """Every position sees all."""

    def forward(self, ids: Tensor) -> Any:
        logits = super().forward(ids).logits
        return logits + logits.mean(1, keepdim=True)


def test_it_is_diagnosed_as_a_model_of_next_tokens(tmp_path: Path) -> None:
    """Before anything is learned too: what the losses are about is known."""
    found = tracer.diagnose(train(tmp_path / "r", Leaks))
    assert "leak" in [one.kind for one in found]


class Breaks(Small):
    """At its fifth batch."""

    batches = 0

    def forward(self, ids: Tensor) -> Any:
        self.batches += self.training
        return super().forward(ids).logits * (float("nan") if self.batches == 5 else 1)


def test_a_loss_that_is_not_finite_ends_it(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=r"stopped recording r, and the training, .* not finite at step 4, first"):
        run = train(tmp_path / "r", Breaks)
    assert run.status == "diverged" and run.meta["divergence"]["step"] == 4


@pytest.mark.parametrize("wrong", [{"track": "nosuch"}, {"layout": "nosuch.yaml"}])
def test_a_run_that_was_to_be_replaced_stands_where_recording_is_refused(wrong: Any, tmp_path: Path) -> None:
    directory = tmp_path / "there"
    directory.mkdir()
    run = train(directory, f"{HERE}Small")
    before = run.meta
    with pytest.raises(ValueError, match="nosuch"):
        train(directory, f"{HERE}Small", overwrite=True, **wrong)
    assert Run(directory).meta == before


def test_an_empty_folder_of_that_name_is_where_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert train(Path("here"), f"{HERE}Small").dir.resolve() == tmp_path / "here"
    assert not (tmp_path / "checkpoints").exists()


def test_a_survey_says_that_it_reads_what_the_run_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(tmp_path / "kept")
    monkeypatch.setenv(building.SETTING, run.meta["build"])
    assert tracer.survey(run, tokens=64).attrs["corpus"] == "kept text"
