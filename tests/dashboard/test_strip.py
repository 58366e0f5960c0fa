"""The strip of heads on pages that show what was recorded: patterns of the chosen step, roles, switches, a click."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard.loading import head_scores, prompt_film
from dashboard.shared.mount import DRAWN
from tests.dashboard.test_switches import OFF, PROMPT, TOKENS, cut, read
from tests.dashboard.words import captions, labels, was_drawn, written
from tracer.pictures import payload
from tracer.store import Run

Open = Callable[..., AppTest]
STEP = 15
"""A record between the snapshots of steps 10 and 20."""


def guessed(model: Any) -> torch.Tensor:
    """The mean loss of the prompt's tokens."""
    logits = read(model)[1]
    return -logits[:-1].log_softmax(-1).gather(1, TOKENS[0, 1:, None]).mean()


def thumbs(sent: Any, app: AppTest) -> np.ndarray:
    """Patterns [layer head query_pos key_pos], of which each is stored as its square root in 39 levels."""
    return (sent(app, "strip")[1]["thumbs"] / 255) ** 2


@pytest.mark.parametrize("page", ["training", "phases", "gradients"])
def test_every_head_is_there_at_the_chosen_step(page: str, small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page(page, run="tiny", prompt=PROMPT, step=STEP, layer=1, head=2, measure="previous_token")
    header, arrays, cue = sent(app, "strip")
    np.testing.assert_allclose(thumbs(sent, app)[1], read(small_run.model(10))[0], atol=0.03)
    assert f"Every head on “{PROMPT}”, step 10. Roles (of step 15)." in captions(app)
    assert cue["slim"] and cue["value"] == {"head": [1, 2], "off": []} and cue["measure"] == "previous_token"
    at = header["measures"].index("previous_token")
    recorded = head_scores.head_means(small_run.trace, "previous_token", STEP)
    np.testing.assert_allclose(arrays["values"][at], recorded, rtol=1e-6)
    assert np.shape(cue["roles"]["codes"]) == recorded.shape


@pytest.mark.parametrize("page", ["find", "ablate", "circuits"])
def test_pages_of_snapshots_have_it_too(page: str, small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page(page, run="tiny", prompt=PROMPT, step=10, layer=1, head=2, off=((7, 1), OFF))
    np.testing.assert_allclose(thumbs(sent, app)[1], read(cut(small_run, 10))[0], atol=0.03)
    assert sent(app, "strip")[2]["value"] == {"head": [1, 2], "off": [list(OFF)]}
    assert "Roles: computed anew." in captions(app) and "All below" not in captions(app)
    assert written(app).count("This model has no L7H1") == 1, "said by the page alone"
    app.session_state["strip"] = {"pick": {"value": {"head": [1, 2], "off": [[1, 2]]}, "time": 1}}
    app.run()
    assert app.session_state["selection"].off == ((1, 2),)
    assert "film_beside" not in was_drawn(app), "a click on a switch waits for no film"
    app.button(key="all_on").click().run()
    assert app.session_state["selection"].off == () and "film_beside" in was_drawn(app)


def test_a_page_that_ends_early_has_its_stage(open_page: Open) -> None:
    app = open_page("circuits", run="tiny", prompt="x y")
    assert app.error and {"strip", "scrubber"} <= was_drawn(app)


@pytest.mark.parametrize("off", [(), (OFF,)])
def test_play_has_every_snapshot_and_waits_for_none_with_heads_off(
    off: tuple[Any, ...], small_run: Run, open_page: Open, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    if off:
        monkeypatch.setattr(prompt_film, "_packed", None)  # what is not sent is not packed either
    app = open_page("training", run="tiny", prompt=PROMPT, off=off)
    assert not app.exception
    if off:
        assert "film_beside" not in was_drawn(app)
        return
    data = app.session_state[DRAWN]["film_beside"][1]
    header, arrays = payload.unpack(data)
    assert arrays["steps"].tolist() == small_run.steps and header["measures"] == sent(app, "strip")[0]["measures"]
    for i, step in enumerate(small_run.steps):
        pattern = (arrays["frames"][arrays["film"][i]] / 255.0) ** 2
        np.testing.assert_allclose(pattern[1], read(small_run.model(step))[0], atol=0.01)
    assert arrays["roles"].shape == (len(small_run.steps), 2, 4)
    assert "frames" not in sent(app, "scrubber")[1], "of records there is no film in the timeline"


def test_a_switch_takes_a_head_out_of_its_patterns_alone(small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("training", run="tiny", prompt=PROMPT, step=STEP, layer=1, head=2)
    losses = sent(app, "loss")[1]
    app.session_state["strip"] = {"pick": {"value": {"head": [1, 2], "off": [list(OFF)]}, "time": 1}}
    app.run()
    assert app.session_state["selection"].off == (OFF,)
    np.testing.assert_allclose(thumbs(sent, app)[1], read(cut(small_run, 10))[0], atol=0.03)
    model, at = small_run.model(10), f"on “{PROMPT}”, step 10."
    losses_of = [float(guessed(one)) for one in (model, cut(small_run, 10))]
    words = (
        f"Loss on this text: {losses_of[0]:.3f} → {losses_of[1]:.3f} nats. Roles: computed anew. All below: recorded"
    )
    assert f"Without L0H1, {at} {words}" in captions(app)
    assert all(np.array_equal(now, losses[name], equal_nan=True) for name, now in sent(app, "loss")[1].items())
    app.button(key="all_on").click().run()
    assert app.session_state["selection"].off == () and "All heads on" not in labels(app)


def test_a_click_takes_a_head_into_focus_on_the_page(open_page: Open, sent: Any) -> None:
    app = open_page("gradients", run="tiny", layer=1, head=2)
    app.session_state["strip"] = {"pick": {"value": {"head": [0, 3], "off": []}, "time": 1}}
    app.run()
    assert app.session_state["selection"].focus == (0, 3) and app.selectbox(key="head_box").value == "L0H3"


def test_a_prompt_that_this_model_cannot_read_gives_way(small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("training", run="tiny", prompt="what no toy can read")
    assert thumbs(sent, app).shape[:2] == (2, 4) and "loss" in was_drawn(app)


def test_where_no_snapshot_can_be_read_the_page_is_there(
    open_page: Open, copy_run: Callable[..., Run], sent: Any
) -> None:  # fmt: skip
    run = copy_run("cut-short")
    (run.dir / "snapshots" / f"{run.steps[-1]:06d}.safetensors").write_bytes(b"nothing")
    app = open_page("training", run="cut-short")
    assert (
        "strip" not in was_drawn(app)
        and "loss" in was_drawn(app)
        and "000030.safetensors cannot be read" in written(app)
    )
    weightless = copy_run("weightless")
    for path in (weightless.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("training", run="weightless")  # kept prompts are in its trace
    assert isinstance(sent(app, "strip")[2]["value"], list), "what was kept can't be switched"


def test_a_prompt_that_is_cut_is_said_to_be(small_run: Run, open_page: Open) -> None:
    app = open_page("training", run="tiny", prompt="3 5 7 " * 200)
    said = f"Every head on the first {small_run.config.model.n_ctx} tokens of “3 5 7 3 5 7 3 5 7 3 5 7 3 5 7 3…”, step"
    assert said in captions(app)


def test_a_large_model_is_not_run_unasked(open_page: Open, copy_run: Callable[..., Run]) -> None:
    copy_run("large", n_params=200_000_000)
    app = open_page("training", run="large")
    assert "strip" not in was_drawn(app)
    app.button(key="strip_all").click().run()
    assert "strip" in was_drawn(app)
