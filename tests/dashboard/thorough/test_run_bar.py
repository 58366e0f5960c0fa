"""The line that says how a run stands: counted, stopped, resumed, forked: what the first tier leaves."""

from pathlib import Path

from tests.dashboard.test_run_bar import Open, line
from tests.dashboard.words import labels


def test_other_peoples_programs_are_left_alone(elsewhere: Path, open_page: Open) -> None:
    app = open_page("training", run="patches")
    assert line(app) == ":green-badge[✓ finished] &nbsp;6 steps"
    assert not {"Stop", "Resume", "Fork"} & set(labels(app))
