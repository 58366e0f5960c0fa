"""Runs of others have no bound of entropy by their weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.loading import diagnoses
from tracer.store import open_run


def test_runs_of_others_have_none(others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(others)
    assert [diagnoses.bounds(open_run(name), (0, 0)) for name in ("gpt", "opened")] == [None, None]
