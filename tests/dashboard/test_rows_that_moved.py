"""Which rows moved the head in focus: the page's process prints what Python finds, and the page shows that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.views.gradients import rows_that_moved
from tracer.store import Run

Open = Callable[..., AppTest]


def begins(app: AppTest) -> bool:
    return any(one.key == "rows_begin" for one in app.button)


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
