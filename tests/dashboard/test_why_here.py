"""Heads: the pinned cell says why its head looks there, with the numbers that its lines of Python compute again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest

import tracer
from dashboard import state
from dashboard.loading import prompt_attention
from dashboard.shared import patterns
from tests.dashboard.words import shown, was_drawn, written
from tracer.analysis.prompt_attention import look
from tracer.store import Run

Open = Callable[..., AppTest]
PROMPT = "3 4 5 3 4"
TOKENS = torch.tensor([[0, 3, 4, 5, 3, 4]])


def pinned(open_page: Open, query: int, key: int, **selection: Any) -> AppTest:
    app = open_page("heads", **{"run": "tiny", "prompt": PROMPT, "layer": 1, "head": 2} | selection)
    app.session_state["pattern"] = {"pick": [query, key]}
    app.run()
    assert not app.exception, app.exception[0].message
    return app


def looks(run: Run, key: int) -> str:
    """How L1H2's look from the last token is called: by more than its even share, or hardly at all."""
    return "looks" if float(look(run.model(), TOKENS).pattern(1, 2)[-1, key]) > 1 / 6 else "hardly looks"


def test_the_last_token_is_explained_until_a_cell_is_pinned(open_page: Open, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2)
    assert "Why L1H2 looks there" in written(app) and "Click a cell of the pattern" in written(app)
    assert "why_pairs" not in was_drawn(app) and app.session_state["selection"].cell is None
    key = int(look(small_run.model(), TOKENS).pattern(1, 2)[-1].argmax())
    assert f"Why “4” (5) looks at “{'034534'[key] if key else '<bos>'}” ({key})" in written(app)
    app.button(key="why_more").click().run()
    assert app.session_state["selection"].cell == (5, key) and "why_pairs" in was_drawn(app)


def test_what_an_induction_head_copies_is_explained_before_the_first_token(small_run: Run) -> None:
    step, tokens = small_run.steps[-1], TOKENS[0].tolist()
    found = prompt_attention.of_text(small_run, step, tokens, [*"034534"])
    row = look(small_run.model(), TOKENS).pattern(1, 2)[-1]
    assert patterns.strongest(found, (1, 2), beyond_first=False) == (5, int(row.argmax()))
    assert patterns.strongest(found, (1, 2), beyond_first=True) == (5, 1 + int(row[1:].argmax()))


def test_the_pinned_cell_is_explained(open_page: Open, small_run: Run) -> None:
    app = pinned(open_page, 5, 2)
    found = tracer.why(small_run.model(small_run.steps[-1]), TOKENS, 1, 2, 5, 2)
    figure = shown(app, "why_pairs")
    assert list(figure.data[0].x) == found.key_source.values.tolist()
    np.testing.assert_allclose(np.array(figure.data[0].z), found.above, atol=1e-6)
    assert f"{found.attrs['pattern']:.2f} of its attention (even share 0.17)" in written(app)
    said = (f"Why “4” (5) {looks(small_run, 2)} at “4” (2)", "Why L1H2 looks there", "The strongest reason")
    assert all(text in written(app) for text in said), "in brief where the reader has clicked"
    app.segmented_control(key="why_what").set_value("score").run()
    np.testing.assert_allclose(np.array(shown(app, "why_pairs").data[0].z), found, atol=1e-6)
    assert f"{float(found.sum()):+.2f}".replace("-", "−") in written(app)


def test_a_pinned_cell_is_in_the_link_of_its_prompt(open_page: Open, small_run: Run) -> None:
    row = look(small_run.model(), TOKENS).pattern(1, 2)[-1]
    least = int(row.argmin())
    app = pinned(open_page, 5, least)
    chosen = app.session_state["selection"]
    assert state.to_query(chosen)["cell"] == f"5.{least}" and state.from_query(state.to_query(chosen)) == chosen
    opened = open_page("heads", **vars(chosen))
    token = "034534"[least] if least else "<bos>"
    assert f"query 5 “4” → key {least} “{token}”: " in written(opened)
    assert float(row[least]) < 1 / 6 and f"Why “4” (5) hardly looks at “{token}” ({least})" in written(opened)
    opened.text_area(key="prompt_box").set_value("7 8 9").run()
    assert opened.session_state["selection"].cell is None
    for damaged in ("5", "a.b", "-3.x", "1.2.3", ""):
        assert state.from_query({"cell": damaged}).cell is None
    assert "Why “4” (5)" in written(open_page("heads", run="tiny", prompt=PROMPT, cell=(99, 1)))


def test_its_lines_compute_the_matrix_again(open_page: Open, small_run: Run) -> None:
    app = pinned(open_page, 4, 1)
    (code,) = [one.value for one in app.code if "tracer.why" in one.value]
    names: dict[str, Any] = {}
    exec(code, names)  # in the folder where the app runs
    np.testing.assert_allclose(np.array(shown(app, "why_pairs").data[0].z), names["found"].above, atol=1e-6)


def test_without_a_source_and_over_training(open_page: Open) -> None:
    app = pinned(open_page, 5, 2)
    (box,) = [box for box in app.selectbox if box.label == "Source that is not read"]
    box.select("L0H1").run()
    rows = shown(app, "why_without_table")
    assert rows[""] == [
        "as it is",
        "estimate, with the same norms",
        "with norms computed again",
        "off in the whole model",
    ]
    assert all(0 <= share <= 1 for share in rows["attention to this key"])
    box.select("token").run()
    assert len(shown(app, "why_without_table")[""]) == 3  # tokens cannot be switched off in the whole model


@pytest.mark.parametrize(("head", "readers"), [((0, 1), True), ((1, 2), False)])
def test_what_the_cell_moves(open_page: Open, head: tuple[int, int], readers: bool) -> None:
    app = pinned(open_page, 5, 2, layer=head[0], head=head[1])
    assert len(shown(app, "why_logits")["raises"]) == 5
    assert ("Later heads that read it here" in written(app)) == readers


def test_weights_that_are_not_finite(open_page: Open, copy_run: Callable[..., Run]) -> None:
    path = copy_run("overflowed").dir / "snapshots" / "000030.safetensors"
    save_file({name: torch.full_like(weight, torch.nan) for name, weight in load_file(path).items()}, path)
    app = pinned(open_page, 5, 2, run="overflowed")
    assert "At this step the attention of L1H2 is not finite." in written(app)
    assert "nan%" not in written(app) and "why_pairs" not in was_drawn(app)


def test_over_training_ends_at_what_is_shown(open_page: Open, small_run: Run) -> None:
    app = pinned(open_page, 5, 2)
    app.session_state["why_training"] = True
    app.run()
    assert not app.exception
    lines = shown(app, "why_over").data
    assert list(lines[0].x) == small_run.steps
    found = tracer.why(small_run.model(small_run.steps[-1]), TOKENS, 1, 2, 5, 2)
    assert lines[1].y[-1] == pytest.approx(float(found.above.sum()), abs=1e-6)


def test_over_training_grows_with_the_run(open_page: Open, copy_run: Callable[..., Run]) -> None:
    """On a logarithmic axis step 0 stands at the first after it."""
    last = copy_run("grows").dir / "snapshots" / "000030.safetensors"
    weights = last.read_bytes()
    last.unlink()
    app = pinned(open_page, 5, 2, run="grows", step=20, log=True)
    app.session_state["why_training"] = True
    app.run()
    assert list(shown(app, "why_over").data[0].x) == [10, 10, 20]
    last.write_bytes(weights)
    app.run()
    assert list(shown(app, "why_over").data[0].x) == [10, 10, 20, 30]
