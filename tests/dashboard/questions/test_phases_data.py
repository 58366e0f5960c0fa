"""Courses of runs: K-composition at snapshots, the loss by position as a surface and a path, what heads undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dashboard import loading
from dashboard.loading import ablation, changes, course
from dashboard.views.phases import data
from tests.dashboard.questions.conftest import Write
from tracer.analysis import training_curves
from tracer.analysis.training_curves import Reads
from tracer.measures import change_points
from tracer.measures.composition import composition, random_composition
from tracer.store import Run

NAN = float("nan")


@pytest.mark.parametrize(
    ("n_params", "n_steps", "cheap"), [(10**6, 100, True), (10**6 + 1, 100, False), (10**12, 0, True)]
)
def test_weights_are_read_where_they_are_small_or_wished(
    n_params: int, n_steps: int, cheap: bool, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write("weighty", n_params=n_params)
    for step in range(n_steps):
        (run.dir / "snapshots" / f"{step:06d}.safetensors").touch()
    assert changes.may_read(run) is cheap
    monkeypatch.setattr(changes.st, "session_state", {f"composition of {run.dir.resolve()}": True})
    assert changes.may_read(run) is True


def expected(run: Run, steps: list[int]) -> Reads:
    models: list[Any] = [run.model(step) for step in steps]
    scores = np.stack([composition("k", *model.head_weights()[:4]).numpy() for model in models])
    return Reads(steps, scores, random_composition(64, 16)[0])


def same(found: Reads | None, other: Reads) -> bool:
    assert found is not None
    np.testing.assert_array_equal(found.scores, other.scores)
    return found.steps == other.steps and found.chance == other.chance


def test_composition_at_every_snapshot_is_read_once(copy_run: Callable[..., Run]) -> None:
    run = copy_run("composed")
    torch.set_num_threads(2)
    assert same(changes._reads(run), expected(run, [0, 10, 20, 30]))
    assert torch.get_num_threads() == 1
    changes._reel(run)[10] = np.full((2, 4, 2, 4), 7, np.float32)
    again = changes._reads(run)
    assert again is not None and (again.scores[1] == 7).all(), "what was read is not read again"


def test_what_cannot_be_read_is_left_out(copy_run: Callable[..., Run]) -> None:
    run = copy_run("partly")
    (run.dir / "snapshots" / "000020.safetensors").write_bytes(b"no")
    assert same(changes._reads(run), expected(run, [0, 10, 30]))
    single = copy_run("single")
    for step in (10, 20, 30):
        (single.dir / "snapshots" / f"{step:06d}.safetensors").unlink()
    assert same(changes._reads(single), expected(single, [0]))
    for damage in ("snapshots", "tokenizer.json"):
        broken = copy_run(f"broken {damage}")
        for path in (broken.dir / "snapshots").iterdir() if damage == "snapshots" else [broken.dir / damage]:
            path.write_bytes(b"no")
        assert changes._reads(broken) is None


def names(run: Run) -> list[str]:
    return [curve.name for curve in changes.curves(run)]


def test_curves_hold_composition_where_it_may_be_read(small_run: Run, copy_run: Callable[..., Run]) -> None:
    with_reads = training_curves.course(loading.trace(small_run), expected(small_run, [0, 10, 20, 30]))
    found = changes.curves(small_run)
    assert [curve.name for curve in found] == [curve.name for curve in with_reads]
    for one, other in zip(found, with_reads, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    dated = [(one.change.midpoint, one.happens) for one in training_curves.events(found) if one.change]
    assert [(event.step, event.label) for event in course.events(small_run)] == dated, (
        "the timeline marks what Phases dates"
    )
    without = [curve.name for curve in training_curves.course(loading.trace(small_run))]
    assert len(without) < len(found)
    assert names(copy_run("heavy", n_params=10**9)) == without, "it would take long"
    bare = copy_run("bare")
    for path in (bare.dir / "snapshots").iterdir():
        path.unlink()
    assert names(bare) == without


VALUES = np.array([[4.0, 3.5, 3.6], [4.0, NAN, 3.0], [3.0, 2.0, 1.5], [2.5, 2.0, 1.0], [2.0, 1.8, 0.5]])
STEPS = [0, 5, 10, 20, 30]
KNOWN = [0, 10, 20, 30]
WHOLE = VALUES[[0, 2, 3, 4]]


@pytest.fixture
def positioned(write: Write) -> Run:
    """Loss by position at five steps; at step 5 not all of it was measured."""
    return write("positioned", STEPS, {"loss_by_position": (("pos",), VALUES)})


@pytest.fixture
def unknown(write: Write) -> Run:
    return write("unknown", STEPS, {"train_loss": ((), np.ones(5))})


def test_losses_by_position(positioned: Run, unknown: Run, write: Write) -> None:
    found = data.losses(positioned)
    assert found is not None and found.steps.tolist() == KNOWN
    np.testing.assert_array_equal(found.values, WHOLE)
    np.testing.assert_array_equal(found.since(16), WHOLE[2])
    assert data.losses(unknown) is None
    for name, rows, cols, there in (
        ("one row", slice(0, 2), slice(None), False), ("one position", slice(None), slice(1), False),
        ("two rows", slice(2, 4), slice(None), True), ("two positions", slice(2, None), slice(2), True),
    ):  # fmt: skip
        values = VALUES[rows, cols]
        run = write(name, STEPS[rows], {"loss_by_position": (("pos",), values)})
        assert (data.losses(run) is not None) == there, name


def test_the_surface_of_the_loss_or_its_slope(positioned: Run, unknown: Run) -> None:
    less = WHOLE - WHOLE[1]
    for quantity, since, values, shown in (
        ("loss", None, WHOLE, WHOLE), ("loss", 10, less, less[1:]),
        ("slope", None, change_points.slope(WHOLE), change_points.slope(WHOLE)),
        ("slope", 10, change_points.slope(less), change_points.slope(less)[1:]),
    ):  # fmt: skip
        found = data.surface(positioned, quantity, since)
        assert found is not None and found.steps.tolist() == KNOWN
        np.testing.assert_array_equal(found.values, values)
        np.testing.assert_array_equal(found.shown, shown)
    assert data.surface(unknown, "loss", None) is None


def test_the_width_that_a_window_spans(positioned: Run, unknown: Run) -> None:
    for window, inside in (
        ((10, 20), [False, True, True, False]), ((0, 10), [True, True, False, False]),
        ((11, 29), [False, False, True, False]),
    ):  # fmt: skip
        assert data.breadth(positioned, window) == change_points.breadth(WHOLE, np.array(inside))
    assert data.breadth(positioned, (10, 20)) not in (0.0, 1.0) and data.breadth(unknown, (0, 30)) == 0.0


def test_the_path_from_a_step_on(positioned: Run, unknown: Run) -> None:
    for since, first in ((0, 0), (1, 1), (10, 1)):
        found = data.path(positioned, since)
        assert found is not None and found.steps.tolist() == KNOWN[first:]
        points, shares = change_points.path(WHOLE[first:])
        np.testing.assert_array_equal(found.points, points)
        np.testing.assert_array_equal(found.shares, shares)
    assert data.path(positioned, 11) is None and data.path(unknown, 0) is None, "two rows make no path"


@pytest.mark.parametrize(
    ("n_params", "n_ctx", "n_heads", "cheap"),
    [
        (125_000, 1000, 10, True), (125_001, 1000, 10, False), (1250, 1000, 1000, True), (1251, 1000, 1000, False),
        (10**14, None, 5, True),
    ],
)  # fmt: skip
def test_few_forward_passes_are_run_unasked(
    n_params: int, n_ctx: int | None, n_heads: int, cheap: bool, write: Write
) -> None:
    """2 FLOPs a parameter, token and head on 16 rows: 4e10 at most."""
    assert data.cheap(write("passes", n_params=n_params, n_ctx=n_ctx), n_heads) is cheap


def losses(model: Any, tokens: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        log_p = model(tokens[:, :-1]).double().log_softmax(-1)
    return -log_p.gather(-1, tokens[:, 1:, None])[..., 0].numpy()


def test_what_heads_undo(small_run: Run, write: Write, copy_run: Callable[..., Run]) -> None:
    text = ablation.batches(small_run).text
    assert text is not None
    found = data.undone(small_run, 10, 30, ((0, 1), (1, 2)))
    after = losses(small_run.model(30), text).mean(0)
    np.testing.assert_allclose(found.moved, after - losses(small_run.model(10), text).mean(0), atol=1e-5)
    for row, (layer, head) in enumerate(((0, 1), (1, 2))):
        model: Any = small_run.model(30)
        model.blocks[layer].attn.W_O[head] = 0
        np.testing.assert_allclose(found.without[row], losses(model, text).mean(0) - after, atol=1e-5)


def test_without_text_nothing_is_undone(write: Write) -> None:
    run = write("textless", [0], {"train_loss": ((), np.ones(1))}, d_vocab=60, n_ctx=48)
    with pytest.raises(ValueError, match="this run kept no text of equal length to switch heads off on"):
        data.undone(run, 0, 0, ((0, 0),))
