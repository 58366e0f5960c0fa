"""Loops as they are written: what comes before the training, and optimisers, losses and steps of other kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tracer
from tests.watching.loops import batches
from tracer.store import open_run
from tracer.watching import every_update


def train(model: nn.Module, recorder: Any, optimizer: Any, n: int = 3, told: Any = lambda loss: loss) -> None:
    for batch in batches(n):
        loss: Any = model(batch[:, :-1], batch[:, 1:])[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(told(loss))
    recorder.close()
    assert recorder.off is None


def test_a_sample_before_the_training_is_no_batch_of_it(here: Path, build: Callable[..., Any]) -> None:
    """Its cache of keys goes on, so that every record would be about a single token."""
    model = build("gpt2").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = tracer.watch(model, run="r", every=1)
    model.eval().generate(torch.arange(2, 9)[None], max_new_tokens=3, do_sample=False, pad_token_id=0)
    recorder.evaluated(2.5)
    rows = torch.randint(2, 50, (4, 12), generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        loss = model.train()(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    assert recorder.off is None
    trace = open_run("r").trace
    assert trace["prompt_tokens"].values[0, :12].tolist() == rows[0].tolist()
    assert trace["step"].values.tolist() == [0, 1, 2] and np.isfinite(trace["induction"]).all()
    np.testing.assert_array_equal(trace["val_loss"], [2.5, np.nan, np.nan])


def test_a_loop_without_gradients_is_recorded_from_its_first_step_on(here: Path, gpt: Callable[..., Any]) -> None:
    """As evolution strategies train, or as a model is watched that something else trains."""
    model = gpt()
    recorder = tracer.watch(model, run="r", every=1)
    recorder.evaluated(2.5)
    with torch.no_grad():
        for batch in batches(3):
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            for p in model.parameters():
                p += 0.01 * torch.randn_like(p)
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and run.trace["step"].values.tolist() == [1, 2, 3]
    assert run.trace["val_loss"].isnull().all()
    assert run.updates is not None and run.updates["step"].values.tolist() == [0, 1, 2]


class Plain(torch.optim.Optimizer):
    """It has no learning rate; or, as Adafactor, None."""

    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            p -= 0.01 * p.grad


def test_of_a_loss_for_each_sequence_the_mean_is_kept(here: Path, gpt: Callable[..., Any]) -> None:
    model, told = gpt(dropout=0.0), list[Tensor]()

    def each(loss: Tensor) -> Tensor:
        told.append(loss.detach() * torch.arange(4))
        return told[-1]

    train(model, tracer.watch(model, run="r", every=1), torch.optim.SGD(model.parameters(), lr=0.1), told=each)
    np.testing.assert_allclose(open_run("r").trace["train_loss"][:-1], [float(x.mean()) for x in told], rtol=1e-6)


def test_kinds_of_tokens_are_no_tokens(here: Path, gpt: Callable[..., Any]) -> None:
    """A model that sorts 20 tokens into 2 kinds gives logits of every position, but none of the next token."""
    model = gpt()
    model.lm_head = nn.Linear(24, 2)
    ids = torch.arange(20).expand(4, 20)
    recorder = tracer.watch(model, run="r", every=1)
    for _ in range(2):
        recorder.step(F.cross_entropy(model(ids)[0].flatten(0, 1), (ids % 2).flatten()))
    recorder.close()
    trace = open_run("r").trace
    assert recorder.off is None and np.isnan(trace["repeat_loss"]).all() and np.isfinite(trace["entropy"]).all()


def test_steps_that_are_not_counted_one_by_one(here: Path, gpt: Callable[..., Any]) -> None:
    """`at` passes by the multiples of `every`: the first step after one of them is recorded."""
    model = gpt()
    recorder = tracer.watch(model, run="r", every=10)
    ids = torch.zeros(2, 5, dtype=torch.long)
    for at in range(3, 36, 2):
        model(ids)
        recorder.step(0.5, at=at)
    recorder.close()
    assert open_run("r").trace["step"].values.tolist() == [0, 3, 5, 9, 11, 21, 31, 35]


def test_a_warning_names_the_line_of_the_loop(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    recorder = tracer.watch(model, run="r", every=1, on_record=lambda *_: 1 / 0)
    model(torch.zeros(2, 5, dtype=torch.long))
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError") as said:
        recorder.step(0.5)
    assert Path(said[0].filename).is_relative_to(Path(__file__).parents[1])  # or of what checks these tests' shapes


def test_updates_are_handed_over_when_many_wait(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a record all go with it; between records they wait, so that a device is asked once for many."""
    monkeypatch.setattr(every_update, "SECONDS", float("inf"))
    monkeypatch.setattr(every_update, "MOST_WAITING", 3)
    model: Any = gpt(dropout=0.0)
    recorder, waiting = tracer.watch(model, run="r", every=100), []
    for batch in batches(9):
        recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
        waiting.append(len(recorder._every))
    recorder.close()
    assert waiting == [0, 0, 0, 1, 0, 1, 2, 0, 0]  # records of steps 0, 1, 2, 4, 8 are complete a step later
    run = open_run("r")
    assert run.updates is not None and run.updates["step"].values.tolist() == [*range(9)]


def test_an_evaluation_between_records_makes_one(here: Path, gpt: Callable[..., Any]) -> None:
    model: Any = gpt(dropout=0.0)
    recorder = tracer.watch(model, run="r", every=100)
    for i, batch in enumerate(batches(8)):
        recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
        if i == 5:
            recorder.evaluated(1.5)
    recorder.close()
    found = open_run("r").trace["val_loss"].to_series().dropna()
    assert found.to_dict() == {6: 1.5}
