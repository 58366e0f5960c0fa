"""The Runs page in every state: none, one, several, live, diverged, damaged, starting, failed."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from streamlit.testing.v1 import AppTest

from dashboard import jobs, navigation, state, theme
from dashboard.jobs import Started
from dashboard.loading.run_summaries import POINTS, recent_ms, summary, thinned, when
from dashboard.shared.run_bar import short
from dashboard.views.runs import data
from tests.dashboard.words import labels, written
from tracer.store import NotARun, Run

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]

pytestmark = pytest.mark.usefixtures("none_left")
"""Runs shows what was started, so each test begins with nothing."""


class Ended:
    """A process that has ended, or has not."""

    def __init__(self, status: int | None) -> None:
        self.status = status

    def poll(self) -> int | None:
        return self.status


def heads_drawn(app: AppTest) -> list[str]:
    """What each picture of heads is called, in the order of the page."""
    html = "".join(e.proto.body for e in app.get("html") if "heads-strip" in e.proto.body)
    return re.findall(r"<img src='data:image/png;base64,[^']+' alt='([^']+)'", html)


def test_of_too_few_records_no_head_is_said_to_be_missing(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = copy_run("short")
    store = zarr.open_group(str(run.dir / "trace.zarr"), mode="r+")
    store["train_loss"][7:] = np.nan  # pyrefly: ignore[unsupported-operation]
    said = written(open_page("runs"))
    assert said.count("Too early to say") == 1 and said.count("No induction head") == 1  # of the other run


def test_one_run_is_a_row(open_page: Open, small_run: Run) -> None:
    app = open_page("runs")
    said = written(app)
    assert "healthy" in said and "30 steps" in said and "induction · " in said and "No induction head" in said
    assert labels(app) == ["Train the demo (some minutes)", "Train", "Open", "Open", "tiny", "Fork", "Delete"]
    shape = small_run.trace["induction"].shape[1:]
    assert f"{shape[0]} × {shape[1]} heads" in said
    drawn = [label.partition(",")[0] for label in heads_drawn(app)]
    assert drawn == [f"L{layer}H{head}" for layer, head in np.ndindex(*shape)]
    assert not app.error


def test_of_many_heads_each_is_a_square_and_the_strongest_are_shown(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "FEW", 3)
    monkeypatch.setattr(data, "STRONGEST", 2)
    copy_run("other")
    drawn = heads_drawn(open_page("runs"))
    at = next(i for i, said in enumerate(drawn) if re.fullmatch(r"\d heads, \d with a role; a row a layer, .*", said))
    shown = drawn[at + 1 : at + 3]
    assert len(shown) == 2 and shown == sorted(shown) and all(said.startswith("L") for said in shown)


def test_summary_says_what_the_files_say(small_run: Run) -> None:
    found, trace = summary(small_run), small_run.trace
    assert (found.preset, found.step, found.steps, found.share) == ("induction", 30, 30, 1.0)
    above = (trace["induction"] - trace["induction_control"])[-1].values
    assert found.best == np.unravel_index(int(above.argmax()), above.shape) and found.stands_out
    assert found.best is not None and float(trace["induction"][-1][found.best]) == found.score
    assert found.losses[0] == pytest.approx(float(trace["val_loss"][0])) and found.loss == "held-out loss"
    assert found.loss_step == 30
    assert found.n_params == small_run.meta["n_params"] and found.megabytes > 0.1
    assert math.isfinite(found.step_ms) and found.seconds_left == 0


def test_thinned_keeps_the_ends_and_leaves_out_gaps() -> None:
    assert thinned(np.array([3.0, np.nan, 2.0, 1.0])) == (3.0, 2.0, 1.0)
    many = thinned(np.arange(1000.0))
    assert len(many) == POINTS and many[0] == 0 and many[-1] == 999 and list(many) == sorted(many)
    assert thinned(np.array([np.nan])) == () and thinned(np.array([])) == ()


@pytest.mark.parametrize(
    ("recorded", "ms"),
    [
        ([10, 20, 90], 20),  # the middle one: a step that compiled or that evaluated does not count
        ([900] * 9 + [1, 2, 3, 4, 5, 6, 7, 80], 4.5),  # of the last 8
        ([math.nan, 7, math.nan], 7),
        ([math.nan], math.nan),
    ],
)
def test_the_speed_is_the_median_of_the_last_records(recorded: list[float], ms: float) -> None:
    assert recent_ms(xr.Dataset({"step_ms": ("step", recorded)})) == pytest.approx(ms, nan_ok=True)
    assert math.isnan(recent_ms(xr.Dataset()))


def test_a_time_that_is_none() -> None:
    assert when("yesterday") is None and when(None) is None  # pyrefly: ignore[bad-argument-type]
    assert when("0001-01-01T00:00:00+14:00") is None  # before the first day there is
    found = when("2026-11-21T02:34:37+00:00")
    assert found is not None and found.timestamp() == 1795228477


COUNTS = [(950, "950"), (45_376, "45.4k"), (401_792, "402k"), (23_094_272, "23.1M")]


@pytest.mark.parametrize(("count", "text"), COUNTS)
def test_parameters_in_short(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize("status", ["stopped", "interrupted", "diverged"])
def test_a_run_that_ended_early(status: str, open_page: Open, copy_run: Callable[..., Run]) -> None:
    # a process that died left "training" behind, and nobody holds the lock
    run = copy_run("other", status="training" if status == "interrupted" else status)
    app = open_page("runs")
    assert status in written(app) and ("Broke at step 30" if status == "diverged" else "Step 30 of 30") in written(app)
    assert ("Resume" in labels(app)) == (status != "diverged")
    assert labels(app).count("See why") == (status == "diverged")
    last = f"→ {float(run.trace.val_loss[-1]):.3f}**"
    assert (last in written(app)) == (status == "diverged") == ("held-out, by step 30" in written(app))


def test_resume_starts_a_process(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_run("other", status="stopped")
    asked: list[str] = []
    monkeypatch.setattr(jobs, "resume", lambda run: asked.append(run.name))
    app = open_page("runs")
    app.button(key="resume other").click().run()
    assert asked == ["other"]


def test_a_live_run_can_be_stopped(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_run("other", status="training")
    monkeypatch.setattr(Run, "live", property(lambda self: self.name == run.name))
    asked: list[str] = []
    monkeypatch.setattr(jobs, "stop", lambda run: asked.append(run.name))
    app = open_page("runs")
    assert "training" in written(app)
    app.button(key="stop other").click().run()
    assert asked == ["other"] and app.button(key="stop other").disabled


def test_a_run_that_cannot_be_stopped_says_why(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_run("other", status="training", host="another-machine", pid=1)
    monkeypatch.setattr(Run, "live", property(lambda self: self.name == "other"))
    app = open_page("runs")
    app.button(key="stop other").click().run()
    assert "other trains on another-machine: stop it there with Ctrl-C" in written(app)
    assert not app.exception


def test_open_goes_to_heads(workplace: Path) -> None:
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.button(key="open tiny").click().run()
    assert app.session_state["selection"].run == "tiny"
    assert [title.value for title in app.title] == ["Heads"] and not app.exception


def test_the_first_page_does_without_torch(workplace: Path) -> None:
    script = (
        "import sys\nfrom streamlit.testing.v1 import AppTest\n"
        f"app = AppTest.from_file({str(APP)!r}, default_timeout=300).run()\n"
        "assert not app.exception and len(app.button) == 7, app\n"
        "sys.exit(', '.join({'torch', 'transformer_lens', 'datasets'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_two_runs_are_compared_on_training(workplace: Path, copy_run: Callable[..., Run]) -> None:
    assert "compare_go" not in {button.key for button in AppTest.from_file(str(APP), default_timeout=300).run().button}
    copy_run("other")
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.selectbox(key="compare_first").set_value("tiny").run()
    assert app.selectbox(key="compare_second").options == ["other"]
    app.button(key="compare_go").click().run()
    selection = app.session_state["selection"]
    assert (selection.run, selection.compare) == ("tiny", "other")
    assert [title.value for title in app.title] == ["Training"] and not app.exception


DAMAGE: list[tuple[str, Any]] = [("config", None), ("n_params", "many"), ("created", None), ("config", {"steps": "x"})]


@pytest.mark.parametrize(("field", "value"), DAMAGE)
def test_a_damaged_run_does_not_take_the_page_down(
    field: str, value: Any, open_page: Open, copy_run: Callable[..., Run]
) -> None:
    with contextlib.suppress(NotARun):  # what opens it refuses it, in words
        copy_run("broken", **{field: value})
    app = open_page("runs")
    assert "broken" in labels(app) + [e.value for e in app.text] and "tiny" in labels(app)
    assert not app.exception


def test_names_and_presets_of_strangers_are_never_markup(open_page: Open, copy_run: Callable[..., Run]) -> None:
    evil = "<img src=x onerror=alert(1)> **b**"
    copy_run(evil, preset="<script>x</script>")
    app = open_page("runs")
    assert theme.unmarked(evil) in labels(app)
    markup = "\n".join(str(e.value) for kind in (app.markdown, app.caption) for e in kind)
    assert "onerror" not in markup and "<script>" not in markup and "own configuration" in markup


def test_with_no_run_the_page_teaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open) -> None:
    monkeypatch.chdir(tmp_path)
    app = open_page("runs")
    assert (
        "induction head" in written(app)
        and "tracer.watch(model" in written(app)
        and "Train the demo (some minutes)" in labels(app)
    )
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "train", lambda *arguments: asked.append(arguments))
    app.button(key="train_demo").click().run()
    assert asked == [("demo", "demo-0", 0, 1300)]


def test_a_second_demo_gets_a_name_of_its_own(
    tmp_path: Path, small_run: Run, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_run.dir, "checkpoints/demo-0")
    asked: list[str] = []
    monkeypatch.setattr(jobs, "train", lambda _, name, *rest: asked.append(name))
    app = open_page("runs")
    app.button(key="train_demo").click().run()
    making = [Started("demo-0-2", tmp_path, tmp_path, None)]  # pyrefly: ignore[bad-argument-type]
    monkeypatch.setattr(jobs, "making", lambda: making)
    app.button(key="train_demo").click().run()
    assert asked == ["demo-0-2"]


def test_a_forked_run_says_where_it_is_from(open_page: Open, copy_run: Callable[..., Run], small_run: Run) -> None:
    config = {**small_run.meta["config"], "clamp": ["L0H1 off"]}
    copy_run("child", parent={"run": "a *b*", "step": 1200, "optimizer": "fresh"}, config=config)
    app = open_page("runs")
    said = "From a *b* at step 1,200, clamped: L0H1 off"
    assert [e.value for e in app.text if e.value.startswith("From")] == [said, said]  # in its row, and in its menu
    facts = {"run": "a *b*", "first": 540, "last": 1664, "every": 1, "compared": [1700], "parts": None, "apart": 0.0}
    copy_run("again", parent={"run": "a *b*", "step": 500, "optimizer": "continued"}, replay=facts)
    app = open_page("runs")
    assert "Steps 540 to 1,664 of a *b* again, equal to the bit" in [e.value for e in app.text]
    of = {"run": "a *b*", "created": "then", "kind": "scores", "step": 700, "name": "rate", "named": True,
          "words": "learning rate 0.25, not 1", "start": 1200, "until": 2000}  # fmt: skip
    copy_run("helped", parent={"run": "a *b*", "step": 1200, "optimizer": "continued"}, remedy=of)
    assert "Again from step 1,200 of a *b*: learning rate 0.25, not 1" in [e.value for e in open_page("runs").text]
    with pytest.raises(NotARun, match=r"parent=\['\?'\]"):
        copy_run("odd", parent=["?"])
    assert len([e for e in open_page("runs").text if e.value.startswith("From")]) == 2


def test_a_run_is_renamed_noted_deleted_and_brought_back(workplace: Path, copy_run: Callable[..., Run]) -> None:
    copy_run("other")
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.text_area(key="note other").set_value("*mine*").run()
    assert "*mine*" in [e.value for e in app.text]
    app.text_input(key="rename other").set_value("no/name").run()
    assert "a run's name is made of letters" in written(app)
    app.text_input(key="rename other").set_value("better").run()
    assert "better" in labels(app) and not Path("checkpoints/other").exists()
    app.button(key="ask better").click().run()
    app.button(key="delete better").click().run()
    assert not Path("checkpoints/better").exists()
    assert "better is deleted; for good when you leave this page." in written(app)
    (undo,) = [button for button in app.button if button.label == "Undo"]
    undo.click().run()
    assert Path("checkpoints/better/note.txt").read_text() == "*mine*" and not app.exception
    app.button(key="ask better").click().run()
    app.button(key="delete better").click().run()
    assert len(list(Path("checkpoints/.trash").iterdir())) == 1
    app.session_state["shown"] = set()  # as where a page is turned
    app.run()
    assert not list(Path("checkpoints/.trash").iterdir()) and not app.exception
    Path("checkpoints/other").mkdir()  # for `copy_run` to take away


def test_a_process_is_shown_before_its_run_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    log.write_text("reading the text\n")
    process = Ended(None)
    one = Started("new", tmp_path / "new", log, process)  # pyrefly: ignore[bad-argument-type]
    monkeypatch.setitem(jobs._STARTED, tmp_path / "new", one)
    app = open_page("runs")
    assert "starting" in written(app) and "reading the text" in written(app)
    process.status = 2
    log.write_text("there is no corpus <b>x</b>\n")
    app.run()
    assert "failed" in written(app) and app.code[-1].value == "there is no corpus <b>x</b>"
    monkeypatch.setitem(jobs._STARTED, (tmp_path / "new").resolve(), jobs._STARTED.pop(tmp_path / "new"))
    app.button(key="dismiss new").click().run()
    assert "Train the demo (some minutes)" in labels(app)


def test_folders_that_cannot_be_opened_are_named_with_the_reason(
    open_page: Open, copy_run: Callable[..., Run], workplace: Path
) -> None:
    assert not any("cannot be opened" in e.label for e in open_page("runs").expander)
    evil = copy_run("**x** <img src=x>")
    (evil.dir / "run.json").write_text("{")
    newer = copy_run("newer")
    (newer.dir / "run.json").write_text('{"format": 99}')
    app = open_page("runs")
    assert "2 folders here cannot be opened" in [e.label for e in app.expander]
    said = [e.value for e in app.text]
    assert "**x** <img src=x>" in said and any("is not readable JSON" in text for text in said)
    assert any("upgrade manyeyes" in text for text in said)
    assert "<img" not in "".join(str(e.value) for kind in (app.markdown, app.caption) for e in kind)


def test_runs_has_an_address_of_its_own_beside_the_landing_page():
    def script() -> None:
        import streamlit as st

        from dashboard import navigation

        st.json({page.url_path: page.visibility for page in navigation.pages()})

    app = AppTest.from_function(script).run()
    assert not app.exception
    found = json.loads(app.json[0].value)
    assert found == dict.fromkeys(["", *list(navigation.TITLES)[1:]], "visible") | {"runs": "hidden"}


def test_a_step_too_large_for_any_number_is_cut_to_one_that_pages_can_compare():
    assert state.from_query({"step": "9" * 20, "layer": "9" * 30}) == state.Selection(step=2**31 - 1, layer=2**31 - 1)


@pytest.mark.parametrize("view", ["heads", "training", "gradients", "ablate"])
def test_a_run_name_too_long_for_the_file_system_is_refused_in_words(view: str):
    def script(view: str) -> None:
        import importlib

        importlib.import_module(f"dashboard.views.{view}.page").page()

    app = AppTest.from_function(script, kwargs={"view": view})
    app.query_params["run"] = "a" * 300
    app.run()
    assert not app.exception
    assert app.error[0].value == "This cannot be shown."
