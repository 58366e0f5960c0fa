"""Calls in which there is nothing to see (no tokens, a dry run) are the model's own, and a recording passes them by."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

import tracer
from tracer.hooks.refusals import CannotWatch
from tracer.store import open_run

IDS = torch.arange(10).view(2, 5)
EMPTY = {"no tokens": IDS[:, :0], "no sequences": IDS[:0]}


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("what", EMPTY)
def test_a_call_without_tokens_is_passed_by(here: Path, gpt: Callable[..., Any], what: str, flash: bool) -> None:
    model = gpt(flash=flash, dropout=0.0)
    expected = model(EMPTY[what])[0].shape
    with torch.no_grad(), tracer.watch(model) as watcher:
        assert model(EMPTY[what])[0].shape == expected
    with pytest.raises(CannotWatch, match="no values to look at: its input was empty"):
        watcher.read()
    recorder = tracer.watch(model, run="r", every=1, max_logits="every")
    for ids in (EMPTY[what], IDS, EMPTY[what]):
        assert model(ids)[0].shape[1] == ids.shape[1]
        recorder.step(0.5)
    recorder.close()
    assert recorder.off is None and recorder.steps == 3
    assert open_run("r").trace["step"].values.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_a_dry_run_is_passed_by(here: Path, build: Callable[..., Any], kind: str) -> None:
    model = build("llama")
    recorder = tracer.watch(model, run="r", every=1, max_logits="every")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    ids = IDS.to("meta") if kind == "meta" else mode.from_tensor(IDS)
    if kind == "meta":
        model.to("meta")
    with nullcontext() if kind == "meta" else mode:
        loss = model(ids, labels=ids).loss
        recorder.step(loss)
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(ids)
    with pytest.raises(CannotWatch, match="dry"):
        watcher.read()
    recorder.close()
    assert recorder.off is None and not Path("checkpoints/r").exists()
