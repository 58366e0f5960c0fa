"""What a training says while it runs, and how often it leaves a point to go on from: what the first tier leaves."""

from pathlib import Path
from typing import Any

import pytest

from tests.training.test_kept_states import tiny
from tracer.store import RunWriter
from tracer.training import loop


def test_points_to_go_on_from_are_left_when_time_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    leave = RunWriter.checkpoint

    def counted(self: RunWriter, step: int, *rest: Any, **facts: Any) -> None:
        left.append(step)
        leave(self, step, *rest, **facts)

    monkeypatch.setattr(RunWriter, "checkpoint", counted)
    loop.train(tiny(tmp_path / "short"), quiet=True)
    assert left == [0, 8]  # at both ends: it took less than 10 s
    left.clear()
    monkeypatch.setattr("tracer.training.session.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("tracer.training.session.between_points", lambda seconds: 0.0)
    loop.train(tiny(tmp_path / "often"), quiet=True)
    assert left == list(range(9))
