"""Two runs or prompts side by side: which heads are laid beside each other, and how far apart they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from dashboard.loading import ablation, comparison
from dashboard.loading.ablation import Setup
from tests.dashboard.questions.conftest import Write, drawn
from tracer import ablate
from tracer.store import Run

NAN = float("nan")


def changed(copy_run: Callable[..., Run], name: str, part: str | None, **fields: Any) -> Run:
    """A copy of the run with these fields of its config, or of a part of it."""
    run = copy_run(name)
    config = json.loads((run.dir / "run.json").read_text())["config"]
    if part is None:
        config |= fields
    else:
        config[part] |= fields
    meta = json.loads((run.dir / "run.json").read_text())
    (run.dir / "run.json").write_text(json.dumps({**meta, "config": config}))
    return Run(run.dir)


def test_runs_that_began_with_the_same_weights(small_run: Run, copy_run: Callable[..., Run], write: Write) -> None:
    alike = comparison.began_alike
    twin, fork = copy_run("twin"), changed(copy_run, "fork", None, seed=8)
    assert alike(small_run, twin) and not alike(small_run, fork)
    assert not alike(small_run, changed(copy_run, "wide", "model", d_model=32))
    assert alike(small_run, changed(copy_run, "longer", "optim", lr=0.5))
    meta = json.loads((fork.dir / "run.json").read_text())
    (fork.dir / "run.json").write_text(json.dumps({**meta, "parent": {"run": "tiny", "step": 3}}))
    sister = write("sister", parent={"run": "tiny", "step": 9})
    assert alike(small_run, fork) and alike(fork, small_run) and alike(fork, sister)
    foreign, other = write("foreign"), write("other")
    assert not alike(foreign, other) and not alike(foreign, small_run) and not alike(small_run, foreign)
    assert alike(foreign, foreign)


def heads(steps: list[int], shape: tuple[int, int], **values: Any) -> xr.Dataset:
    arrays = {
        name: (("step", "layer", "head"), np.asarray(array, float).reshape(len(steps), *shape))
        for name, array in values.items()
    }
    return xr.Dataset(arrays, {"step": steps})


def test_how_differently_heads_behave(write: Write) -> None:
    """Root mean square of differences in standard deviations of all heads, over the measures that both have."""
    draw = np.random.default_rng(0)
    one = heads([0, 10], (2, 2), entropy=draw.random(8), induction=draw.random(8), confidence=draw.random(8))
    other = heads([0, 5], (3, 1), entropy=draw.random(6), induction=draw.random(6), max_logit=draw.random(6))
    found = comparison.unlikeness(one, 9, other, 1)
    assert found.shape == (2, 2, 3, 1)
    both = [one.isel(step=1), other.isel(step=0)]
    spread = {name: np.concatenate([of[name].values.ravel() for of in both]).std() for name in ("entropy", "induction")}
    for at in np.ndindex(found.shape):
        apart = [(both[0][name].values[at[:2]] - both[1][name].values[at[2:]]) / s for name, s in spread.items()]
        np.testing.assert_allclose(found[at], np.sqrt(np.mean(np.square(apart))))
    none = comparison.unlikeness(
        heads([0], (2, 2), entropy=[1, 2, 3, 4]), 0, heads([0], (1, 3), induction=[1, 2, 3]), 0
    )
    assert none.shape == (2, 2, 1, 3) and np.isnan(none).all()


def test_the_head_of_the_same_label_or_the_most_alike() -> None:
    exists = np.array([[True, False, True], [False, True, True]])
    same = [(0, 0), (0, 2), (1, 1), (1, 2)]
    assert comparison.partners(exists) == {head: head for head in same}
    apart = np.full((1, 2, 2, 2), NAN)
    apart[0, 0] = [[3, 2], [1, NAN]]
    assert comparison.partners(exists, apart) == {(0, 0): (1, 0)}, "the other head is like none"


def test_cells_that_mean_the_same() -> None:
    one = drawn(("one",), [(4, 4), (4, 6)], 2)
    assert comparison.corresponds(one, (0, 0), one, (0, 1)) and not comparison.corresponds(one, (0, 0), one, (1, 0))
    assert not comparison.corresponds(one, (0, 0), drawn(("two",), [(5, 5)], 2), (0, 0))
    assert not comparison.corresponds(one, (0, 0), drawn(("two",), [(4, 4)], 2, strings=list("abcd")), (0, 0))
    assert comparison.corresponds(one, (1, 0), drawn(("two",), [(4, 6)], 2), (0, 1))
    assert comparison.cells(drawn(("three",), [(4, 5), (2, 7), (3, 3)], 2)) == 2 * (20 + 14 + 9)


def test_how_far_each_head_moved() -> None:
    """257 and 513 rows: a pattern is read in blocks of 256. L1H1 is a part of a row; L1H2 does not exist."""
    one, other = (drawn(("moved", step), [(257, 257), (513, 300)], 3, step) for step in (1, 2))
    thumbs = one.thumbs.copy()
    thumbs[1, 1, 1:] = NAN
    thumbs[1, 0, :, 1:] = NAN
    one = drawn(("moved", 1), one.sizes, 3, 1, thumbs=thumbs)
    beside = {(0, 0): (0, 2), (0, 1): (1, 1), (1, 0): (1, 1), (1, 1): (1, 0), (1, 2): (1, 2)}
    found = comparison.moved(one, other, beside)
    whole = slice(None)
    expected = np.full((2, 3), NAN)
    for a, b in (((0, 0), (0, 2)), ((1, 0), (1, 1)), ((1, 1), (1, 0))):
        here, there = one.window(*a, whole, whole).astype(float), other.window(*b, whole, whole).astype(float)
        expected[a] = (np.abs(here - there).sum(1) / 2).mean()
    np.testing.assert_allclose(found, expected)


def change(run: Run, setup: Setup, name: str) -> np.ndarray:
    """Of every sequence, by one forward pass after the other."""
    batches = ablation.batches(run)
    tokens, where = next((tokens, where) for of, tokens, where in batches.sequences(setup.mode) if of == name)
    reference = batches.reference(name, setup.mode)
    found = ablate.effect(
        run.model(setup.step), tokens, setup.off, setup.mode, reference=reference, frozen=setup.frozen
    )
    return found.delta[:, where].mean(1).numpy()


@pytest.mark.parametrize(("mode", "frozen"), [("mean", False), ("zero", True)])
def test_what_one_ablation_does_more_than_another(mode: str, frozen: bool, small_run: Run) -> None:
    a = Setup.of(small_run, 30, ((0, 1), (0, 2)), mode, frozen)
    b = Setup.of(small_run, 20, ((1, 3),), mode, False)
    found = comparison.differences(a, b)
    assert list(found) == ["repeat", "text"]
    for name, estimate in found.items():
        more = change(small_run, b, name) - change(small_run, a, name)
        assert estimate is not None and estimate.mean == pytest.approx(more.mean(), abs=2e-6)
        low, high = ablate.estimate(more).low, ablate.estimate(more).high
        assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=2e-6)


def test_other_sequences_are_not_compared(small_run: Run, copy_run: Callable[..., Run]) -> None:
    """Of other rows of text there is no difference by sequence; one row cannot be resampled at all."""
    a = Setup.of(small_run, 30, ((0, 1),), "zero", False)
    fewer = changed(copy_run, "fewer", "record", val_rows=2)
    found = comparison.differences(a, Setup.of(fewer, 30, ((0, 1),), "zero", False))
    assert found["text"] is None and found["repeat"] is not None and found["repeat"].mean == 0
    single = changed(copy_run, "single", "record", val_rows=1)
    found = comparison.differences(a, Setup.of(single, 30, ((0, 1),), "resample", False))
    assert list(found) == ["repeat", "text"] and found["text"] is None and found["repeat"] is not None
