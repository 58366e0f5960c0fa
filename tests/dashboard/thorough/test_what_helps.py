"""Health's button that trains a run again from before a finding: a real process, and what came of it on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.shared import what_helps
from tests.dashboard.test_what_helps import elsewhere, offered, place  # noqa: F401
from tracer.diagnosis.futures import judged, made_for
from tracer.store import Run


@pytest.mark.usefixtures("elsewhere")
def test_what_helps_is_tried_by_a_process_and_told(open_page: Callable[..., AppTest]) -> None:
    app, run = open_page("training", run="broken"), Run(Path("checkpoints/broken"))
    many = offered(app)
    assert len(many) > 1 and not app.dataframe
    app.button(key="remedy_0").click().run()
    going = jobs.remedying(run)
    assert going is not None and going.command == "remedy" and going.about == "divergence"
    assert not app.exception and offered(app) == []  # one at a time
    assert going.process.wait(300) == 0
    app.run()
    assert not app.exception and offered(app) == many[1:]
    found = [judged(one) for one in made_for(run, "divergence")]
    assert [one.name for one in found][:2] == ["as it was", "rate"] and len(found) == 14
    assert len(what_helps.DONE.findall(going.log.read_text())) == len(found)
    assert app.dataframe[0].value["This finding"].tolist() == [what_helps.said(one) for one in found]
