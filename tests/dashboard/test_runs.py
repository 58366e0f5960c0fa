"""The Runs page in every state: none, one, several, live, diverged, damaged, starting, failed."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs, navigation, state
from dashboard.jobs import Started
from dashboard.loading.run_summaries import POINTS, summary, thinned, when
from dashboard.shared.run_bar import short
from tests.dashboard.words import labels
from tracer.store import NotARun, Run

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]


class Ended:
    """A process that has ended, or has not."""

    def __init__(self, status: int | None) -> None:
        self.status = status

    def poll(self) -> int | None:
        return self.status


@pytest.fixture(autouse=True)
def no_processes(none_left: None) -> None:
    """Runs shows what was started, so each test begins with nothing."""


def words(app: AppTest) -> str:
    """Everything that is written on the page."""
    return "\n".join(str(e.value) for kind in (app.text, app.markdown, app.caption, app.code) for e in kind)


def test_one_run_is_a_card(open_page: Open) -> None:
    app = open_page("runs")
    assert "tiny" in [e.value for e in app.text]
    said = words(app)
    assert "finished" in said and "30 steps" in said and "induction · " in said and "No induction head" in said
    assert labels(app) == ["Train the demo (2 minutes)", "Train", "Open", "Open", "Open", "Fork", "Delete"]
    assert not app.error


def test_summary_says_what_the_files_say(small_run: Run) -> None:
    found, trace = summary(small_run), small_run.trace
    assert (found.preset, found.step, found.steps, found.share) == ("induction", 30, 30, 1.0)
    assert found.score == pytest.approx(float(trace["induction"][-1].max()))
    assert found.best is not None and float(trace["induction"][-1][found.best]) == found.score
    assert found.losses[0] == pytest.approx(float(trace["train_loss"][0]))
    assert found.n_params == small_run.meta["n_params"] and found.megabytes > 0.1
    assert math.isfinite(found.step_ms) and found.seconds_left == 0


def test_thinned_keeps_the_ends_and_leaves_out_gaps() -> None:
    assert thinned(np.array([3.0, np.nan, 2.0, 1.0])) == (3.0, 2.0, 1.0)
    many = thinned(np.arange(1000.0))
    assert len(many) == POINTS and many[0] == 0 and many[-1] == 999 and list(many) == sorted(many)
    assert thinned(np.array([np.nan])) == () and thinned(np.array([])) == ()


def test_a_time_that_is_none() -> None:
    assert when("yesterday") is None and when(None) is None  # type: ignore[arg-type]
    found = when("2026-11-21T02:34:37+00:00")
    assert found is not None and found.timestamp() == 1795228477


COUNTS = [(950, "950"), (45_376, "45.4k"), (401_792, "402k"), (23_094_272, "23.1M")]


@pytest.mark.parametrize(("count", "text"), COUNTS)
def test_parameters_in_short(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize("status", ["stopped", "interrupted", "diverged"])
def test_a_run_that_ended_early(status: str, open_page: Open, copy_run: Callable[..., Run]) -> None:
    # a process that died left "training" behind, and nobody holds the lock
    copy_run("other", status="training" if status == "interrupted" else status)
    app = open_page("runs")
    assert status in words(app) and "tep 30 of 30" in words(app)
    assert ("Resume" in labels(app)) == (status != "diverged")
    assert labels(app).count("Compare") == 2 and labels(app).count("See why") == (status == "diverged")


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
    assert "training" in words(app)
    app.button(key="stop other").click().run()
    assert asked == ["other"] and app.button(key="stop other").disabled


def test_a_run_that_cannot_be_stopped_says_why(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_run("other", status="training", host="another-machine", pid=1)
    monkeypatch.setattr(Run, "live", property(lambda self: self.name == "other"))
    app = open_page("runs")
    app.button(key="stop other").click().run()
    assert "other trains on another-machine: stop it there with Ctrl-C" in words(app)
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


def test_compare_takes_two_clicks_and_goes_to_training(workplace: Path, copy_run: Callable[..., Run]) -> None:
    copy_run("other")
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.button(key="compare tiny").click().run()
    assert "Compare tiny with which other run?" in [e.value for e in app.text]
    app.button(key="compare_cancel").click().run()
    assert "Compare with this one" not in labels(app)
    app.button(key="compare tiny").click().run()
    app.button(key="with other").click().run()
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
    assert "broken" in [e.value for e in app.text] and "tiny" in [e.value for e in app.text]
    assert not app.exception


def test_names_and_presets_of_strangers_are_never_markup(open_page: Open, copy_run: Callable[..., Run]) -> None:
    evil = "<img src=x onerror=alert(1)> **b**"
    copy_run(evil, preset="<script>x</script>")
    app = open_page("runs")
    assert evil in [e.value for e in app.text]
    markup = "\n".join(str(e.value) for kind in (app.markdown, app.caption) for e in kind)
    assert "onerror" not in markup and "<script>" not in markup and "own configuration" in markup


def test_with_no_run_the_page_teaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open) -> None:
    monkeypatch.chdir(tmp_path)
    app = open_page("runs")
    assert (
        "induction head" in words(app)
        and "tracer.watch(model" in words(app)
        and "Train the demo (2 minutes)" in labels(app)
    )
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "train", lambda *arguments: asked.append(arguments))
    app.button(key="train_demo").click().run()
    assert asked == [("demo", "demo-0", 0, 1300)]


def test_any_preset_can_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "train", lambda *arguments: asked.append(arguments))
    app = open_page("runs")
    app.selectbox(key="new_preset").set_value("many-eyes").run()
    assert "6 heads, context 256" in words(app)
    app.number_input(key="new_seed").set_value(3).run()
    app.number_input(key="new_steps many-eyes").set_value(50).run()
    app.button(key="train_new").click().run()
    app.text_input(key="new_name").set_value("mine").run()
    app.button(key="train_new").click().run()
    assert asked == [("many-eyes", "many-eyes-3", 3, 50), ("many-eyes", "mine", 3, 50)]


def test_a_run_is_forked_from_a_step(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "fork", lambda run, *rest: asked.append((run.name, *rest)))
    app = open_page("runs")
    app.button(key="fork tiny").click().run()
    app.button(key="fork").click().run()
    app.button(key="fork tiny").click().run()
    app.select_slider(key="fork_step tiny").set_value(10).run()
    app.number_input(key="fork_steps tiny 10").set_value(60).run()
    app.text_input(key="fork_clamp tiny").set_value("L0 no-previous").run()
    app.text_input(key="fork_name").set_value("mine").run()
    app.button(key="fork").click().run()
    assert asked == [("tiny", 0, "tiny-from-0", 30, ""), ("tiny", 10, "mine", 60, "L0 no-previous")]
    assert not app.exception


def test_a_fork_that_is_refused_says_why(open_page: Open) -> None:
    app = open_page("runs")
    app.button(key="fork tiny").click().run()
    app.text_input(key="fork_clamp tiny").set_value("L0H1 asleep").run()
    app.button(key="fork").click().run()
    assert any("clamp 'L0H1 asleep' is not understood" in e.value for e in app.text)
    app.text_input(key="fork_clamp tiny").set_value("L0H1 off").run()
    assert not any("asleep" in e.value for e in app.text)  # it is mended


def test_a_forked_run_says_where_it_is_from(open_page: Open, copy_run: Callable[..., Run], small_run: Run) -> None:
    config = {**small_run.meta["config"], "clamp": ["L0H1 off"]}
    copy_run("child", parent={"run": "a *b*", "step": 1200, "optimizer": "fresh"}, config=config)
    app = open_page("runs")
    assert [e.value for e in app.text if e.value.startswith("From")] == ["From a *b* at step 1,200, clamped: L0H1 off"]
    with pytest.raises(NotARun, match=r"parent=\['\?'\]"):
        copy_run("odd", parent=["?"])
    assert len([e for e in open_page("runs").text if e.value.startswith("From")]) == 1


def test_a_run_of_another_size_on_ones_own_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "train", lambda *arguments: asked.append(arguments))
    app = open_page("runs")
    assert "402k parameters, about 2 minutes (on two cores" in words(app)
    app.number_input(key="new_n_heads demo").set_value(3).run()
    assert "d_model=128 is not divisible by n_heads=3" in words(app) and app.button(key="train_new").disabled
    app.number_input(key="new_n_heads demo").set_value(8).run()
    app.text_input(key="new_corpus demo").set_value(str(tmp_path / "mine.txt")).run()
    assert "there is no file or folder" in words(app)
    (tmp_path / "mine.txt").write_text("a text")
    app.number_input(key="new_n_layers demo").set_value(4).run()
    assert "there is no file or folder" not in words(app) and "533k parameters, about 3 minutes" in words(app)
    app.button(key="train_new").click().run()
    changed = ("--model.n-layers=4", "--model.n-heads=8", f"--data.corpus={tmp_path / 'mine.txt'}")
    assert asked == [("demo", "demo-0", 0, 1300, *changed)]


def test_a_run_is_renamed_noted_deleted_and_brought_back(workplace: Path, copy_run: Callable[..., Run]) -> None:
    copy_run("other")
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.text_area(key="note other").set_value("*mine*").run()
    assert "*mine*" in [e.value for e in app.text]
    app.text_input(key="rename other").set_value("no/name").run()
    assert "a run's name is made of letters" in words(app)
    app.text_input(key="rename other").set_value("better").run()
    assert "better" in [e.value for e in app.text] and not Path("checkpoints/other").exists()
    app.button(key="ask better").click().run()
    app.button(key="delete better").click().run()
    assert not Path("checkpoints/better").exists()
    assert "better is deleted; for good when you leave this page." in words(app)
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


def test_a_bad_name_is_said_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open) -> None:
    monkeypatch.chdir(tmp_path)
    app = open_page("runs")
    app.text_input(key="new_name").set_value("../elsewhere").run()
    app.button(key="train_new").click().run()
    assert any("a run's name is made of letters" in e.value for e in app.text)
    assert not list(tmp_path.iterdir())


def test_a_process_is_shown_before_its_run_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    log.write_text("reading the text\n")
    process = Ended(None)
    one = Started("new", tmp_path / "new", log, process)  # type: ignore[arg-type]
    monkeypatch.setitem(jobs._STARTED, tmp_path / "new", one)
    app = open_page("runs")
    assert "starting" in words(app) and "reading the text" in words(app)
    process.status = 2
    log.write_text("there is no corpus <b>x</b>\n")
    app.run()
    assert "failed" in words(app) and app.code[0].value == "there is no corpus <b>x</b>"
    monkeypatch.setitem(jobs._STARTED, (tmp_path / "new").resolve(), jobs._STARTED.pop(tmp_path / "new"))
    app.button(key="dismiss new").click().run()
    assert "Train the demo (2 minutes)" in labels(app)


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


def test_a_hugging_face_model_is_opened_by_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "open_model", lambda *arguments: asked.append(arguments))
    app = open_page("runs")
    assert app.button(key="open_hf").disabled
    app.text_input(key="hf_model").set_value("EleutherAI/pythia-14m").run()
    app.text_input(key="hf_revisions").set_value(" step0  step1000 ").run()
    app.button(key="open_hf").click().run()
    for step in (500, 1000, 9):
        (tmp_path / "saved" / f"checkpoint-{step}").mkdir(parents=True)
    app.text_input(key="hf_model").set_value(str(tmp_path / "saved")).run()
    assert "3 checkpoints, of steps 9, 500, 1,000" in words(app) and "Revisions" not in str(app.text_input)
    app.text_input(key="hf_name").set_value("mine").run()
    app.button(key="open_hf").click().run()
    assert asked == [
        ("EleutherAI/pythia-14m", ["step0", "step1000"], "pythia-14m"),
        (str(tmp_path / "saved"), [], "mine"),
    ]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("/nowhere", "/nowhere is no directory of this machine."),
        ("~nobody-of-this-name", "~nobody-of-this-name is no directory of this machine."),
        (".", ". holds no model: save_pretrained writes a config.json beside the weights"),
        ("x" * 5000, ""),
    ],
)
def test_where_no_model_is_the_form_says_so_at_once(
    model: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    monkeypatch.chdir(tmp_path)
    app = open_page("runs")
    app.text_input(key="hf_model").set_value(model).run()
    assert not app.exception and app.button(key="open_hf").disabled == bool(said)
    assert not said or any(said in text.value for text in app.text)


OPENED = [
    ("~nobody-of-this-name", "does not exist"),
    ("nowhere", "does not exist"),
    (".", "has no run.json, so it is not a run directory"),
    ("\0", ""),
]


@pytest.mark.parametrize(("path", "message"), OPENED)
def test_a_directory_that_is_no_run(path: str, message: str, workplace: Path) -> None:
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.text_input(key="open_path").set_value(path).run()
    app.button(key="open_other").click().run()
    assert [title.value for title in app.title] == ["Runs"] and not app.exception
    assert any(message in e.value for e in app.text)


def test_a_newer_format_says_upgrade(workplace: Path, copy_run: Callable[..., Run]) -> None:
    newer = copy_run("newer")
    (newer.dir / "run.json").write_text(json.dumps({**newer.meta, "format": 99}))
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    assert "A folder here cannot be opened" in [e.label for e in app.expander]
    app.text_input(key="open_path").set_value(str(newer.dir)).run()
    app.button(key="open_other").click().run()
    assert any("upgrade manyeyes" in e.value for e in app.text)


def test_a_run_from_elsewhere_opens(
    workplace: Path, small_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.text_input(key="open_path").set_value(str(small_run.dir)).run()
    app.button(key="open_other").click().run()
    assert [title.value for title in app.title] == ["Heads"] and not app.exception
    assert app.session_state["selection"].run == str(small_run.dir)


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
