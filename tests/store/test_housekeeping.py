"""Renaming, noting, removing and bringing back, and what is refused."""

import shutil
from pathlib import Path

import pytest

from tracer.store import NotARun, Run, RunInUse, housekeeping, list_runs
from tracer.store.layout import Lock


@pytest.fixture
def run(trained_toy: Path, tmp_path: Path) -> Run:
    shutil.copytree(trained_toy, tmp_path / "one")
    return Run(tmp_path / "one")


def test_a_run_is_renamed_with_all_that_it_holds(run: Run) -> None:
    steps = run.steps
    housekeeping.write_note(run, "  a note\n")
    renamed = housekeeping.rename(run, "two")
    assert (renamed.name, renamed.steps, housekeeping.note(renamed)) == ("two", steps, "a note")
    assert not run.dir.exists() and not renamed.live and renamed.trace.sizes["step"]
    housekeeping.write_note(renamed, " ")
    assert housekeeping.note(renamed) == "" and not (renamed.dir / "note.txt").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("../up", "letters, digits"), ("", "letters, digits"), (".x", "starts with"), ("one", "there")],
)
def test_names_that_are_refused(run: Run, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        housekeeping.rename(run, name)
    assert run.dir.exists()


@pytest.mark.parametrize("lock", ["lock", "effects.lock"])
def test_nothing_is_moved_while_a_process_works_on_it(run: Run, lock: str) -> None:
    held = Lock(run.dir, lock)
    for change in (housekeeping.remove, lambda run: housekeeping.rename(run, "two")):
        with pytest.raises(RunInUse, match="stop that one first"):
            change(run)
    held.release()
    assert housekeeping.rename(run, "two").name == "two"


def test_what_is_gone_is_not_moved_again(run: Run) -> None:
    gone = housekeeping.remove(run)
    for change in (housekeeping.remove, lambda run: housekeeping.rename(run, "two")):
        with pytest.raises(NotARun, match="does not exist"):
            change(run)
    assert not run.dir.exists() and list(gone.parent.iterdir()) == [gone]


def test_what_was_removed_comes_back_or_goes_for_good(run: Run) -> None:
    root = run.dir.parent
    gone = housekeeping.remove(run)
    assert list_runs(root) == [] and housekeeping.restore(gone).name == "one" and run.trace.sizes["step"]
    gone = housekeeping.remove(run)
    shutil.copytree(gone, run.dir)
    with pytest.raises(ValueError, match="there again"):
        housekeeping.restore(gone)
    housekeeping.empty_trash(3600, root)
    assert gone.exists()
    housekeeping.empty_trash(0, root)
    assert not gone.exists() and run.dir.exists()


def test_only_what_is_in_the_trash_is_deleted(tmp_path: Path) -> None:
    kept = tmp_path / "one" / "run.json"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(ValueError, match="is not in .trash"):
        housekeeping.discard(kept.parent)
    assert kept.exists()


def test_two_may_empty_the_trash_at_once(run: Run) -> None:
    removed = housekeeping.remove(run)
    for _ in range(2):
        housekeeping.discard(removed)
    assert not removed.exists()
