"""What a page says of little, of the unfinished and of the begun: no claim before its numbers are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from tests.dashboard.words import captions
from tracer.analysis.head_sets import THRESHOLD
from tracer.analysis.run_sweep import sweep_run
from tracer.store import Run

Open = Callable[..., AppTest]


def test_no_head_is_called_an_induction_head_below_the_threshold(open_page: Open, small_run: Run) -> None:
    assert float(small_run.trace["induction"][-1].max()) < THRESHOLD
    shown = captions(open_page("training", run="tiny"))
    assert " · nearest to induction L" in shown and "strongest induction head" not in shown


@pytest.mark.parametrize(("steps", "complete"), [([0, 10], False), ([0, 10, 30], True), (None, True)])
def test_what_became_of_a_head_is_said_once_its_end_is_measured(
    steps: list[int] | None, complete: bool, open_page: Open, copy_run: Callable[..., Run]
) -> None:
    run = copy_run("swept")
    sweep_run(run, steps=steps, draws=2)
    app = open_page("ablate", run="swept", layer=1, head=2, section="when")
    assert any("what became of L1H2 is said once all are in" in c.value for c in app.caption) == (not complete)
    assert any(m.value.startswith("L1H2") for m in app.markdown) == complete


def test_a_form_closes_once_its_run_has_begun(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(jobs, "train", lambda *arguments: asked.append(arguments))
    app = open_page("runs")
    app.session_state["way_train"] = True
    app.run()
    assert app.session_state["way_train"]
    app.button(key="train_new").click().run()
    assert asked and not app.session_state["way_train"] and not app.exception
