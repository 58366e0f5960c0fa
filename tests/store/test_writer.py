"""What a job that goes on with a run takes back."""

import json
from typing import Any

import numpy as np
import pytest

from tracer.store import EffectsWriter, NothingRecorded, Run, RunInUse, RunWriter
from tracer.store.layout import Lock, steps_in
from tracer.store.surveys import newest_survey, write_survey


def sweep(run: Run, *steps: int) -> None:
    attrs: dict[str, Any] = {"n_sequences": 1}
    writer = EffectsWriter(run.dir, {}, attrs, len(steps))
    for step in steps:
        writer.append("zero", False, step, np.zeros((1, 2, 4), np.float32))
    writer.close()


def found_in(run: Run) -> tuple[list[int], list[int], list[int], list[int]]:
    """Steps of snapshots, of sweeps, of surveys, of findings."""
    try:
        swept = run.effects["step"].values.tolist()
    except NothingRecorded:
        swept = []
    surveyed = [step for step in (0, 2, 4) if newest_survey(run.dir, step)]
    told = [json.loads(line)["step"] for line in (run.dir / "findings.jsonl").read_text().splitlines()]
    return steps_in(run.dir / "snapshots"), swept, surveyed, told


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (4, ([0, 2, 4], [0, 4], [0, 2, 4], [0, 2])),
        (2, ([0, 2], [], [0, 2], [0])),
        (0, ([0], [], [0], [])),
    ],
)  # fmt: skip
def test_what_was_found_in_weights_goes_with_them(run: Run, after: int, left: tuple[Any, ...]) -> None:
    sweep(run, 4, 0)
    for step in (0, 2, 4):
        write_survey(run.dir, f"{step}-ab", {"tokens": np.arange(6)}, "a text")
    writer = RunWriter.reopen(run)
    for step in (0, 2, 4):
        writer.finding({"step": step, "kind": f"of {step}", "evidence": float("nan")})
    writer.take_back(after)
    writer.abandon()
    assert found_in(run) == left and not list(run.dir.glob(".*.partial"))


def test_sweeps_of_what_stays_are_kept(run: Run) -> None:
    sweep(run, 2, 0)
    writer = RunWriter.reopen(run)
    writer.take_back(2)
    writer.abandon()
    assert steps_in(run.dir / "snapshots") == [0, 2] and run.effects["step"].values.tolist() == [0, 2]


def test_nothing_is_taken_back_from_under_a_sweep(run: Run) -> None:
    writer, swept = RunWriter.reopen(run), Lock(run.dir, "effects.lock", busy="swept")
    with pytest.raises(RunInUse, match="being swept"):
        writer.take_back(2)
    swept.release()
    writer.abandon()
    assert steps_in(run.dir / "snapshots") == [0, 2, 4]


def test_what_a_dead_writer_left_goes_but_not_what_a_sweep_writes(run: Run) -> None:
    sweep(run, 2, 0)
    ours, theirs = run.dir / "snapshots" / ".2.partial", run.dir / "effects.zarr" / ".zarr.json.partial"
    for path in (ours, theirs):
        path.write_bytes(b"half")
    RunWriter.reopen(run).abandon()
    assert not ours.exists() and theirs.read_bytes() == b"half"
