"""What takes long of tests/dashboard/test_tour.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from streamlit.testing.v1 import AppTest

from dashboard import theme
from dashboard.shared.tour import deeds
from dashboard.shared.tour.steps import TITLES
from tests.dashboard.test_tour import formed, keys, opened, said  # noqa: F401
from tests.dashboard.words import changes
from tracer.store import Run


def choose(app: AppTest, **changes: Any) -> None:
    app.session_state["selection"] = replace(app.session_state["selection"], **changes)
    app.run()
    assert not app.exception


def test_the_whole_tour(opened: Callable[..., AppTest], formed: Run) -> None:
    trace = formed.trace
    scores = trace["induction"].values
    best = tuple(int(i) for i in np.unravel_index(scores[-1].argmax(), scores[-1].shape))
    label = f"L{best[0]}H{best[1]}"
    app = opened()
    app.button(key="welcome_tour").click().run()
    assert [title.value for title in app.title] == ["Heads"] and not app.exception
    selection = app.session_state["selection"]
    assert selection.tour == 1 and selection.focus != best and f"**{TITLES[0]}**" in said(app)
    assert keys(app) == {"tour_close", "tour_next"} and app.button(key="tour_next").label == "Skip"

    choose(app, layer=best[0], head=best[1])
    assert f"✓ {label} it is: {scores[-1][best]:.2f}" in said(app)
    app.button(key="tour_next").click().run()
    assert app.session_state["selection"].step == formed.steps[0] and "✓" not in said(app)

    choose(app, step=None)
    assert "it is there already: go back" in said(app)
    first, _ = deeds.birth(trace["step"].values, scores[:, *best], formed.steps)
    choose(app, step=min(s for s in formed.steps if s >= first))
    assert "✓ Here: " in said(app)

    app.button(key="tour_next").click().run()
    choose(app, prompt="5 7 9 11 5 7 9", token=5)  # <bos> 5 7 9 11 5: what followed 5 is 7
    assert f"✓ {label} looks from “5” most at “7”, 3 back" in said(app)

    app.button(key="tour_next").click().run()
    assert app.button(key="tour_next").label == "Skip"
    app.radio[0].set_value("nothing").run()
    assert app.button(key="tour_next").label == "Next"
    app.button(key="tour_next").click().run()
    assert [title.value for title in app.title] == ["Ablate"] and app.session_state["selection"].off == ()

    choose(app, off=(best,))
    assert "Not as you predicted (nothing to speak of)" in said(app) or "As you predicted: nothing" in said(app)
    assert f"{theme.signed(changes(app)[0])} nats (95 % interval" in said(app)  # the number of the page itself
    app.button(key="tour_back").click().run()
    assert app.session_state["selection"].tour == 4 and app.radio[0].value == "nothing"
    app.button(key="tour_close").click().run()
    assert app.session_state["selection"].tour == 0 and not keys(app)
