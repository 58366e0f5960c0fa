"""A stretch of somebody's loop, made again by the same script: every step of it recorded, and compared to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tracer
from tests.trainings import tiny
from tests.watching.conftest import FAMILIES, GPT
from tests.watching.loops import batches
from tracer.store import Run, open_run
from tracer.store.check import check
from tracer.training.loop import train
from tracer.watching.pace import NEVER, Pace
from tracer.watching.rerun import said

UPDATES, FIRST, LAST = 40, 17, 24


def script(run: str, folder: Path, seed: int = 0, of: Any = None, **options: Any) -> Any:
    """As somebody writes it: a model of transformers, or of their own."""
    torch.manual_seed(seed)
    kind, config = FAMILIES["gpt2"]()
    model: Any = kind(config) if of is None else of()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with tracer.watch(model, run=folder / run, **options) as recorder:
        for batch in batches(UPDATES):
            optimizer.zero_grad()
            found = model(batch[:, :-1])
            logits = found[0] if of is not None else found.logits
            loss = F.cross_entropy(logits.transpose(1, 2), batch[:, 1:])
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    return recorder


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("loops")
    script("parent", folder, every=10)
    return open_run(folder / "parent")


@pytest.mark.filterwarnings("ignore:manyeyes, again")
def test_every_step_of_the_stretch_is_recorded_and_equal_to_the_bit(parent: Run) -> None:
    recorder = script("again", parent.dir.parent, replay=parent.dir, steps=(FIRST, LAST))
    run = open_run(parent.dir.parent / "again")
    assert run.status == "finished" and run.trace.step.values.tolist() == [0, *range(FIRST, LAST + 1)]
    facts = {
        "run": "parent", "created": parent.meta["created"], "first": FIRST, "last": LAST, "every": 1, "diverged": None,
        "compared": [20], "parts": None, "apart": 0.0, "losses": LAST + 1, "losses_part": None,
    }  # fmt: skip
    assert run.meta["replay"] == facts == recorder.replayed
    assert said(facts) == f"equal to parent to the bit: weights at step 20 and {LAST + 1} losses"
    for name in ("entropy", "previous_token", "train_loss", "grad_norm", "update_ratio", "pattern"):
        mine, theirs = (one.trace[name].sel(step=20).values for one in (run, parent))
        np.testing.assert_array_equal(mine, theirs, name)
    assert np.isfinite(run.trace["update_ratio"].sel(step=LAST).values).any()  # the last one is complete
    assert np.isfinite(run.trace["max_logit"].values).all() and not check(run.dir).damaged


def test_nothing_is_due_outside() -> None:
    pace = Pace(0.01, None, (540, 545))
    assert [step for step in range(600) if pace.due(step, 0 if step <= 540 else step - 1)] == list(range(540, 546))
    assert [pace.next_after(step, step) for step in (0, 539, 540, 544, 545, 600)] == [540, 540, 541, 545, NEVER, NEVER]
    apart = Pace(0.01, 4, (540, 549))
    found, last = [], 0
    for step in range(600):
        if apart.due(step, last):
            found, last = [*found, step], step
    assert found == [540, 544, 548, 549]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": (1, 2)}, "are those of a run that is made again: name it, replay="),
        ({"replay": "parent"}, "steps=None is no stretch of parent, which made 40 updates"),
        ({"replay": "parent", "steps": (5, 50)}, r"steps=\(5, 50\) is no stretch of parent"),
        ({"replay": "parent", "steps": (5, 5)}, r"as steps=\(0, 40\)"),
        ({"replay": "nowhere", "steps": (1, 2)}, "nowhere does not exist"),
        ({"replay": "ours", "steps": (1, 2)}, "ours was trained by us: `tracer replay ours FIRST:LAST`"),
    ],
)
def test_what_cannot_be_made_again_is_refused(parent: Run, options: dict[str, Any], says: str) -> None:
    if options.get("replay") == "ours" and not (parent.dir.parent / "ours").exists():
        train(tiny(parent.dir.parent / "ours", steps=3), quiet=True)
    if "replay" in options:
        options = {**options, "replay": parent.dir.parent / options["replay"]}
    with pytest.raises(ValueError, match=says):
        tracer.watch(GPT(), run=parent.dir.parent / "refused", **options)
    assert not (parent.dir.parent / "refused").exists()
