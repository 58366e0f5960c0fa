"""What the Training page says of a loop of somebody else's that was too short for curves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest
from torch import nn

import tracer
from tests.dashboard.words import facts
from tracer.store import Run


def said(app: AppTest) -> list[str]:
    return [caption.value for caption in app.caption if "Measured at" in caption.value]


@pytest.mark.parametrize(("steps", "every"), [(7, None), (20, "`every=1`"), (60, "`every=3`")])
def test_a_short_loop_is_told_how_to_measure_more(
    steps: int, every: str | None, tmp_path: Path, patches: nn.Module, workplace: Path, monkeypatch: pytest.MonkeyPatch,
    open_page: Callable[..., AppTest],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with tracer.watch(patches, run="short", share=1e-9) as recorder:
        for _ in range(steps):
            recorder.step(patches(torch.randn(4, 9, 16)).square().mean())
    assert recorder.off is None
    found = said(open_page("training", run="short"))
    assert [every in text and "steps only" in text for text in found if every] == [True] * (every is not None)
    assert len(found) == (every is not None)


def test_runs_of_ours_are_not_told(open_page: Callable[..., AppTest]) -> None:
    assert said(open_page("training", run="tiny")) == []


def test_a_loss_says_which_step_it_is_of(elsewhere: Path, open_page: Callable[..., AppTest]) -> None:
    """After the last of 6 updates there was no further batch: the last loss is that of weights after 5."""
    app = open_page("training", run="gpt")
    run = Run(elsewhere / "checkpoints" / "gpt")
    assert np.isnan(run.trace["train_loss"].values[-1]) and run.updates is not None
    each = run.updates.sel(step=5)["train_loss"].item()
    assert each != run.trace["train_loss"].values[-2]
    assert facts(app)[0].startswith(f"Training loss {each:.3f} (step 5) · ")
