"""What begins a run from the Runs page: a preset, a fork, a Hugging Face model, a directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from tests.dashboard.conftest import APP
from tests.dashboard.words import written
from tracer.store import Run

Open = Callable[..., AppTest]
Asked = list[tuple[object, ...]]

pytestmark = pytest.mark.usefixtures("none_left")


@pytest.fixture
def asked(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """In an empty folder: what was to be trained or opened, instead of a process that does."""
    arguments: Asked = []
    monkeypatch.chdir(tmp_path)
    for name in ("train", "open_model"):
        monkeypatch.setattr(jobs, name, lambda *given: arguments.append(given))
    return arguments


def test_any_preset_can_be_trained(asked: Asked, open_page: Open) -> None:
    app = open_page("runs")
    app.selectbox(key="new_preset").set_value("many-eyes").run()
    assert "6 heads, context 256" in written(app)
    app.number_input(key="new_seed").set_value(3).run()
    app.number_input(key="new_steps many-eyes").set_value(50).run()
    app.button(key="train_new").click().run()
    app.text_input(key="new_name").set_value("mine").run()
    app.button(key="train_new").click().run()
    assert asked == [("many-eyes", "many-eyes-3", 3, 50), ("many-eyes", "mine", 3, 50)]


def test_a_run_is_forked_from_a_step(open_page: Open, small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "fork", lambda run, *rest: asked.append((run.name, *rest)))
    app, where = open_page("runs"), str(small_run.dir.resolve())
    app.button(key="fork tiny").click().run()
    app.button(key="fork").click().run()
    app.button(key="fork tiny").click().run()
    assert any(e.value.startswith("The optimizer goes on, too") for e in app.caption)  # step 0 is kept
    app.select_slider(key=f"fork_step {where}").set_value(10).run()
    assert "The optimizer starts fresh here. It goes on from step 0 or 30." in [e.value for e in app.caption]
    app.number_input(key=f"fork_steps {where} 10").set_value(60).run()
    app.text_input(key=f"fork_clamp {where}").set_value("L0 no-previous").run()
    app.text_input(key="fork_name").set_value("mine").run()
    app.button(key="fork").click().run()
    assert asked == [("tiny", 0, "tiny-from-0", 30, ""), ("tiny", 10, "mine", 60, "L0 no-previous")]
    assert not app.exception


def test_a_fork_that_is_refused_says_why(open_page: Open, small_run: Run) -> None:
    app, where = open_page("runs"), str(small_run.dir.resolve())
    app.button(key="fork tiny").click().run()
    app.text_input(key=f"fork_clamp {where}").set_value("L0H1 asleep").run()
    app.button(key="fork").click().run()
    assert any("clamp 'L0H1 asleep' is not understood" in e.value for e in app.text)
    app.text_input(key=f"fork_clamp {where}").set_value("L0H1 off").run()
    assert not any("asleep" in e.value for e in app.text)  # it is mended


def test_a_run_of_another_size_on_ones_own_text(asked: Asked, tmp_path: Path, open_page: Open) -> None:
    app = open_page("runs")
    assert "402k parameters, about 2 minutes (on two cores" in written(app)
    app.number_input(key="new_n_heads demo").set_value(3).run()
    assert "d_model=128 is not divisible by n_heads=3" in written(app) and app.button(key="train_new").disabled
    app.number_input(key="new_n_heads demo").set_value(8).run()
    app.text_input(key="new_corpus demo").set_value(str(tmp_path / "mine.txt")).run()
    assert "there is no file or folder" in written(app)
    (tmp_path / "mine.txt").write_text("a text")
    app.number_input(key="new_n_layers demo").set_value(4).run()
    assert "there is no file or folder" not in written(app) and "533k parameters, about 3 minutes" in written(app)
    app.button(key="train_new").click().run()
    changed = ("--model.n-layers=4", "--model.n-heads=8", f"--data.corpus={tmp_path / 'mine.txt'}")
    assert asked == [("demo", "demo-0", 0, 1300, *changed)]


def test_a_bad_name_is_said_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open) -> None:
    monkeypatch.chdir(tmp_path)
    app = open_page("runs")
    app.text_input(key="new_name").set_value("../elsewhere").run()
    app.button(key="train_new").click().run()
    assert any("a run's name is made of letters" in e.value for e in app.text)
    assert not list(tmp_path.iterdir())


def test_a_hugging_face_model_is_opened_by_a_process(asked: Asked, tmp_path: Path, open_page: Open) -> None:
    app = open_page("runs")
    assert app.button(key="open_hf").disabled
    app.text_input(key="hf_model").set_value("EleutherAI/pythia-14m").run()
    app.text_input(key="hf_revisions").set_value(" step0  step1000 ").run()
    app.button(key="open_hf").click().run()
    for step in (500, 1000, 9):
        (tmp_path / "saved" / f"checkpoint-{step}").mkdir(parents=True)
    app.text_input(key="hf_model").set_value(str(tmp_path / "saved")).run()
    assert "3 checkpoints, of steps 9, 500, 1,000" in written(app) and "Revisions" not in str(app.text_input)
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


def test_a_folder_that_nobody_here_may_read_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: Open
) -> None:
    listed = os.listdir

    def refused(path: str = ".") -> list[str]:
        if str(path).endswith("theirs"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.chdir(tmp_path)
    Path("theirs").mkdir()
    app = open_page("runs")
    monkeypatch.setattr(os, "listdir", refused)
    app.text_input(key="hf_model").set_value("theirs").run()
    assert not app.exception and any("theirs holds no model" in text.value for text in app.text)


OPENED = [
    ("~nobody-of-this-name", "is not here"),
    ("nowhere", "is not here"),
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
