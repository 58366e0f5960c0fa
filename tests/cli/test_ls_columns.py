"""`tracer ls --find`: the numbers that were asked for stand in the table, and a name that no run has is said."""

import json
from pathlib import Path

import pytest

from tracer.cli.ls import ls
from tracer.store import open_run


@pytest.fixture
def folder(short_toy: Path) -> Path:
    return short_toy.parent


def test_what_was_asked_for_is_a_column(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ls(str(folder), find="induction > 0 optim.lr>0")
    head, row = capsys.readouterr().out.splitlines()[:2]
    last = open_run(folder / "tiny").trace.induction.values[-1]
    assert head.split()[-2:] == ["induction", "optim.lr"]
    assert f"{last.min():.4g} to {last.max():.4g}" in row and row.endswith(
        f"{open_run(folder / 'tiny').config.optim.lr:.4g}"
    )


def test_a_name_that_no_run_has_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ls(str(folder), find="seed=12 foo>1 bar=2")
    assert "holds 'seed=12 foo>1 bar=2'; no run has foo or bar" in capsys.readouterr().out
    ls(str(folder), find="seed=12")
    assert "no run has" not in capsys.readouterr().out


def test_as_json_with_settings_tags_and_note(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ls(str(folder), find="val_loss>0", json=True)
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    loss = float(open_run(folder / "tiny").trace.val_loss.values[-1])
    assert found["asked"] == {"val_loss": [pytest.approx(loss)]}
    assert (found["settings"], found["tags"], found["note"]) == ({}, [], "")
