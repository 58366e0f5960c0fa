"""A training without heads, and a tracker: none is installed for the first tier."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tracer
from tests.watching.headless import MixerBlock, language, next_token_loss, rows, train
from tests.watching.test_without_heads import train as watched
from tracer.store import open_run


def test_a_tracker_hears_of_it(here: Path) -> None:
    with pytest.warns(RuntimeWarning, match="records r without heads") as said:
        train(language(), rows(3), "r", every=1, track="tensorboard")
    assert len(said) == 1 and [*(here / "checkpoints" / "r" / "tensorboard").iterdir()]


def test_a_resumed_job_goes_on_with_it(here: Path) -> None:
    """What is recorded twice is that of the second job, and what nobody stopped is the same."""
    whole, batches = language(), [*rows(8)]
    expected = watched(whole, iter(batches), every=2)
    open_run("r").dir.rename("whole")
    first = language()
    watched(first, iter(batches), every=2)
    again = language()
    optimizer = torch.optim.AdamW(again.parameters(), lr=1e-2)
    torch.manual_seed(1)
    for tokens in batches[:4]:
        optimizer.zero_grad()
        next_token_loss(again, tokens).backward()
        optimizer.step()
    recorder = tracer.watch(again, run="r", every=2, start_step=4)
    with pytest.warns(RuntimeWarning, match="records r without heads"):
        for tokens in batches[4:]:
            loss = next_token_loss(again, tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    recorder.close()
    run = open_run("r")
    assert recorder.off is None and run.meta["resumed"] == [4] and run.about.why_not("heads")
    assert run.trace["step"].values.tolist() == open_run("whole").trace["step"].values.tolist()
    losses = [expected[int(step)]["train_loss"] for step in run.trace["step"][:-1]]
    np.testing.assert_array_equal(run.trace["train_loss"][:-1], np.array(losses, np.float32))
    other = language(block=MixerBlock)
    recorder = tracer.watch(other, run="r", start_step=8)
    with pytest.warns(RuntimeWarning, match="recorded from another model: its weights differ"):
        other(batches[0])
    recorder.close()
