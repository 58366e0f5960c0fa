"""Links in a stranger's run: nothing of another place is written, emptied or removed through them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracer.analysis.run_sweep import sweep_run
from tracer.analysis.survey import survey
from tracer.files.disk import Damaged
from tracer.store import Run, housekeeping
from tracer.training import loop

Deed = Callable[[Run], object]
WRITING: dict[str, Deed] = {
    "resume": lambda run: loop.resume(run.dir, steps=31, quiet=True),
    "overwrite": lambda run: loop.train(replace(run.config, run=str(run.dir)), overwrite=True, quiet=True),
    "sweep": lambda run: sweep_run(run, modes=["zero"], steps=[30]),
    "survey": lambda run: survey(run, tokens=64),
}
MOVING: dict[str, Deed] = {
    "rename": lambda run: housekeeping.rename(run, "renamed"),
    "remove": lambda run: housekeeping.remove(run),
    "discard": lambda run: housekeeping.discard(housekeeping.remove(run)),
    "note": lambda run: housekeeping.write_note(run, "mine"),
    "no note": lambda run: housekeeping.write_note(run, ""),
}


@pytest.fixture
def run(short_toy: Path, tmp_path: Path) -> Run:
    return Run(shutil.copytree(short_toy, tmp_path / "checkpoints" / "run"))


@pytest.fixture
def mine(short_toy: Path, tmp_path: Path) -> Path:
    """Another run, and a file of mine."""
    folder = tmp_path / "mine"
    shutil.copytree(short_toy, folder / "run")
    (folder / "letter").write_text("dear")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put(link: Path, target: Path, how: Callable[..., None]) -> None:
    shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
    how(target, link)


@pytest.mark.parametrize(
    ("name", "deed"),
    [("lock", "resume"), ("lock", "remove"), ("effects.lock", "sweep"), ("snapshots", "resume"), ("surveys", "survey"),
     ("snapshots", "discard"), ("trace.zarr/zarr.json", "overwrite"), ("note.txt", "note")],
)  # fmt: skip
def test_nothing_is_changed_through_a_link(run: Run, mine: Path, name: str, deed: str) -> None:
    """To a file or folder of the same name in another run, or where that has none, to a letter."""
    target, before = mine / "run" / name, content(mine)
    put(run.dir / name, target if target.exists() else mine / "letter", os.symlink)
    if deed in WRITING:
        with pytest.raises((Damaged, ValueError), match=f"{name} is a link to .*: put a copy of it in its place|leads"):
            WRITING[deed](run)
    elif name in ("lock", "effects.lock") and "note" not in deed:
        with pytest.raises(Damaged, match=f"{name} is a link to"):
            MOVING[deed](run)
    else:
        MOVING[deed](run)
    assert content(mine) == before


def test_nothing_is_changed_through_a_second_name(run: Run, mine: Path) -> None:
    before = content(mine)
    for name in ("lock", "log.jsonl"):
        put(run.dir / name, mine / "letter", os.link)
        with pytest.raises(Damaged, match=f"{name} has another name elsewhere"):
            WRITING["resume"](run)
        (run.dir / name).unlink()
    assert content(mine) == before


def test_a_run_may_be_a_link_itself(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(run.dir)
    found = survey(Run(tmp_path / "elsewhere"), tokens=64)
    assert np.isfinite(found.entropy).all() and list((run.dir / "surveys").iterdir())
