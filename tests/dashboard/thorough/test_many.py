"""More runs than fit on a page: a table, found by words, ticked, compared: what the first tier leaves."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.views.runs.many import MANY
from tests.dashboard.test_many import APP, Open, cells, several, tick  # noqa: F401
from tests.dashboard.words import shown, written
from tracer.store import Run

pytestmark = pytest.mark.usefixtures("none_left")


def test_a_dozen_are_cards_and_more_are_a_table(open_page: Open, several: list[str]) -> None:
    app = open_page("runs")
    found = cells(app)
    assert found["Run"] == [*reversed(several), "tiny"] and found["seed"] == [*range(MANY, 0, -1), 0]
    assert found["lr"].count(0.5) == 2 and "batch_size" not in found
    assert found["Head"][0].startswith("L") and found["Held-out loss"][0] > 0
    assert not [button for button in app.button if (button.key or "").startswith("open ")]
    assert f"{MANY + 1} runs. Tick one" in written(app)


def test_ticked_runs_say_in_what_they_differ_and_are_laid_over_each_other(several: list[str]) -> None:
    app = tick(AppTest.from_file(str(APP), default_timeout=300).run(), [0, MANY - 1, MANY])
    usual = str(Run(Path("checkpoints") / "tiny").config.optim.lr)
    assert shown(app, "runs_differ") == {
        "Setting": ["seed", "optim.lr", "idea"], "r11": ["12", usual, ""], "r00": ["1", "0.5", "0"],
        "tiny": ["0", usual, ""],
    }  # fmt: skip
    assert "These 3 runs differ in 3 settings." in written(app)
    app.button(key="runs_over").click().run()
    selection = app.session_state["selection"]
    assert (selection.run, selection.compare, selection.over) == ("r11", "r00", ("tiny",))
    assert [title.value for title in app.title] == ["Training"] and not app.exception
