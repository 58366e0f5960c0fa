"""Which rows moved the head in focus: the page's process prints what Python finds, and the page shows that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.views.gradients import rows_that_moved
from tracer.store import Run
from tracer.training.which_rows import which_rows

Open = Callable[..., AppTest]


def begins(app: AppTest) -> bool:
    return any(one.key == "rows_begin" for one in app.button)


def test_the_rows_are_those_that_python_finds(open_page: Open, small_run: Run, none_left: None) -> None:
    step = int(small_run.trace["step"][-2])
    app = open_page("gradients", run="tiny", step=step, layer=1, head=2)
    assert f"Which rows moved L1H2 at step {step:,}?" in [one.value for one in app.subheader]
    app.button(key="rows_begin").click().run()
    going = jobs.looking_at_rows(small_run)
    assert going is not None and going.about == f"{step} L1H2 induction" and not begins(app)
    assert going.process.wait(300) == 0
    app.run()
    assert not app.exception and not begins(app)
    told = which_rows(small_run, step, (1, 2))
    shown = next(one.value for one in app.dataframe if "effect" in one.value)
    order = np.argsort(-told["effect"].values, kind="stable")
    np.testing.assert_array_equal(shown["effect"], told["effect"].values[order])
    np.testing.assert_allclose(shown["loss"], told["loss"].values[order])
    assert shown["W_Q"].tolist() == [f"{x:.0%}" for x in told["share"].values[order, 0]]
    first = str(told["text"].values[order[0]]).removeprefix("<bos>").split()
    assert str(shown["row"].tolist()[0]).split() == first
    said = next(one.value for one in app.caption if one.value.startswith("The update on these"))
    assert told.attrs["same"] in said and f"from {told.attrs['before']:.4g} to {told.attrs['after']:.4g}" in said

    app.selectbox(key="rows_measure").select("entropy").run()  # of another score nothing is known yet
    assert begins(app) and not any("effect" in one.value for one in app.dataframe)
    app.selectbox(key="rows_measure").select("induction").run()
    assert not begins(app)


def test_after_the_last_update_there_is_none(open_page: Open, small_run: Run) -> None:
    app = open_page("gradients", run="tiny", step=int(small_run.meta["step"]), layer=1, head=2)
    step = int(small_run.trace["step"][-2])  # the last that an update follows
    assert [one.value for one in app.subheader if "moved" in one.value] == [f"Which rows moved L1H2 at step {step:,}?"]


def test_why_it_cannot_begin_is_said(
    open_page: Open, small_run: Run, none_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise ValueError("cannot be made again")

    app = open_page("gradients", run="tiny", step=0, layer=0, head=0)
    monkeypatch.setattr(jobs, "rows", refuse)
    app.button(key="rows_begin").click().run()
    assert "cannot be made again" in [one.value for one in app.text]


def test_what_is_printed_is_read_between_other_words() -> None:
    assert rows_that_moved._read('a warning\n{"rows": [{"effect": 1}]}\nbye') == {"rows": [{"effect": 1}]}
    assert rows_that_moved._read("killed") is None
