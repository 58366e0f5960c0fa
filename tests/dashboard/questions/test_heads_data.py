"""Scores at every period, why a head looks where it looks, and one cell over training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from dashboard.views.heads import data
from tests.dashboard.conftest import gpt
from tests.dashboard.questions.conftest import Write, of_size, rebuildable
from tracer.analysis import cell_moves, why, why_without, why_words
from tracer.analysis.induction_by_period import induction_by_period
from tracer.store import Run

TOKENS = (0, 5, 6, 7, 5, 6)


@pytest.mark.parametrize(("n_params", "rows"), [(20_000_000, 8), (20_000_001, 2)])
def test_scores_at_every_period(n_params: int, rows: int, copy_run: Callable[..., Run]) -> None:
    """A model whose forward pass takes seconds reads fewer rows."""
    run = copy_run(f"of {n_params}", n_params=n_params)
    found = data.by_period(run, 20)
    expected = induction_by_period(run.model(20), bos=0, rows=rows)
    np.testing.assert_array_equal(found.periods, expected.periods)
    np.testing.assert_array_equal(found.score, expected.score)


def test_rows_begin_with_the_token_of_the_run(write: Write) -> None:
    paths = ("transformer.h.0.attn", "transformer.h.1.attn")
    run = rebuildable(write, "begun", gpt(), paths, n_ctx=48, bos=5)
    expected = induction_by_period(run.model(0), bos=5)
    np.testing.assert_array_equal(data.by_period(run, 0).score, expected.score)


def test_why_a_head_looks_there(small_run: Run) -> None:
    found = data.answer(small_run, 20, TOKENS, (0, 2), (5, 2))
    passed = why.read_pass(small_run.model(20), torch.tensor([TOKENS]))
    score = why.cell(passed, 0, 2, 5, 2)
    xr.testing.assert_identical(found.score, score)
    xr.testing.assert_identical(found.few, why.largest(score, 8))
    assert found.reason == why_words.reason(passed, score)
    moved = cell_moves.moves(passed, 0, 2, 5, 2)
    logits = {str(token): float(value) for token, value in enumerate(moved["logits"].values)}
    names = {str(token): data.strings(small_run, [token])[0] for token in range(65)}
    ordered = sorted(logits.items(), key=lambda pair: pair[1])
    assert found.lowered == [(names[token], value) for token, value in ordered[:5]]
    assert found.raised == [(names[token], value) for token, value in ordered[:-6:-1]]
    assert found.readers == cell_moves.readers(moved)[:5] and len(cell_moves.readers(moved)) > 5


def test_the_eight_largest_sources_by_name(write: Write) -> None:
    """A head of the fourth layer reads six heads, three MLPs, tokens and positions."""
    run = rebuildable(write, "deep", of_size(n_layer=4), [f"transformer.h.{i}.attn" for i in range(4)], n_ctx=48)
    found = data.answer(run, 0, TOKENS, (3, 1), (5, 2))
    assert min(found.score.shape) > 9
    xr.testing.assert_identical(found.few, why.largest(found.score, 8))


def test_a_cell_without_a_source(small_run: Run) -> None:
    found = data.without(small_run, 20, TOKENS, (1, 2), 5, "L0H1")
    expected = why_without.without(small_run.model(20), torch.tensor([TOKENS]), 1, 2, 5, ["L0H1"])
    xr.testing.assert_identical(found, expected)


def test_a_cell_over_training(small_run: Run) -> None:
    found = data.over_training(small_run, 10, TOKENS, (1, 2), (5, 2), (0, 20, 30))
    expected = why.why(small_run, torch.tensor([TOKENS]), 1, 2, 5, 2, steps=[0, 10, 20, 30])
    xr.testing.assert_identical(found, expected)


@pytest.mark.parametrize(("n", "every"), [(60, 1), (61, 2), (120, 2), (121, 3)])
def test_sixty_snapshots_of_many_and_the_last_of_them(
    n: int, every: int, small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []

    def seen(*_given: Any, steps: list[int]) -> xr.DataArray:
        asked.append(steps)
        return xr.DataArray(0)

    monkeypatch.setattr("tracer.analysis.why.why", seen)
    data.over_training(small_run, 77, TOKENS, (1, 2), (5, 2), tuple(1000 * step for step in range(n)))
    assert asked == [sorted({77, *(1000 * step for step in range(n - 1, -1, -every))})]
