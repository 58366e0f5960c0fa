"""The tour: what each step notices, with answers known by hand, and the whole of it on a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs, state
from dashboard.loading.ablation import Cost
from dashboard.shared.tour import deeds
from dashboard.shared.tour.steps import LAST
from dashboard.state import Selection
from tracer.ablate import Estimate
from tracer.store import Run

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
STEPS = np.array([0, 10, 20, 30, 40, 50])


@pytest.mark.parametrize(
    ("curve", "snapshots", "expected"),
    [
        ([0.0, 0.0, 0.2, 0.5, 0.9, 1.0], [0, 10, 20, 30, 40, 50], (20, 40)),
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], [0, 10, 20, 30, 40, 50], (30, 30)),
        ([0.0, 0.0, 0.2, 0.5, 0.9, 1.0], [0, 50], (20, 50)),  # no snapshot in between: the nearest to half
        ([0.0, 0.5, 0.0, 0.5, 1.0, 1.0], [0, 10, 20, 30, 40, 50], (30, 40)),  # it came and went before
        ([0.5, 0.5, 0.6, 0.6, 1.0, 1.0], [0, 10, 20, 30, 40, 50], (0, 40)),
    ],
)
def test_where_a_head_is_born(curve: list[float], snapshots: list[int], expected: tuple[int, int]) -> None:
    assert deeds.birth(STEPS, np.array(curve), snapshots) == expected


@pytest.mark.parametrize(
    ("strings", "row", "complete", "said"),
    [
        (["a", "b", "c", "a"], [0.1, 0.8, 0.1, 0.0], True, "L1H0 looks from “a” most at “b”, 2 back, with 80% of its "
         "attention: what followed “a” the last time."),
        (["a", "b", "c", "a"], [0.7, 0.2, 0.1, 0.0], True, "on what followed “a” earlier lie 20%"),
        (["a", "b", "c", "d"], [0.7, 0.2, 0.1, 0.0], False, "But “d” is new here"),
        (["<b>", "\u202e", "<b>"], [0.0, 1.0, 0.0], True, "from “<b>” most at “"),
    ],
)  # fmt: skip
def test_what_a_held_token_looks_at(strings: list[str], row: list[float], complete: bool, said: str) -> None:
    done = deeds.looked_at("L1H0", strings, np.array(row))
    assert done.complete == complete and said in done.lines[0] and "\u202e" not in done.lines[0]


def cost(mean: float, low: float, high: float) -> Cost:
    return Cost(1.0, 1.0 + mean, Estimate(mean, low, high, 8), np.zeros(1))


NONE, SMALL, LARGE = cost(0.01, -0.02, 0.04), cost(0.2, 0.1, 0.3), cost(8.0, 7.5, 8.5)
UNSURE = cost(0.4, -0.1, 0.9)


@pytest.mark.parametrize(
    ("repeat", "text", "expected"),
    [
        (LARGE, SMALL, "copying"), (LARGE, NONE, "copying"), (LARGE, LARGE, "everything"), (SMALL, SMALL, "everything"),
        (NONE, LARGE, "everything"), (NONE, NONE, "nothing"), (UNSURE, NONE, "nothing"), (UNSURE, UNSURE, "nothing"),
    ],
)  # fmt: skip
def test_which_prediction_came_true(repeat: Cost, text: Cost, expected: str) -> None:
    assert deeds.outcome({"repeat": repeat, "text": text}) == expected


def test_the_verdict_says_how_sure_and_what_it_does_not_say() -> None:
    right = deeds.verdict("L1H2", "copying", {"repeat": LARGE, "text": SMALL})
    assert right[0] == "As you predicted: copying broke, and little else."
    assert right[1] == (
        "+8.000 nats (95 % interval +7.500 to +8.500, 8 sequences) on repeated tokens; "
        "+0.200 nats (95 % interval +0.100 to +0.300, 8 sequences) on ordinary text."
    )
    assert "Another head may take over" in right[2]
    wrong = deeds.verdict("L1H2", "everything", {"repeat": UNSURE, "text": NONE})
    assert wrong[0] == "Not as you predicted (everything): nothing broke that could be told from chance."
    assert "so it could be nothing" in wrong[1] and "others may do the same work" in wrong[2]
    assert deeds.verdict("L1H2", None, {"repeat": LARGE})[0] == "Measured: copying broke, and little else."


@pytest.fixture(scope="module")
def formed(trained_toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The toy, whose induction heads have formed, in a folder of its own."""
    return Run(shutil.copytree(trained_toy, tmp_path_factory.mktemp("tour") / "checkpoints" / "toy"))


