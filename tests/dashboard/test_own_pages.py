"""A page of a person's own: in the menu by its file's name, given the run and the choices, and read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.first_response import routes
from dashboard.state import Selection
from tracer.cli.commands import main
from tracer.cli.own_pages import SETTING, asked, files
from tracer.store import Run

PAGE = """
import streamlit as st
from beside import WORD

def page(run, selection):
    st.text(f"{WORD} {run.name}: {len(run.trace.step)} records, {selection.measure}")
"""
SCRIPT = """
from dashboard.views.own.page import page_of
from tracer.cli.own_pages import asked

for name, path in asked().items():
    page_of(name, path)()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One page, a file beside it that is none, and a module that it imports."""
    made, other = tmp_path / "pages", tmp_path / "other"
    made.mkdir()
    other.mkdir()
    (made / "my_study.py").write_text(PAGE)
    (made / "_beside_the_menu.py").write_text("")
    (other / "beside.py").write_text("WORD = 'Of'\n")
    monkeypatch.setenv(SETTING, str(made))
    monkeypatch.syspath_prepend(str(other))
    return made


def drawn(run: Run) -> AppTest:
    app = AppTest.from_string(SCRIPT, default_timeout=60)
    app.session_state["selection"] = Selection(run=str(run.dir), measure="entropy")
    return app.run()


def texts(app: AppTest) -> list[str]:
    return [one.value for one in app.text]


def test_it_is_given_the_run_and_the_choices_and_read_again(folder: Path, copy_run: Callable[..., Run]) -> None:
    run = copy_run("own")
    page, records = folder / "my_study.py", len(run.trace.step)
    app = drawn(run)
    assert not app.exception and app.title[0].value == "My study"
    assert f"Of own: {records} records, entropy" in texts(app)
    page.write_text(PAGE.replace("records", "rows"))
    os.utime(page, ns=(1, 1))
    assert f"Of own: {records} rows, entropy" in texts(app.run())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def page(run, selection):\n    1 / 0\n", "division by zero"),
        ("x = 1\n", "has no function page(run, selection)"),
        ("def page(\n", "was never closed"),
    ],
)
def test_one_that_fails_says_so_on_itself(folder: Path, copy_run: Callable[..., Run], source: str, said: str) -> None:
    (folder / "my_study.py").write_text(source)
    app = drawn(copy_run("own"))
    assert app.error[0].value == "my_study.py could not be drawn." and said in app.exception[0].message


def test_it_has_an_address(folder: Path) -> None:
    assert "/my_study" in [route.path for route in routes()]
    assert list(asked()) == ["my_study"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("heads.py", "one of our pages"), ("My Page.py", "no name for a page"), ("page.txt", "no .py file")],
)
def test_what_cannot_be_a_page_is_refused_before_anything_is_served(
    tmp_path: Path, name: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(PAGE)
    with pytest.raises(SystemExit) as ended:
        main(["view", "--no-browser", "--pages", str(tmp_path)])
    assert ended.value.code == 2 and why in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such folder"):
        files(tmp_path / "nowhere")


def test_what_comes_into_the_folder_later_breaks_no_page(folder: Path) -> None:
    (folder / "my-notes.py").write_text("")
    (folder / "heads.py").write_text("")
    assert list(asked()) == ["my_study"]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert asked() == {}


def test_it_may_define_what_looks_its_module_up(folder: Path, copy_run: Callable[..., Run]) -> None:
    (folder / "my_study.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport streamlit as st\n"
        "@dataclass\nclass A:\n    x: int\ndef page(run, selection):\n    st.text(A(3).x)\n"
    )
    app = drawn(copy_run("own"))
    assert not app.exception and "3" in texts(app)
