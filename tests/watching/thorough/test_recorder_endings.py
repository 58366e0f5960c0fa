"""The other ways in which the program of tests/watching/test_recorder_endings.py ends."""

from pathlib import Path

import pytest

from tests.watching.test_recorder_endings import ENDINGS
from tests.watching.test_recorder_endings import test_how_a_program_ended_is_in_its_run as ended


@pytest.mark.parametrize("ending", sorted(ENDINGS.keys() - {"kill"}))
def test_how_another_program_ended_is_in_its_run(tmp_path: Path, ending: str) -> None:
    ended(tmp_path, ending)
