"""What somebody meets on a first day: a run that is not there yet, what a measure is, a fork that has begun."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs, navigation
from dashboard.jobs import Started
from dashboard.shared import choosers
from tests import children
from tracer.measures import MEASURES
from tracer.store import Run

Open = Callable[..., AppTest]
STARTING = "This run is starting"


@pytest.fixture
def place(none_left: None, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to start in, after that of `open_page`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def begin(name: str) -> Started:
    """A process that makes no run for a long time."""
    directory = Path("checkpoints") / name
    log = Path(f"{name}.log")
    log.touch()
    one = Started(name, directory, log, children.start(["sleep", "600"]))
    jobs._STARTED[directory.resolve()] = one
    return one


def infos(app: AppTest) -> str:
    return "\n".join(info.value for info in app.info)


@pytest.mark.parametrize("chosen", [{}, {"run": "new"}])
def test_a_run_that_is_starting_opens_by_itself(place: Path, open_page: Open, small_run: Run, chosen: dict) -> None:
    begin("new")
    app = open_page("heads", **chosen)
    assert STARTING in infos(app) and not app.error
    assert app.selectbox(key="run_box").value == "new" and any("starting" in c.value for c in app.caption)
    shutil.copytree(small_run.dir, "checkpoints/new")
    app.run()
    assert not app.exception and STARTING not in infos(app) and any("All heads" in h.value for h in app.header)


def test_a_process_that_ended_made_no_run(place: Path, open_page: Open) -> None:
    one = begin("new")
    one.process.kill()
    one.process.wait()
    app = open_page("heads", run="new")
    assert app.error and "new is not here any more" in app.text[0].value


def test_what_a_measure_is_stands_beside_its_name(open_page: Open, small_run: Run) -> None:
    for page in ("heads", "find"):
        app = open_page(page, run="tiny", measure="entropy")
        assert app.selectbox(key="measure_box").help == choosers.explanation("entropy", small_run)
    text = choosers.explanation("induction", small_run)
    assert text.startswith("**Induction score**: Half of an induction head") and r"Formula: sum of A\_qk" in text
    assert choosers.explanation("tokens_seen", small_run).startswith("**Training tokens seen**: step \\* batch size")
    assert "Range 0 to 1." in text
    assert MEASURES["entropy"].unit == "nats" and "nats." in choosers.explanation("entropy", small_run)


@pytest.mark.parametrize(("shown", "hidden"), [("", "runs"), ("runs", "")])
def test_the_menu_shows_runs_once(shown: str, hidden: str) -> None:
    def script(shown: str) -> None:
        import streamlit as st

        from dashboard import navigation

        st.json([[page.url_path, page.title, page.visibility] for page in navigation.pages(shown or "landing")])

    app = AppTest.from_function(script, kwargs={"shown": shown}).run()
    pages = json.loads(app.json[0].value)
    assert [title for _, title, visibility in pages if visibility == "visible"] == list(navigation.TITLES.values())
    assert [address for address, _, visibility in pages if visibility == "hidden"] == [hidden]


def test_a_fork_that_begins_closes_its_form(place: Path, small_run: Run, open_page: Open) -> None:
    shutil.copytree(small_run.dir, "checkpoints/tiny")
    app = open_page("runs")
    where = str(Path("checkpoints/tiny").resolve())
    app.session_state["forking"] = where
    app.run()
    app.select_slider(key=f"fork_step {where}").set_value(10)
    app.text_input(key="fork_name").input("sprout")
    app.button(key="fork").click().run()  # before the page was drawn with the name
    assert not app.exception and "forking" not in app.session_state
    assert [(one.name, "10" in one.process.args) for one in jobs.started()] == [("sprout", True)]  # pyrefly: ignore[not-iterable, unsupported-operation]


def test_a_click_right_after_a_key_starts_what_was_typed(place: Path, open_page: Open, small_run: Run) -> None:
    shutil.copytree(small_run.dir, "checkpoints/tiny")
    app = open_page("runs")
    app.selectbox(key="new_preset").set_value("induction").run()
    app.number_input(key="new_seed").set_value(3)
    app.number_input(key="new_steps induction").set_value(7)
    app.text_input(key="new_name").input("quick")
    app.button(key="train_new").click().run()
    (one,) = jobs.started()
    assert one.name == "quick" and list(one.process.args)[-4:] == ["--seed", "3", "--steps", "7"]  # pyrefly: ignore[bad-argument-type]
