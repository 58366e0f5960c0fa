"""The bounds of a head's entropy: at which snapshots, and on which texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dashboard.loading import diagnoses
from tests.dashboard.questions.conftest import Write
from tracer.analysis.entropy_bound import bound
from tracer.store import Run


def texts(write: Write, *names: str, tokens: list[list[int]]) -> np.ndarray | None:
    coords = {
        "prompt": (("prompt",), list(names), {}),
        "prompt_tokens": (("prompt", "query_pos"), np.array(tokens, np.int32), {}),
    }
    return diagnoses._texts(write(f"{names} {tokens}", [0], {"x": ((), np.ones(1))}, coords))


def test_the_texts_are_cut_to_the_shortest(write: Write) -> None:
    found = texts(write, "text 0", "repeat 0", "text 1", tokens=[[0, 5, 6, 7], [9, 9, -1, -1], [4, 0, 3, -1]])
    assert found is not None and found.dtype == np.int64 and found.tolist() == [[0, 5, 6], [4, 0, 3]]
    two = texts(write, "text 0", tokens=[[3, 4, -1]])
    assert two is not None and two.tolist() == [[3, 4]]
    assert texts(write, "text 0", tokens=[[3, -1, -1]]) is None, "one token has no row to measure"
    assert texts(write, "text 0", "text 1", "text 2", tokens=[[1, 2], [1, -1], [1, 2]]) is None
    assert texts(write, "repeat 0", tokens=[[3, 4, 5]]) is None
    assert diagnoses._texts(write("no prompts", [0], {"x": ((), np.ones(1))})) is None


def test_every_number_of_one_head(small_run: Run) -> None:
    tokens = small_run.trace["prompt_tokens"].values[:1]
    diagnoses._bound.clear()
    torch.set_num_threads(2)
    found = diagnoses.bounds(small_run, (0, 3))
    assert torch.get_num_threads() == 1
    assert found is not None and found.steps.tolist() == [0, 10, 20, 30]
    models: list[Any] = [small_run.model(step) for step in found.steps.tolist()]
    for name in ("entropy", "by_scores", "by_weights", "score_size", "weight_size"):
        expected = [float(getattr(bound(model, torch.from_numpy(tokens)), name)[0, 3]) for model in models]
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-6)
    assert (found.sequences, found.tokens) == tokens.shape
    np.testing.assert_allclose(found.uniform, np.log(np.arange(2, tokens.shape[1] + 1)).mean())


def test_sixty_snapshots_at_most(copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = copy_run("many")
    for step in range(31, 148):
        (run.dir / "snapshots" / f"{step:06d}.safetensors").touch()
    steps = run.steps
    assert len(steps) == 121
    monkeypatch.setattr(diagnoses, "_bound", lambda _run, step, _tokens: np.full((5, 2, 4), step))
    found = diagnoses.bounds(run, (0, 0))
    assert found is not None and len(found.steps) == 60
    assert found.steps.tolist() == found.entropy.tolist() == [steps[round(i * 120 / 59)] for i in range(60)]


def test_runs_without_bounds(write: Write, copy_run: Callable[..., Run]) -> None:
    coords = {"prompt": (("prompt",), ["text 0"], {}), "prompt_tokens": (("prompt", "query_pos"), [[1, 2, 3]], {})}
    foreign = write("foreign", [0], {"x": ((), np.ones(1))}, coords)
    (foreign.dir / "snapshots" / "000000.safetensors").touch()
    assert foreign.steps == [0] and diagnoses.bounds(foreign, (0, 0)) is None
    bare = copy_run("weightless")
    for path in (bare.dir / "snapshots").iterdir():
        path.unlink()
    assert diagnoses.bounds(bare, (0, 0)) is None


def test_ours_without_texts_has_none(copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = copy_run("textless")
    monkeypatch.setattr(diagnoses, "_texts", lambda _run: None)
    assert diagnoses.bounds(run, (0, 0)) is None
