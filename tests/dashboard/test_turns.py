"""A few scripts draw at a time, in the order in which they came; whoever computes for long keeps nobody waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import turns
from tests.waiting import wait

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
TICKING = """import streamlit as st
from dashboard.shared.pulse import ticking
ticking(lambda: st.text("drawn"), key="x")"""


class Script:
    """One that draws until it is let go."""

    def __init__(self, begun: list[str], name: str, fails: bool = False) -> None:
        self._begun, self._name, self._fails = begun, name, fails
        self._over, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with turns.turn():
                self._begun.append(self._name)
                self._over.wait()
                if self._fails:
                    raise ValueError("stopped")
        except ValueError:
            pass

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def begun() -> Iterator[list[str]]:
    """Names of those that began; nobody is left with a turn afterwards."""
    yield []
    assert not turns._began and not turns._waiting


def test_others_wait_in_order_and_a_failure_ends_a_turn_too(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONG", 1e9)
    first = [Script(begun, name, fails=name == "a") for name in "ab"]
    wait(lambda: len(begun) == turns.AT_ONCE == 2)
    later = []
    for name in "cdef":
        later.append(Script(begun, name))
        wait(lambda: len(turns._waiting) == len(later))
    assert sorted(begun) == ["a", "b"]
    for ending, now in zip([*first, *later], ("c", "d", "e", "f", "", ""), strict=True):
        ending.end()
        wait(lambda now=now: not now or begun[-1] == now)
        assert sorted(begun[:2]) == ["a", "b"] and begun[2:] == sorted(begun[2:])
    assert len(begun) == 6


def test_who_draws_for_long_keeps_nobody_waiting(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONG", 0.01)
    scripts = [Script(begun, name) for name in "abcde"]
    wait(lambda: sorted(begun) == [*"abcde"])
    for one in scripts:
        one.end()


def test_a_turn_within_a_turn_is_the_same(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONG", 1e9)
    with turns.turn(), turns.turn():
        with turns.turn():
            assert len(turns._began) == 1
        assert len(turns._began) == 1


@pytest.mark.parametrize("what", ["a page", "a part that ticks"])
def test_pages_and_what_ticks_take_turns(
    what: str, begun: list[str], workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "LONG", 1e9)
    others = [Script(begun, name) for name in "ab"]
    wait(lambda: len(begun) == turns.AT_ONCE)
    app = AppTest.from_file(str(APP)) if what == "a page" else AppTest.from_string(TICKING)
    app.default_timeout = 300
    page = threading.Thread(target=app.run)
    page.start()
    wait(lambda: len(turns._waiting) == 1)
    assert page.is_alive() and len(app.text) + len(app.header) == 0
    for one in others:
        one.end()
    page.join()
    assert not app.exception and len(app.text) + len(app.header) > 0


def test_garbage_is_looked_for_when_nobody_draws(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bool] = []
    monkeypatch.setattr(turns.gc, "collect", lambda: searched.append(bool(turns._began)))
    monkeypatch.setattr(turns, "COLLECT", 0.0)
    monkeypatch.setattr(turns, "COLLECT_BUSY", 1e9)
    scripts = [Script(begun, name) for name in "ab"]
    wait(lambda: len(begun) == 2)
    scripts[0].end()
    assert searched == []
    scripts[1].end()
    assert searched == [False]
    monkeypatch.setattr(turns, "COLLECT", 1e9)
    Script(begun, "c").end()
    assert searched == [False]
    monkeypatch.setattr(turns, "COLLECT_BUSY", 0.0)
    scripts = [Script(begun, name) for name in "de"]
    wait(lambda: len(begun) == 5)
    scripts[0].end()
    assert searched == [False, True]
    scripts[1].end()
