"""Find while a run trains: what is read stays until newer passages are asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.state import Selection
from tests.dashboard.words import captions, shown
from tracer.store import Run
from tracer.store.layout import Lock


@pytest.fixture
def live(copy_run: Callable[..., Run]) -> Iterator[Run]:
    """A run that a process holds, with snapshots up to step 20."""
    run = copy_run("other", status="training")
    (run.dir / "snapshots" / "000030.safetensors").unlink()
    lock = Lock(run.dir)
    yield run
    lock.release()


def go_on(run: Run) -> None:
    """The snapshot of step 30, with weights that look elsewhere."""
    shutil.copy(run.dir / "snapshots" / "000000.safetensors", run.dir / "snapshots" / "000030.safetensors")


def at(app: AppTest) -> str:
    return app.button(key="read_newest").label


def test_passages_stay_until_newer_ones_are_asked_for(live: Run, open_page: Callable[..., AppTest], sent: Any) -> None:
    app = open_page("find", run="other")
    first, ends = sent(app, "passages")[0], (shown(app, "looks_to"), shown(app, "spread"))
    assert at(app) == "Step 20, the newest" and app.button(key="read_newest").disabled
    go_on(live)
    app.run()
    assert at(app) == "Read step 30"
    assert sent(app, "passages")[0] == first and (shown(app, "looks_to"), shown(app, "spread")) == ends
    assert "Searched at step 20: 64 rows" in captions(app)
    app.button(key="read_newest").click().run()
    assert at(app) == "Step 30, the newest" and sent(app, "passages")[0] != first


@pytest.mark.parametrize(
    "asked", [{"step": 30}, {"layer": 0, "head": 1}, {"looks": "farthest"}], ids=lambda asked: next(iter(asked))
)
def test_what_is_asked_for_anew_is_of_the_newest_step(
    asked: dict[str, Any], live: Run, open_page: Callable[..., AppTest]
) -> None:
    app = open_page("find", run="other")
    go_on(live)
    app.session_state["selection"] = Selection(run="other", **asked)
    app.run()
    assert at(app) == "Step 30, the newest"


def test_a_run_that_stands_has_one_newest_step(open_page: Callable[..., AppTest]) -> None:
    assert "read_newest" not in [button.key for button in open_page("find", run="tiny").button]
