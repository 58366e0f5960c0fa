"""Phases: a run with known changes, its order in words, other seeds, few snapshots, and models of others.

What the first tier leaves.
"""

from collections.abc import Callable

import numpy as np
import pytest
import streamlit as st

from tests.dashboard.test_links import reopened
from tests.dashboard.test_phases_page import induction, lanes, open_page, rewrite, turning, way, words  # noqa: F401
from tests.dashboard.words import shown
from tracer.analysis import timeline


def test_weights_that_take_long_are_read_once_somebody_asks(open_page, copy_run, monkeypatch) -> None:
    large = copy_run("large")
    rewrite(large, induction=lambda values: np.zeros_like(values) + [[0.0], [0.5]])  # the reader is in layer 1
    monkeypatch.setattr(timeline, "CHEAP_BYTES", 0)
    app = open_page("phases", run="large")
    assert not any(label.startswith("K-composition") for label in lanes(app))
    app.button(key="ask_composition").click().run()
    assert any(label.startswith("K-composition") for label in lanes(app))
    assert not [one for one in app.button if one.key == "ask_composition"]


def test_the_rows_of_a_change_are_one_press_away(open_page, turning, monkeypatch) -> None:
    """L1H1 turns between the 6th and the 7th record: Gradients then asks of one of these, that head and that score."""
    turned = []
    monkeypatch.setattr(st, "switch_page", lambda page: turned.append(page.url_path))
    app = open_page("phases", run="turning")
    app.button(key="rows_of_change").click().run()
    chosen = app.session_state["selection"]
    assert turned == ["gradients"] and chosen.focus == (1, 1) and app.session_state["rows_measure"] == "induction"
    assert chosen.step in turning.trace.step.values[[5, 6]]


@pytest.mark.parametrize(("left", "begins"), [(0.05, 3), (0.8, 0)], ids=["sliver", "wide"])
def test_the_path_opens_where_the_phase_can_be_seen(open_page, turning, left: float, begins: int) -> None:
    """Held-out loss falls at the 4th row; the phase, in rows 5 to 8, takes `left` of the width of the whole path."""
    steps = turning.trace.step.values

    def rises_slowly(values: np.ndarray) -> np.ndarray:
        values[:, 1, 1] = [0, 0, 0, 0, 0, 0, 0.5, 1, 1, 1]
        return values

    def column(*rows: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda values: np.reshape(rows, (-1, *[1] * (values.ndim - 1))) * np.ones_like(values)

    rewrite(
        turning, induction=rises_slowly, val_loss=column(*[1] * 3, *[0] * 7),
        loss_by_position=column(*[1] * 3, *[left] * 3, *[0] * 4),
    )  # fmt: skip
    app = open_page("phases", run="turning")
    assert len(shown(app, "loss_path").data[0].x)  # the window
    assert list(way(app).customdata) == steps[begins:].tolist()
    assert f"By step {steps[3]} the loss has fallen" in words(app)
    app.segmented_control(key="path_box").set_value("all" if begins else "late").run()
    for one in (app, reopened(open_page, "phases", app)):
        assert list(way(one).customdata) == steps[3 - begins :].tolist()