@pytest.fixture
def opened(formed: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """opened(tour=2, step=10): the app with this selection."""
    monkeypatch.chdir(formed.dir.parents[1])

    def started(**selection: Any) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=300)
        app.session_state["selection"] = Selection(run="toy", **selection)
        app.run()
        assert not app.exception
        return app

    return started


def said(app: AppTest) -> str:
    return "\n".join(e.value for kind in (app.text, app.markdown) for e in kind)


def keys(app: AppTest) -> set[str]:
    return {button.key for button in app.button if button.key and button.key.startswith("tour_")}


def test_a_link_into_the_tour_opens_at_its_step(opened: Callable[..., AppTest]) -> None:
    app = opened(tour=5)
    assert {"tour_there", "tour_back", "tour_close"} == keys(app)  # the app lands on Runs
    app.button(key="tour_there").click().run()
    assert [title.value for title in app.title] == ["Ablate"] and "tour_next" in keys(app)


def test_the_tour_ends_with_a_training_in_which_the_head_cannot_form(
    opened: Callable[..., AppTest], formed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "fork", lambda run, *rest: asked.append((run.name, *rest)))
    app = opened(tour=LAST)
    app.button(key="tour_there").click().run()
    assert [title.value for title in app.title] == ["Training"] and "Does an induction head still form?" in said(app)
    app.button(key="tour_train").click().run()
    assert asked == [("toy", formed.steps[0], "toy-no-previous", formed.config.steps, "L0 no-previous")]
    again = formed.dir.with_name("toy-no-previous")
    shutil.copytree(formed.dir, again)
    meta = json.loads((again / "run.json").read_text())
    parent = {"run": "toy", "step": formed.steps[0], "optimizer": "continued"}
    config = {**meta["config"], "clamp": ["L0 no-previous"]}
    (again / "run.json").write_text(json.dumps({**meta, "parent": parent, "config": config}))
    app.run()  # the same numbers as its parent's: one formed
    score = f"{np.nanmax(formed.trace['induction'].values[-1]):.2f}"
    assert f"One formed all the same: its strongest induction head scores {score}" in said(app)
    app.button(key="tour_to_training").click().run()
    selection = app.session_state["selection"]
    assert (selection.tour, selection.compare) == (0, "toy-no-previous") and not app.exception
    shutil.rmtree(again)


PREVENTED = [(0.847, 0.034, "None formed"), (0.8, 0.2, "A weaker one formed"), (0.8, 0.7, "One formed all the same")]


@pytest.mark.parametrize(("here", "there", "words"), PREVENTED)
def test_what_came_of_forbidding_a_look(here: float, there: float, words: str) -> None:
    first, _ = deeds.prevented("L1H2", here, there)
    assert first == f"{words}: its strongest induction head scores {there:.2f}, L1H2 here {here:.2f}."


def test_a_link_carries_the_prediction(opened: Callable[..., AppTest]) -> None:
    app = opened(tour=4)
    app.button(key="tour_there").click().run()
    assert app.radio[0].value is None and app.button(key="tour_next").label == "Skip"
    app.radio[0].set_value("everything").run()
    link = state.to_query(app.session_state["selection"])
    assert link["guess"] == "everything"
    again = opened(**{name: value for name, value in vars(state.from_query(link)).items() if name != "run"})
    assert again.radio[0].value == "everything"
    assert {"tour_there", "tour_back", "tour_close"} == keys(again)


def test_a_run_without_such_a_head_says_so(small_run: Run, workplace: Path) -> None:
    app = AppTest.from_file(str(APP), default_timeout=300)
    app.session_state["selection"] = Selection(run="tiny", tour=1)
    app.run()
    assert "There is no tour of this run" in said(app) and keys(app) == {"tour_close"}
    assert not {"tour tiny", "welcome_tour"} & {button.key for button in app.button}


def test_a_run_without_its_weights_has_no_tour(
    formed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    shutil.copytree(formed.dir, tmp_path / "checkpoints" / "toy", ignore=shutil.ignore_patterns("snapshots"))
    monkeypatch.chdir(tmp_path)
    app = AppTest.from_file(str(APP), default_timeout=300)
    app.session_state["selection"] = Selection(run="toy", tour=1)
    app.run()
    assert not app.exception and "There is no tour of this run" in said(app)
    assert not {"tour toy", "welcome_tour"} & {button.key for button in app.button}


@pytest.mark.parametrize("selection", [{"run": "nowhere", "tour": 2}, {"run": "tiny", "tour": 7}, {"tour": 0}])
def test_no_card_where_there_is_nothing_to_tour(selection: dict[str, Any], workplace: Path) -> None:
    app = AppTest.from_file(str(APP), default_timeout=300)
    app.session_state["selection"] = Selection(**selection)
    app.run()
    assert not keys(app) and not app.exception
