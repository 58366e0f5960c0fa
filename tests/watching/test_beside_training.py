"""Beside the training: a second thread that trains is refused, a forked process (a DataLoader's worker) only ends."""

import multiprocessing
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tests.waiting import wait
from tracer.store import open_run

IDS = torch.zeros(2, 5, dtype=torch.long)
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12


def forked(work: Callable[[], object]) -> int | None:
    """The exit status of a fork that does this: 0, unless it raises."""
    process = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    process.start()
    try:
        wait(lambda: not process.is_alive(), 60)
        return process.exitcode
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("begun", [True, False])
def test_a_fork_records_nothing_and_says_so_where_it_trains(here: Path, gpt: Callable[..., Any], begun: bool) -> None:
    model = gpt()
    recorder = tracer.watch(model, run="r", every=1)

    def train(steps: int) -> None:
        for _ in range(steps):
            model(IDS)
            recorder.step(0.5)

    def child() -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train(20)  # more than the writer's thread, which is not here, may have waiting
            recorder.evaluated(0.5)
            recorder.close()
        assert len(said) == 1 and "forked from the one that records" in str(said[0].message)
        assert recorder.off is not None and recorder.steps == 2 * begun

    train(2 * begun)
    assert forked(lambda: model(IDS)) == 0
    assert forked(child) == 0
    train(1)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and run.status == "finished"
    assert run.trace["step"].values.tolist() == list(range(recorder.steps + 1))


def test_two_threads_that_train_at_once_are_refused(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    recorder = tracer.watch(model, run="r", every=1)

    def train() -> None:
        model(IDS)
        recorder.step(0.5)

    train()
    model(IDS)  # and before its step another one makes a step
    with pytest.warns(RuntimeWarning, match=r"two threads \(MainThread and another\) train the model at once") as said:
        thread = threading.Thread(target=train, name="another")
        thread.start()
        thread.join()
        recorder.step(0.5)
        recorder.close()
    run = open_run("r")
    assert len(said) == 1 and run.status == "stopped" and "two threads" in run.meta["recording_stopped"]
    assert run.trace["step"].values.tolist() == [0] and not model._forward_pre_hooks
