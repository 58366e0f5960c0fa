"""What is read of a run's files, and what is said where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dashboard import loading
from tests.dashboard.questions.conftest import Write, trace_into
from tracer.pictures import curves, payload, step_heatmap
from tracer.store import NotARun, Run

HEADS = ("layer", "head")
LOSS = {"train_loss": ((), np.array([2.0, 1.0]))}


@pytest.fixture
def here(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Runs are written into checkpoints/ of the working directory."""
    monkeypatch.chdir(tmp_path)
    return lambda name, *given, **meta: write(f"checkpoints/{name}", *given, **meta)


def test_a_run_by_its_name(here: Write) -> None:
    run = here("mine", created="2026-01-02T03:04:05+00:00")
    here("newer", created="2026-02-02T03:04:05+00:00")
    assert [one.name for one in loading.runs()] == ["newer", "mine"]
    assert loading.run("mine").dir.resolve() == run.dir and loading.is_there("mine")
    (run.dir / "run.json").write_text("{")
    assert loading.is_there("mine") and not loading.is_there("theirs")
    with pytest.raises(NotARun, match=r"run\.json"):
        loading.run("mine")
    (run.dir / "run.json").unlink()
    words = "has no run.json, so it is not a run directory: it was renamed, moved or removed, or never was there"
    with pytest.raises(NotARun, match=f"^mine {words}$"):
        loading.run("mine")
    with pytest.raises(NotARun, match="^theirs is not here any more: it was renamed"):
        loading.run("theirs")


def test_a_damaged_description_is_refused_at_once(here: Write) -> None:
    run = here("layerless")
    text = (run.dir / "run.json").read_text()
    (run.dir / "run.json").write_text(text.replace('"layers": []', '"layers": [{"name": 3}]'))
    with pytest.raises(ValueError, match="layers"):
        loading.run("layerless")


@pytest.mark.parametrize("read_only", [True, False])
def test_whoever_only_reads_sees_the_runs_of_its_folders(
    read_only: bool, here: Write, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "read_only", lambda: read_only)
    run, other = here("mine"), write("elsewhere")
    assert loading.is_there("mine")
    for name in (str(other.dir), "checkpoints/..", "elsewhere"):
        if read_only:
            with pytest.raises(ValueError, match="read-only"):
                loading.is_there(name)
        else:
            assert loading.is_there(name) == (name != "checkpoints/..")
    assert loading.is_there(str(Path("checkpoints") / run.name))


