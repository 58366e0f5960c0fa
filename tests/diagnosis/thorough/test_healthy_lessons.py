"""Healthy watched loops of other kinds: none is accused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.lessons import WELL
from tests.diagnosis.test_lessons import QUICK
from tracer.diagnosis import examine


@pytest.mark.parametrize("name", sorted(WELL.keys() - set(QUICK)))
def test_a_healthy_watched_loop_gets_no_finding(name: str, tmp_path: Path) -> None:
    assert examine(WELL[name].train(tmp_path / "run")).findings == []
