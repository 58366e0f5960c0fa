"""Runs are listed once for all, and anew whenever one comes, goes or changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard import loading
from dashboard.loading import listing
from dashboard.loading.run_summaries import settings_of
from tests.waiting import wait
from tracer.store import Run, stamps
from tracer.store.housekeeping import write_note

Make = Callable[..., Run]


def settled() -> listing.Listing:
    """Once no file is so young that a change might not show."""
    wait(lambda: listing.found().stamp is not None)
    return listing.found()


def test_nothing_is_read_again_until_something_changes(copy_run: Make) -> None:
    one, two = copy_run("one"), copy_run("two")
    before = settled()
    assert [run.name for run in before.runs].count("one") == 1 and before.broken == {}
    assert listing.found() is before and loading.runs() == before.runs and loading.runs() is not before.runs
    two.dir.rename(two.dir.with_name("moved"))
    assert {run.name for run in loading.runs()} >= {"one", "moved"}
    assert "two" not in {run.name for run in loading.runs()}
    two.dir.with_name("moved").rename(two.dir)
    meta = one.dir / "run.json"
    text = meta.read_text()
    for content in ("{", text):
        meta.write_text(content)
        assert ("one" in listing.found().broken) == (content == "{")
        assert ("one" in {run.name for run in loading.runs()}) == (content != "{")
    settled()
    meta.unlink()
    meta.symlink_to("nowhere")
    assert "one" in listing.found().broken


def test_the_same_name_elsewhere_is_another_folder(
    copy_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "one" in {run.name for run in [copy_run("one"), *settled().runs]}
    monkeypatch.chdir(tmp_path)
    assert loading.runs() == []
    shutil.copytree(copy_run("two").dir, tmp_path / "checkpoints" / "here")
    assert [run.name for run in loading.runs()] == ["here"]


def test_settings_are_those_of_now(copy_run: Make) -> None:
    run = copy_run("one")
    wait(lambda: stamps.of_run(run.dir) is not None)
    assert (settings_of(run)["seed"], settings_of(run)["status"], settings_of(run)["note"]) == (0, "finished", "")
    write_note(run, "mine")
    assert settings_of(run)["note"] == "mine"
    meta = json.loads((run.dir / "run.json").read_text())
    (run.dir / "run.json").write_text(
        json.dumps({**meta, "status": "training", "config": {**meta["config"], "seed": 7}})
    )
    wait(lambda: stamps.of_run(run.dir) is not None)
    assert (settings_of(run)["seed"], settings_of(run)["status"]) == (7, "interrupted")


def test_a_young_file_may_change_unseen(tmp_path: Path) -> None:
    assert stamps.of_folders([tmp_path / "nowhere"]) == (os.getcwd(),)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    assert stamps.of_run(tmp_path / "run") is None and stamps.of_folders([tmp_path]) is None
    wait(lambda: stamps.of_run(tmp_path / "run") is not None)
    before = stamps.of_folders([tmp_path])
    (tmp_path / "another").mkdir()
    assert stamps.of_folders([tmp_path]) == before is not None
