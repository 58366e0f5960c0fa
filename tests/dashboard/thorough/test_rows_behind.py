"""Phases on the rows behind a change: the button, and what the run keeps; and its curves where they are finer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.loading import replays
from dashboard.views.phases import rows_behind
from tests.dashboard.test_phases_page import lanes, open_page, turning, words  # noqa: F401
from tracer.analysis.row_dates import dates_moved
from tracer.store import Run
from tracer.store.row_effects import rows_path, write_rows
from tracer.training.replay import replay
from tracer.training.stretch_rows import agreement, stretch_rows

Open = Callable[..., AppTest]


@pytest.fixture
def around(turning: Run) -> Iterator[tuple[int, int]]:  # noqa: F811
    """The records around the change, and no answer left behind."""
    first, last = turning.trace.step.values[[5, 6]].tolist()
    yield first, last
    rows_path(turning.dir, f"{first}-{last}-L1H1-induction").unlink(missing_ok=True)


@pytest.mark.usefixtures("none_left")
def test_a_process_is_asked_for_the_change_of_the_head(
    open_page: Open, turning: Run, around: tuple[int, int], monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(jobs, "rows", lambda run, *rest: asked.append((run.name, *rest)))
    app = open_page("phases", run="turning")
    button = app.button(key="rows_behind_begin")
    first, last = around
    assert button.help.endswith(f"`tracer rows turning {first}:{last} --head L1H1 --measure induction`")
    button.click().run()
    assert asked == [("turning", first, "L1H1", "induction", last)]

    def refuse(*_: object) -> None:
        raise ValueError("no room here")

    monkeypatch.setattr(jobs, "rows", refuse)
    app.button(key="rows_behind_begin").click().run()
    assert "no room here" in [one.value for one in app.text]


def test_the_command_is_that_of_the_stretch() -> None:
    asked = jobs.Asked(command="rows", name="r", of="/runs/r", step=5, steps=9, options=("L1H1", "induction"))
    assert jobs.arguments(asked) == ["rows", "/runs/r", "5:9", "--head", "L1H1", "--measure", "induction"]


@pytest.mark.usefixtures("none_left")
def test_the_answer_that_the_run_keeps_is_shown(
    open_page: Open, turning: Run, around: tuple[int, int], sent: Any  # noqa: F811
) -> None:  # fmt: skip
    told: Any = stretch_rows(turning, *around, (1, 1), without=(20,), draws=2)
    app = open_page("phases", run="turning")
    assert not app.exception and not any(one.key == "rows_behind_begin" for one in app.button)
    found = next(one.value for one in app.dataframe if "effect" in one.value)
    rows = [*told.attrs["rows"][:10], *told.attrs["rows"][-10:]]
    np.testing.assert_array_equal(found["effect"], [row["effect"] for row in rows])
    assert found["step"].tolist() == [row["step"] for row in rows]
    one, (step, slope, _) = dates_moved([told])[0], agreement(told)
    said = words(app)
    assert (
        f"{one.most[0]:+,.0f}** without the top 20 % of rows ({one.others[0]:+,.0f} without as many at random)" in said
    )
    assert f"exact effect at step {step:,} is {slope:.3g} times that" in said and told.attrs["same"] in said
    header, arrays, _ = sent(app, "rows_behind_curves")
    assert header["labels"] == ["as it was", "without the top 20 %", "20 % at random"]
    assert header["groups"] == [0, 1, 1] and arrays["steps"].tolist() == told["at"].values.tolist()
    assert rows_behind.PART.findall("r: 12 of 60 updates, about 3 s to go") == [("12", "60")]


@pytest.mark.usefixtures("none_left")
def test_an_answer_that_cannot_be_read_is_told(
    open_page: Open, turning: Run, around: tuple[int, int]  # noqa: F811
) -> None:  # fmt: skip
    name = f"{around[0]}-{around[1]}-L1H1-induction"
    write_rows(turning.dir, name, {"effect": np.zeros((2, 2))}, {"first": around[0], "same": "*odd*"})
    for broken in (False, True):
        if broken:
            path = rows_path(turning.dir, name)
            path.write_bytes(path.read_bytes()[:-1] + b"!")
        app = open_page("phases", run="turning")
        said = [one.value for one in app.text if one.value.startswith(f"rows/{name}.safetensors cannot be read")]
        assert len(said) == 1 and said[0].endswith("remove it and ask again.") and not app.exception


def test_curves_are_finer_where_the_run_was_trained_again(
    open_page: Open, small_run: Run, copy_run: Callable[..., Run]  # noqa: F811
) -> None:  # fmt: skip
    run = copy_run("parent")
    again = replay(run, 12, 19, name=str(run.dir.with_name("parent-12-19")), quiet=True)
    try:
        assert [one.name for one in replays.of(run)] == [again.name] and again.meta["replay"]["created"] == run.meta[
            "created"
        ]
        app = open_page("phases", run="parent")
        line = lanes(app)["Held-out loss"]
        steps = sorted({*run.trace.step.values.tolist(), *again.trace.step.values.tolist()})
        assert list(line.customdata) == steps and {13, 17, 20} <= set(steps)
        of = dict(zip(steps, line.y, strict=True))
        assert of[13] == pytest.approx(float(again.trace.val_loss.sel(step=13)))
        assert of[5] == pytest.approx(float(run.trace.val_loss.sel(step=5)))
        assert "Steps 12 to 19: trained again and recorded closer, equal to the bit." in words(app)
        merged = replays.merged(run.trace, replays.traces(run))
        assert merged["step"].values.tolist() == steps
        np.testing.assert_array_equal(merged["train_loss"].sel(step=again.trace.step), again.trace.train_loss)
        app = open_page("training", run="parent")
        assert "Steps 12 to 19: trained again and recorded closer, equal to the bit." in words(app)
        assert not app.exception
    finally:
        shutil.rmtree(again.dir)


def test_other_runs_are_not_mistaken_for_it(small_run: Run, copy_run: Callable[..., Run]) -> None:
    facts = {"run": "tiny", "created": small_run.meta["created"], "first": 5, "last": 10, "every": 1,
             "compared": [10], "apart": 0.0}  # fmt: skip
    copy_run("moved", replay={**facts, "parts": 10})
    copy_run("older", replay={**facts, "created": "then", "parts": None})
    copy_run("unchecked", replay={**facts, "compared": [], "parts": None})
    assert replays.of(small_run) == [] and replays.said(small_run) == ""
    copy_run("same", replay={**facts, "parts": None})
    assert [one.name for one in replays.of(small_run)] == ["same"]


def test_any_stretch_is_trained_again_from_training(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    asked: list[tuple[object, ...]] = []

    def begin(run: Run, *rest: object) -> Any:
        asked.append((run.name, *rest))
        return jobs.Started(str(rest[-1]), run.dir, run.dir, None)  # pyrefly: ignore[bad-argument-type]

    monkeypatch.setattr(jobs, "replay", begin)
    app = open_page("training", run="tiny")
    app.slider(key="stretch_steps_tiny").set_range(7, 18).run()
    assert any(
        one.value.startswith("tiny, steps 7 to 18\\: 20 updates from the kept state of step 0") for one in app.caption
    )
    app.button(key="replay_stretch").click().run()
    assert asked == [("tiny", 7, 18, "tiny-7-18")]
    app.slider(key="stretch_steps_tiny").set_range(7, 7).run()
    assert "Choose two steps" in words(app) and not any(b.key == "replay_stretch" for b in app.button)
