"""The head finder and heads over training on the page: what is lit, what comes into focus, what is said."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from streamlit.testing.v1 import AppTest

from dashboard.shared import choosers
from tracer.store import Run
from tracer.store.layout import Lock
from tracer.store.trace import UNCOMMITTED

Open = Callable[..., AppTest]


def values(run: Run, name: str) -> np.ndarray:
    return run.trace[name].values[-1]


def strongest(run: Run, name: str) -> tuple[int, int]:
    layer, head = np.unravel_index(int(values(run, name).argmax()), values(run, name).shape)
    return int(layer), int(head)


def said(app: AppTest) -> str:
    return "\n".join(e.value for e in app.text)


def test_the_heads_that_fit_are_lit_and_named(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", find="layer 1")
    assert sorted(map(tuple, sent(app, "atlas")[2]["lit"])) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    chips = app.pills(key="found_box")
    induction = values(small_run, "induction")
    assert chips.options == [f"L1H{head} {induction[1, head]:.2f}" for head in range(4)]
    assert chips.label == "4 of 8 heads"


def test_nothing_is_dimmed_while_nothing_is_looked_for(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny")
    assert sent(app, "atlas")[2]["lit"] is None
    assert "found_box" not in app.session_state


def test_a_chip_takes_its_head_into_focus_and_a_second_click_keeps_it(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", find="L0 L1", layer=0, head=0)
    assert app.pills(key="found_box").value == (0, 0)
    app.pills(key="found_box").set_value((1, 3)).run()
    assert sent(app, "atlas")[2]["value"]["head"] == [1, 3]
    app.pills(key="found_box").set_value(None).run()
    assert not app.exception
    assert sent(app, "atlas")[2]["value"]["head"] == [1, 3] and app.pills(key="found_box").value == (1, 3)


def test_a_line_that_names_one_head_takes_it_into_focus(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", layer=0, head=0)
    app.text_input(key="find_box").set_value("top 1 previous").run()
    assert tuple(sent(app, "atlas")[2]["value"]["head"]) == strongest(small_run, "previous_token")
    app.text_input(key="find_box").set_value("layer 0").run()
    assert tuple(sent(app, "atlas")[2]["value"]["head"]) == strongest(small_run, "previous_token")
    app.text_input(key="find_box").set_value("").run()
    assert sent(app, "atlas")[2]["lit"] is None


@pytest.mark.parametrize(
    "line, words, lit",
    [
        ("indction > .5", "“indction” is not a measure. Did you mean induction? Measures: entropy, ", None),
        ("**bold** <b>", "“*” is not expected here", None),
        ("induction > 1", "No head fits. Nearest: L", []),
        ("L0 and L1", "No head fits.", []),
    ],
)
def test_what_is_not_understood_or_found_is_said_as_text(
    open_page: Open, sent: Any, line: str, words: str, lit: list[Any] | None
) -> None:
    app = open_page("heads", run="tiny", find=line)
    assert words in said(app)
    assert sent(app, "atlas")[2]["lit"] == lit


def test_the_nearest_head_is_named_with_its_value(open_page: Open, small_run: Run) -> None:
    layer, head = strongest(small_run, "induction")
    expected = f"Nearest: L{layer}H{head}, induction score {values(small_run, 'induction').max():.2f}."
    assert expected in said(open_page("heads", run="tiny", find="induction > 1"))


def test_heads_over_training_are_lines_or_a_heatmap_on_both_pages(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", layer=1, head=2)
    assert sent(app, "history")[2]["value"] == "L1H2"
    app.segmented_control(key="history_box").set_value("heatmap").run()
    header, arrays, cue = sent(app, "history_heatmap")
    assert len(header["labels"]) == 8 and arrays["cells"].shape[0] == 8 and cue["value"] == "L1H2"
    assert app.session_state["selection"].view == "heatmap"
    app = open_page("training", run="tiny", view="heatmap")
    for key in ("entropy_curves_heatmap", "measure_curves_heatmap"):
        assert sorted(sent(app, key)[0]["order"]) == list(range(8))


def test_a_row_of_the_heatmap_takes_its_head_into_focus(open_page: Open, sent: Any) -> None:
    app = open_page("training", run="tiny", view="heatmap")
    app.session_state["measure_curves_heatmap"] = {"pick": "L0H3"}
    app.run()
    assert not app.exception
    assert app.session_state["selection"].focus == (0, 3)
    assert sent(app, "entropy_curves_heatmap")[2]["value"] == "L0H3"


def test_a_tick_of_a_live_run_lights_what_fits_now(
    open_page: Open, sent: Any, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_run("live", status="training")
    before, now = (run.trace["entropy"].values[row] for row in (-2, -1))
    store = zarr.open_group(str(run.dir / "trace.zarr"), mode="r+")
    steps: np.ndarray = store["step"][:]  # pyrefly: ignore[bad-assignment, bad-index]
    store["step"][-1] = UNCOMMITTED  # pyrefly: ignore[unsupported-operation]

    def tick(draw: Callable[[], None], **_: Any) -> None:
        store["step"][:] = steps  # pyrefly: ignore[unsupported-operation]
        os.utime(run.dir / "run.json")
        draw()

    monkeypatch.setattr(choosers, "ticking", tick)
    edge = float(before[1, 0] + now[1, 0]) / 2
    lock = Lock(run.dir)
    app = open_page("heads", run="live", find=f"entropy > {edge:.9f}")
    lock.release()
    lit = {(int(layer), int(head)) for layer, head in np.argwhere(now > edge)}
    assert {tuple(head) for head in sent(app, "atlas")[2]["lit"]} == lit
    assert app.pills(key="found_box").label == f"{len(lit)} of 8 heads"