def test_a_run_at_a_url(here: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    run, followed = here("mine"), []
    monkeypatch.setattr(loading, "follow", followed.append)
    folders = {"s3://a/mine": run.dir, "s3://a": run.dir.parent, "s3://b": run.dir / "snapshots"}
    monkeypatch.setattr(loading.remote, "fetch", folders.__getitem__)
    assert loading.fetch("s3://a/mine") == run.dir and followed == ["s3://a/mine"]
    with pytest.raises(ValueError, match=r"^s3://a is no run but a folder with runs \(mine\): add"):
        loading.fetch("s3://a")
    with pytest.raises(ValueError, match=r"^s3://b is no run but a folder with runs \(none that can be read\): add"):
        loading.fetch("s3://b")
    assert followed == ["s3://a/mine"]


def test_the_trace_in_memory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loading.MOST_MEASURES == 419_430_400
    values = LOSS | {"pattern": (("query_pos",), np.zeros((2, 1000)))}
    run = write("traced", [0, 5], values)
    found = loading.trace(run)
    assert "pattern" not in found and found["train_loss"].values.tolist() == [2, 1]
    size = run.trace.drop_vars("pattern").nbytes
    assert size == 2 * (8 + 8)
    for most, reads in ((size, True), (size - 1, False)):
        monkeypatch.setattr(loading, "MOST_MEASURES", most)
        loading.trace.clear()
        if reads:
            assert loading.trace(run)["step"].values.tolist() == [0, 5]
        else:
            with pytest.raises(ValueError, match="holds 0 MB of measures, more than the 0 MB that a page reads"):
                loading.trace(run)


def damage(run: Run, group: str) -> None:
    """Each chunk of the loss becomes other bytes."""
    for path in (run.dir / group / "train_loss").glob("c.*"):
        path.write_bytes(b"no")


def test_what_was_recorded_so_far(write: Write) -> None:
    found = loading.so_far(write("two", [0, 5], LOSS))
    assert found is not None and found["train_loss"].values.tolist() == [2, 1]
    empty = {"train_loss": ((), np.zeros(0))}
    assert loading.so_far(write("none")) is None and loading.so_far(write("empty", [], empty)) is None
    broken = write("broken", [0, 5], LOSS)
    damage(broken, "trace.zarr")
    with pytest.raises(ValueError, match="a part of it is damaged"):
        loading.trace(broken)
    assert loading.so_far(broken) is None


def test_what_was_recorded_at_every_update(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write("updated")
    assert loading.updates(run) is None
    trace_into(run.dir, [0, 1], LOSS)
    (run.dir / "trace.zarr").rename(run.dir / "updates.zarr")
    for most, reads in ((32, True), (31, False)):
        monkeypatch.setattr(loading, "MOST_MEASURES", most)
        loading.updates.clear()
        found = loading.updates(run)
        assert (found is not None) == reads and (found is None or found["train_loss"].values.tolist() == [2, 1])
    monkeypatch.undo()
    loading.updates.clear()
    damage(run, "updates.zarr")
    assert loading.updates(run) is None


def measured(
    write: Write, name: str, measure: str, seed: int, shape: tuple[int, int], steps: list[int], share: float = 0.1
) -> Run:
    values = np.random.default_rng(seed).random((len(steps), *shape))
    coords = {axis: ((axis,), list(range(n)), {}) for axis, n in zip(HEADS, shape, strict=True)}
    return write(name, steps, {measure: (HEADS, values), f"{measure}_se": (HEADS, values * share)}, coords)


def test_curves_and_heatmaps_of_heads(write: Write) -> None:
    run = measured(write, "curved", "entropy", 0, (2, 2), [0, 5, 20])
    values = run.trace["entropy"].values
    band = [values - 1.959964 * (values * 0.1), values + 1.959964 * (values * 0.1)]
    assert loading.head_curves(run, "entropy") == curves.pack_heads([0, 5, 20], values, band)
    assert loading.head_heatmap(run, "entropy") == step_heatmap.pack([0, 5, 20], values)


def test_bands_of_a_share_end_at_0_and_1(write: Write) -> None:
    run = measured(write, "unsure", "induction", 0, (2, 2), [0, 5, 20], share=25.0)
    assert payload.unpack(loading.head_curves(run, "induction"))[0]["band"] == [0, 1]


def test_heads_of_several_runs_on_one_picture(write: Write) -> None:
    one = measured(write, "one", "entropy", 0, (1, 2), [0, 10])
    without = measured(write, "without", "confidence", 1, (1, 2), [0])
    two = measured(write, "two", "entropy", 2, (2, 1), [10, 20])
    expected = np.full((4, 3), np.nan)
    expected[:2, :2] = one.trace["entropy"].values[:, 0].T
    expected[2:, 1:] = two.trace["entropy"].values[:, :, 0].T
    assert loading.head_curves_of([one, without, two], "entropy") == curves.pack(
        [0, 10, 20], expected, ["L0H0", "L0H1", "L0H0 · two", "L1H0 · two"], groups=[0, 0, 0, 1],
        group_names=["layer 0", "layer 1"], n_layers=2, dashes=[0, 0, 1, 1], dash_names=["one", "two"],
    )  # fmt: skip


def test_a_model_of_a_step_is_shared(small_run: Run) -> None:
    loading.model.clear()
    torch.set_num_threads(2)
    model: Any = loading.model(small_run, 10)
    assert torch.get_num_threads() == 1 and loading.model(small_run, 10) is model and not model.training
    expected: Any = small_run.model(10)
    torch.testing.assert_close(model.embed.W_E, expected.embed.W_E)


def test_the_size_of_the_directory(write: Write) -> None:
    run = write("sized")
    (run.dir / "snapshots" / "a").write_bytes(b"x" * 1_234_567)
    text = len((run.dir / "run.json").read_bytes())
    assert loading.size_mb(run) == (1_234_567 + text) / 1e6
