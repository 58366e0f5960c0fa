"""More runs than fit on a page: a table, found by words, ticked, compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.shared.export.snippets import listed
from dashboard.views.runs.many import MANY
from tests.dashboard.words import shown, was_drawn, written
from tracer.store import Run

pytestmark = pytest.mark.usefixtures("none_left")
APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]


@pytest.fixture
def several(copy_run: Callable[..., Run], small_run: Run) -> list[str]:
    """With "tiny" one more than are shown as cards; each has another seed, and two another learning rate."""
    config: dict[str, Any] = small_run.meta["config"]
    names = [f"r{i:02d}" for i in range(MANY)]
    for i, name in enumerate(names):
        rate = config["optim"] | ({"lr": 0.5} if i < 2 else {})
        facts: dict[str, Any] = {"tags": ["mine"], "settings": {"idea": i}} if i < 3 else {}
        copy_run(
            name, config=config | {"seed": i + 1, "optim": rate}, created=f"2027-01-01T00:00:{i:02d}+00:00", **facts
        )
    return names


def tick(app: AppTest, rows: list[int]) -> AppTest:
    (key,) = {key for key in was_drawn(app) if key.startswith("runs_table_")}
    app.session_state[key] = {"selection": {"rows": rows, "columns": [], "cells": []}}
    return app.run()


def cells(app: AppTest) -> dict[str, list[Any]]:
    (key,) = {key for key in was_drawn(app) if key.startswith("runs_table_")}
    return shown(app, key)


def test_words_find_runs_and_a_ticked_one_has_its_card(open_page: Open, several: list[str]) -> None:
    app = open_page("runs", runs="lr=0.5 tag=mine induction>=0")
    assert cells(app)["Run"] == ["r01", "r00"] and f"2 of {MANY + 1} runs" in written(app)
    assert cells(app)["Tags"] == ["mine", "mine"] and cells(app)["idea"] == [1, 0]
    tick(app, [1])
    assert [button.key for button in app.button if (button.key or "").startswith("open ")] == ["open r00"]
    assert "#mine, idea 0" in written(app)
    app.text_input(key="runs_find").set_value("induction>1").run()
    assert f"0 of {MANY + 1} runs" in written(app)
    app.text_input(key="runs_find").set_value("lr>*fast*").run()
    assert any(e.value.startswith("“\\*fast\\*” is no number\\: lr") for e in app.caption)
    app.text_input(key="runs_find").set_value("seed=7").run()
    assert app.session_state["selection"].runs == "seed=7" and not app.exception
    assert not [button for button in app.button if (button.key or "").startswith("open ")]  # other rows, none ticked


def test_lines_of_python_find_the_same_runs(several: list[str]) -> None:
    held: dict[str, Any] = {}
    exec(listed("lr=0.5 r0"), held)
    assert [one["run"] for one in held["found"]] == ["r01", "r00"]
    assert len(eval(listed("").splitlines()[-1], {"tracer": held["tracer"]})) == MANY + 1
