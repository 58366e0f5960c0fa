"""Who trains with our loop hears of each record and finding while it goes on, and may stop it.

What the first tier leaves.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.training.test_telling import Heard, checked, hot, kinds, looks_often  # noqa: F401
from tests.trainings import tiny
from tracer.store import Run
from tracer.training import loop


def test_each_record_is_told_also_of_a_run_that_goes_on_and_of_a_fork(tmp_path: Path) -> None:
    def hear(heard: Heard) -> Any:
        return lambda step, flat: heard.append((step, flat))

    first: Heard = []
    later: Heard = []
    forked: Heard = []
    whole = loop.train(tiny(tmp_path / "a", steps=8), quiet=True, on_record=hear(first))
    checked(first, whole, [0, 1, 2, 4, 8])
    assert "train/learning_rate" in first[0][1] and "train/learning_rate" not in first[-1][1]
    run = loop.resume(whole.dir, steps=12, quiet=True, on_record=hear(later))
    checked(later, run, [8, 12])
    config = replace(run.config, run=str(tmp_path / "b"))
    checked(forked, loop.fork(run, 8, config, quiet=True, on_record=hear(forked)), [8, 12])


def test_a_training_that_goes_wrong_is_stopped_and_can_go_on(tmp_path: Path, looks_often: None) -> None:
    told: list[Any] = []
    run = loop.train(hot(tmp_path / "hot"), quiet=True, on_finding=lambda one: told.append(one) or "stop")
    step = run.resume_step()
    assert run.status == "stopped" and step is not None and 0 < step < 100_000
    before = kinds(run)
    assert before == list(dict.fromkeys(before)) == [one.kind for one in told]
    again = loop.resume(run.dir, quiet=True, on_finding="stop")
    assert again.status == "stopped" and (again.resume_step() or 0) > step
    after = kinds(again)
    assert set(before) <= set(after) and after == list(dict.fromkeys(after))  # each kind once, by whomever it was told


def test_no_run_has_ended_before_its_last_row_is_there(tmp_path: Path) -> None:
    """Killed while its last findings are told, it goes on as any other; else its rows would be lost."""
    seen: list[tuple[str, int]] = []

    def look(finding: Any) -> None:
        run = Run(tmp_path / "hot")
        seen.append((run.meta["status"], run.meta["step"]))

    run = loop.train(replace(hot(tmp_path / "hot"), steps=60), quiet=True, on_finding=look)
    assert run.status == "finished" and seen and {status for status, _ in seen} == {"training"}
    assert seen[-1][1] == 60  # the last were told at the end
