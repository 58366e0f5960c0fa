"""Find: a corpus is read into the run, and one head's passages, distances and jobs come from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import tracer
from dashboard import navigation
from tests.dashboard.words import shown, was_drawn, written
from tracer.analysis.run_sweep import sweep_run
from tracer.analysis.survey import kept_survey
from tracer.named_code import MEASURES
from tracer.store import Run

Open = Callable[..., AppTest]


def test_a_corpus_is_read_and_shown(open_page: Open, copy_run: Callable[..., Run], sent: Any, monkeypatch: Any) -> None:
    run = copy_run("read")
    app = open_page("find", run="read", layer=1, head=2)
    assert "Over a corpus" in written(app) and "survey_distance" not in was_drawn(app)
    app.selectbox(key="survey_tokens").set_value(2**14)
    next(button for button in app.button if button.label == "Read it").click()
    app.run()
    assert not app.exception, app.exception[0].message
    found = tracer.survey(run, tokens=2**14)  # as it was kept
    assert found.attrs["complete"] and len(list((run.dir / "surveys").iterdir())) == 1
    one = found.isel(layer=1, head=2)
    np.testing.assert_allclose(shown(app, "survey_means")["L1H2"], [one.entropy, one.sink, one.sharpest])
    errors = [one.entropy_se, one.sink_se, one.sharpest_se]
    np.testing.assert_allclose(shown(app, "survey_means")["standard error"], errors)
    np.testing.assert_allclose(shown(app, "survey_distance").data[0].y, one.mass)
    assert "16,384 tokens of held-out text, read at step 30" in written(app)
    header, _, _ = sent(app, "survey_passages")
    groups = [card["group"] for card in header["passages"]]
    assert groups == ["top"] * 4 + ["decile"] * 10
    scores = [card["score"] for card in header["passages"][4:]]
    assert scores == sorted(scores, reverse=True)
    app.session_state["survey_passages"] = {"pick": 0}
    with monkeypatch.context() as patch:
        patch.setattr(st, "switch_page", lambda page: None)  # an AppTest of one page has no other
        patch.setattr(navigation, "page", lambda name: name)
        app.run()
    ids = found.tokens.values[int(one.row_strongest[0])]
    query = int(one.query_strongest[0])
    assert app.session_state["selection"].prompt.split() == [str(i) for i in ids[1 : query + 9]]
    points = shown(app, "all_heads").data[1]
    np.testing.assert_allclose(points.x, found.sink.values[1])
    assert list(points.customdata[2]) == [1, 2]
    app.selectbox(key="all_heads_across").set_value("induction").run()
    induction = run.trace.induction.sel(step=30).values
    np.testing.assert_allclose(shown(app, "all_heads").data[1].x, induction[1], atol=1e-6)
    app.session_state["selection"] = replace(app.session_state["selection"], find="L0H1 L1H2")
    app.run()
    assert "2 heads: L0H1 L1H2" in written(app)
    dimmed = [opacity < 0.5 for points in shown(app, "all_heads").data for opacity in points.marker.opacity]
    assert dimmed.count(False) == 2
    app.toggle(key="survey_jobs").set_value(True).run()
    assert not app.exception, app.exception[0].message
    jobs = shown(app, "survey_jobs_table")
    assert abs(sum(jobs["looks"]) - 1) < 1e-9 and "±" in jobs["cost (nats)"][0]


def test_what_cannot_be_read_is_said(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = copy_run("unread")
    app = open_page("find", run="unread")
    app.text_input(key="survey_corpus").set_value("no/such/file")
    next(button for button in app.button if button.label == "Read it").click()
    app.run()
    assert not app.exception and "unknown corpus 'no/such/file'" in written(app)
    (run.dir / "surveys").mkdir()
    (run.dir / "surveys" / "30-0.safetensors").write_bytes(b"nothing")
    assert "cannot be read" in written(open_page("find", run="unread"))


def test_what_a_head_costs_is_an_axis_and_a_colour(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = copy_run("costly")
    app = open_page("find", run="costly", up="effect", colour="induction")
    assert "has not been measured in this run" in written(app) and "all_heads" not in was_drawn(app)
    assert app.button(key="sweep_run").label == "Measure 4 snapshots"
    sweep_run(run, modes=["zero"], steps=[20])
    assert "not been measured at step 30 (zero ablation)" in written(open_page("find", run="costly", up="effect"))
    app = open_page("find", run="costly", step=20, across="layer", up="effect", colour="effect_text")
    effect = run.effects["effect"].sel(step=20, mode="zero")
    for layer, points in enumerate(shown(app, "all_heads").data):
        np.testing.assert_allclose(points.x, layer)
        np.testing.assert_allclose(points.y, effect.sel(probe="repeat").values[layer])
        np.testing.assert_allclose(points.marker.color, effect.sel(probe="text").values[layer])
    app.selectbox(key="all_heads_colour").set_value("layer").run()
    link = {"run": "costly", "step": "20", "across": "layer", "up": "effect", "colour": "layer"}
    assert app.query_params == link
    assert "nowhere" not in str(open_page("find", run="costly", up="nowhere").query_params)


OWN = """
import tracer


@tracer.measure(label="Long looks", unit="tokens", range=(0, None))
def long_looks(rows):
    return rows.pattern.argmax(-1).float()
"""


def test_measures_that_the_dashboard_was_started_with_are_taken_over_the_corpus(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = copy_run("measured")
    (tmp_path / "far_looks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(MEASURES, "far_looks:long_looks")
    app = open_page("find", run="measured", layer=1, head=2)
    assert "Measured too: far_looks:long_looks" in [one.value for one in app.caption]
    app.selectbox(key="survey_tokens").set_value(2**14)
    next(button for button in app.button if button.label == "Read it").click().run()
    assert not app.exception, app.exception[0].message
    monkeypatch.delenv(MEASURES)  # as where nobody has the code
    app.run()
    found = kept_survey(run, 30)
    assert found is not None
    rows = shown(app, "survey_means")
    assert list(rows["mean over its looks"])[-1] == "Long looks (tokens)"
    np.testing.assert_allclose(rows["L1H2"][-1], found.long_looks[1, 2])
    app.selectbox(key="all_heads_up").set_value("corpus_long_looks").run()
    np.testing.assert_allclose(shown(app, "all_heads").data[1].y, found.long_looks[1])
