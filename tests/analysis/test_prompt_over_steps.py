"""A prompt at every snapshot: each frame is the look at that step, to the last bit, whoever else runs the model."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.analysis.test_prompt_attention import IDS, MODELS
from tracer.analysis import prompt_over_steps
from tracer.analysis.prompt_attention import look
from tracer.presets import PRESETS
from tracer.store import Run
from tracer.training.loop import train

TOKENS = torch.randint(1, 60, (1, 23), generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The toy, 12 updates, with a snapshot of every third."""
    toy = PRESETS["induction"].config
    record = replace(toy.record, every=3, snapshot_every=3, log_every=3, val_rows=2, text_prompts=1, repeat_prompts=1)
    directory = tmp_path_factory.mktemp("film") / "toy"
    optim = replace(toy.optim, batch_size=4)
    return train(replace(toy, run=str(directory), steps=12, device="cpu", optim=optim, record=record), quiet=True)


@pytest.mark.parametrize("size", [64, 23, 8, 2])
def test_a_frame_is_the_look_at_its_step(run: Run, size: int) -> None:
    frames = dict(prompt_over_steps.film(run, TOKENS, run.steps, size=size))
    assert list(frames) == run.steps == [0, 3, 6, 9, 12]
    for step, thumbs in frames.items():
        np.testing.assert_array_equal(thumbs, look(run.model(step), TOKENS, thumbs=size).thumbs)
    assert not np.array_equal(frames[0], frames[12])


@pytest.mark.parametrize("name", MODELS)
def test_a_frame_of_any_model(name: str) -> None:
    model = MODELS[name]()
    np.testing.assert_array_equal(prompt_over_steps.frame(model, IDS, 8), look(model, IDS, thumbs=8).thumbs)


def test_whole_frames_are_patterns(run: Run) -> None:
    (_, thumbs), *_ = prompt_over_steps.film(run, TOKENS, run.steps[-1:], size=23)
    seen = look(run.model(), TOKENS)
    for layer, head in np.ndindex(thumbs.shape[:2]):
        np.testing.assert_allclose(thumbs[layer, head], seen.pattern(layer, head), atol=2e-6)


def test_films_in_threads_do_not_meet(run: Run) -> None:
    def whole(_: int) -> np.ndarray:
        return np.stack([thumbs for _, thumbs in prompt_over_steps.film(run, TOKENS, run.steps, size=23)])

    alone = whole(0)
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(whole, range(8)):
            np.testing.assert_array_equal(together, alone)


def test_a_damaged_snapshot_is_left_out(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.dir, tmp_path / "hurt")
    hurt = Run(tmp_path / "hurt")
    for step in (0, 6):
        (hurt.dir / "snapshots" / f"{step:06}.safetensors").write_bytes(b"cut off")
    assert [step for step, _ in prompt_over_steps.film(hurt, TOKENS, hurt.steps, size=8)] == [3, 9, 12]
