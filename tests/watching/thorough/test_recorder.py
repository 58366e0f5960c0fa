"""Recording somebody's training loop: the training is the same to the bit, and the run is true.

What the first tier leaves.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import tracer
from tests.watching.loops import batches
from tracer.store import open_run


def test_a_name_that_is_taken_is_not_overwritten(here: Path, gpt: Callable[..., Any]) -> None:
    names = []
    for n in range(3):
        model = gpt()
        said = pytest.warns(RuntimeWarning, match=rf"records into checkpoints/mine-{n + 1}: checkpoints/mine holds")
        with said if n else contextlib.nullcontext():
            recorder = tracer.watch(model, run="mine")
        with recorder:
            model(torch.zeros(2, 5, dtype=torch.long))
            recorder.step(0.5)
        names.append(recorder.dir)
    assert names == [Path("checkpoints") / name for name in ("mine", "mine-2", "mine-3")]
    assert [open_run(name).status for name in ("mine", "mine-2", "mine-3")] == ["finished"] * 3


def test_the_last_state_is_kept_when_its_row_waits_for_a_step(here: Path) -> None:
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2, n_positions=16, bos_token_id=0)
    )
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1), tracer.watch(model, run="kept", every=1)
    for batch in batches(23):
        loss = model(batch[:, :16], labels=batch[:, :16]).loss
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    run = open_run("checkpoints/kept")
    assert run.steps[-1] == 23 and len(run.steps) < 24
    with torch.no_grad():
        again: Any = run.model(23)
        torch.testing.assert_close(again(batch[:, :16]), model.eval()(batch[:, :16]).logits, atol=1e-5, rtol=0)
