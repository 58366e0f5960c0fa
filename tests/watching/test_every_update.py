"""What a loop may give as the loss of a step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tests.tiers import quick
from tracer.store import open_run
from tracer.store.layout import is_locked
from tracer.watching.every_update import EveryUpdate
from tracer.watching.pace import Pace

GIVEN: dict[str, tuple[Any, float]] = {
    "number": (2, 2.0),
    "numpy scalar": (np.float32(0.5), 0.5),
    "list": ([0.5, 2.5], 1.5),
    "tuple": ((0.5, 2.5), 1.5),
    "a number and a tensor": ([0.5, torch.tensor(2.5)], 1.5),
    "array": (np.array([[0.5], [2.5]]), 1.5),
    "tensor": (torch.tensor([1, 2], dtype=torch.long), 1.5),
    "tensors": ([torch.tensor(0.5, dtype=torch.float64), torch.tensor([2.0, 3.0]).bfloat16()], 1.5),
    "tensors and numbers": ([torch.tensor(0.5, requires_grad=True), 2.5], 1.5),
}


@pytest.mark.parametrize("what", quick(GIVEN, ("array", "tensors", "a number and a tensor")))
def test_of_several_losses_the_mean_is_kept(here: Path, gpt: Callable[..., Any], what: str) -> None:
    given, mean = GIVEN[what]
    with tracer.watch(gpt(), run="r", every=1) as recorder:
        for _ in range(2):
            recorder.model(torch.zeros(2, 5, dtype=torch.long))
            recorder.step(given)
    run = open_run("r")
    assert recorder.off is None and run.updates is not None
    assert run.updates["train_loss"].values.tolist() == [mean, mean]
    assert run.trace["train_loss"].values[:2].tolist() == [mean, mean]


def test_what_is_no_loss_is_told_at_its_step(here: Path, gpt: Callable[..., Any]) -> None:
    with tracer.watch(gpt(), run="r", every=10) as recorder:
        for given in (0.5, 0.25):
            recorder.model(torch.zeros(2, 5, dtype=torch.long))
            recorder.step(given)
        with pytest.warns(RuntimeWarning, match="TypeError"):
            recorder.step([0.5, None])
    run = open_run("r")
    assert run.status == "stopped" and run.meta["recording_stopped"].startswith("TypeError")
    assert run.updates is not None and run.updates["train_loss"].values.tolist() == [0.5, 0.25]
    assert not is_locked(run.dir)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_losses_may_be_on_several_devices() -> None:
    every = EveryUpdate(Pace(0.01, None))
    here, there = torch.tensor(0.5), torch.tensor(2.5, device="cuda")
    for step, given in enumerate((here, there, [here, there], [1.5, there, here])):
        every.made(step, given)
    assert every.take()["train_loss"].tolist() == [0.5, 2.5, 1.5, 1.5]


def test_tokens_are_those_of_the_first_matrix_of_whole_numbers_in_training() -> None:
    every, ids = EveryUpdate(Pace(0.01, None)), torch.zeros(2, 3, dtype=torch.int64)
    given: list[tuple[Any, ...]] = [(None, torch.zeros(5, 7), ids, ids[:1]), (ids[0], "text"), (torch.zeros(2, 2),)]
    for step, args in enumerate(given):
        every.called(args, {"use_cache": True, "more": ids[:, :1]})
        with torch.no_grad():
            every.called(args, {})
        every.made(step, 1.0)
    every.called(given[0], {})
    every.called(given[0], {})
    every.made(3, 1.0)
    assert every.take()["tokens"].tolist() == [6, 2, 2, 12]
