"""A run that was trained on a loss of somebody's own: Training says so, and no page goes on with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.theme import unmarked
from tests.dashboard.words import written
from tracer.store import Run


@pytest.fixture
def focal(copy_run: Callable[..., Run]) -> Run:
    return copy_run("focal", loss="mine:focal")


def test_training_says_what_was_trained_on(focal: Run, open_page: Callable[..., AppTest]) -> None:
    said = written(open_page("training", run="focal"))
    assert rf"Next-token losses; the run was trained on {unmarked('mine:focal')}, drawn below." in said


def test_going_on_is_for_a_shell(focal: Run) -> None:
    starts: Any = {
        "resume focal": lambda: jobs.resume(focal),
        "fork focal --step 8": lambda: jobs.fork(focal, 8, "next", 60),
    }
    for command, start in starts.items():
        with pytest.raises(ValueError, match=rf"trained with loss of somebody's own.*`tracer {command} --loss ...`$"):
            start()
    assert jobs.started() == []
