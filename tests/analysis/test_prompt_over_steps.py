"""A prompt at every snapshot: each frame is the look at that step, to the last bit, whoever else runs the model."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.analysis.test_prompt_attention import IDS, MODELS
from tracer.analysis import prompt_over_steps
from tracer.analysis.prompt_attention import look
from tracer.store import Run

TOKENS = torch.randint(1, 60, (1, 23), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def run(short_toy: Path) -> Run:
    return Run(short_toy)


@pytest.mark.parametrize("size", [64, 23, 8, 2])
def test_a_frame_is_the_look_at_its_step(run: Run, size: int) -> None:
    frames = dict(prompt_over_steps.film(run, TOKENS, run.steps, size=size))
    assert list(frames) == run.steps == [0, 10, 20, 30]
    for step, shot in frames.items():
        seen = look(run.model(step), TOKENS, thumbs=size)
        np.testing.assert_array_equal(shot.thumbs, seen.thumbs)
        logits = torch.from_numpy(seen.logits).double()
        assert shot.said is not None
        np.testing.assert_allclose(shot.said.following, logits[-1].softmax(-1), atol=1e-6)
        losses = -logits[:-1].log_softmax(-1).gather(1, TOKENS[0, 1:, None])
        assert shot.said.loss == pytest.approx(float(losses.mean()), abs=1e-5)
    assert not np.array_equal(frames[0].thumbs, frames[30].thumbs)


@pytest.mark.parametrize("name", MODELS)
def test_a_frame_of_any_model(name: str) -> None:
    model = MODELS[name]()
    shot = prompt_over_steps.shot(model, IDS, 8)
    np.testing.assert_array_equal(shot.thumbs, look(model, IDS, thumbs=8).thumbs)
    assert shot.said is None, "nobody said how many tokens there are"


def test_whole_frames_are_patterns(run: Run) -> None:
    (_, (thumbs, _)), *_ = prompt_over_steps.film(run, TOKENS, run.steps[-1:], size=23)
    seen = look(run.model(), TOKENS)
    for layer, head in np.ndindex(thumbs.shape[:2]):
        np.testing.assert_allclose(thumbs[layer, head], seen.pattern(layer, head), atol=2e-6)


def test_films_in_threads_do_not_meet(run: Run) -> None:
    def whole(_: int) -> np.ndarray:
        return np.stack([shot.thumbs for _, shot in prompt_over_steps.film(run, TOKENS, run.steps, size=23)])

    alone = whole(0)
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(whole, range(8)):
            np.testing.assert_array_equal(together, alone)


def test_a_damaged_snapshot_is_left_out(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.dir, tmp_path / "hurt")
    hurt = Run(tmp_path / "hurt")
    for step in (0, 20):
        (hurt.dir / "snapshots" / f"{step:06}.safetensors").write_bytes(b"cut off")
    assert [step for step, _ in prompt_over_steps.film(hurt, TOKENS, hurt.steps, size=8)] == [10, 30]
