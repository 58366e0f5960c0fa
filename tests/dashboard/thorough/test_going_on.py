"""A watched job goes on from an earlier step, and so takes steps back: nothing that was kept of these is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from dashboard.loading import ablation, prompt_attention, recorded_prompts
from dashboard.views.circuits import data as circuits
from dashboard.views.find import data as find
from tests.dashboard.conftest import gpt
from tracer.ablate import losses
from tracer.analysis.prompt_attention import look
from tracer.store import Run, open_run

PROMPT = [3, 4, 5, 3, 4, 5]


def trained(directory: Path, seed: int, start: int | None, weights: Any) -> Any:
    """Updates up to the fourth on batches of this seed; the weights after the second."""
    model, kept = gpt(), None
    model.load_state_dict(weights or model.state_dict())
    recorder = tracer.watch(model, run=directory, every=1, start_step=start)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-2)
    draws = torch.Generator().manual_seed(seed)
    for step in range(start or 0, 4):
        if step == 2:
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        ids = torch.randint(60, (4, 24), generator=draws)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    return kept


def shown(run: Run) -> list[np.ndarray]:
    """What pages show of the last step, from their caches."""
    step, kept = run.steps[-1], recorded_prompts.prompts(run)
    read = prompt_attention.of_text(run, step, PROMPT, [str(i) for i in PROMPT])
    recorded = recorded_prompts.of_prompt(run, kept.steps[-1], kept.names[0])
    return [
        read.window(0, 0, slice(None), slice(None)), recorded.window(0, 0, slice(None), slice(None)),
        circuits.weights(run, step)[0].numpy(),
        find.search(run, step).search.scores["sharpest"], np.array(ablation.clean(run, step)["text"]),
    ]  # fmt: skip


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def test_what_was_kept_of_steps_that_were_taken_back_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "checkpoints" / "job"
    weights = trained(directory, 1, None, None)
    before = shown(open_run("job"))
    assert all(map(same, before, shown(open_run("job"))))
    trained(directory, 99, 2, weights)
    run = open_run("job")
    after = shown(run)
    assert not any(map(same, before, after))
    model, kept = run.model(), recorded_prompts.prompts(run)
    np.testing.assert_array_equal(after[0], look(model, torch.tensor([PROMPT])).window(0, 0, slice(None), slice(None)))
    pattern = run.trace["pattern"].sel(step=kept.steps[-1], prompt=kept.names[0])[0, 0].values.astype(np.float32)
    np.testing.assert_array_equal(after[1], pattern[: len(after[1]), : len(after[1])])
    text = ablation.batches(run).text
    assert text is not None and after[-1] == pytest.approx(float(losses(model, text, [()]).mean()), abs=1e-5)
