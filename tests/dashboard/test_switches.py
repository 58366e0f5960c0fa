"""Heads: a head that is switched off writes nothing wherever the model runs, as in a model whose W_O has lost it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

import tracer
from dashboard import state
from dashboard.shared import guesses
from dashboard.shared.export import data as taking
from dashboard.shared.mount import DRAWN
from tests.dashboard.words import captions, labels, was_drawn, written
from tracer.ablate import zeroed
from tracer.analysis.prompt_over_steps import film
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.model.protocol import HeadModel
from tracer.store import Run

Open = Callable[..., AppTest]
PROMPT = "3 4 5 3 4"
TOKENS = torch.tensor([[0, 3, 4, 5, 3, 4]])
OFF = (0, 1)


def cut(run: Run, step: int | None = None, heads: tuple[tuple[int, int], ...] = (OFF,)) -> Transformer:
    """The model without the rows of W_O that the heads write with."""
    model = run.model(step)
    assert isinstance(model, Transformer)
    for layer, head in heads:
        weights = model.blocks[layer].attn.W_O
        assert weights is not None
        with torch.no_grad():
            weights[head] = 0
    return model


@torch.no_grad()
def read(model: HeadModel) -> tuple[np.ndarray, torch.Tensor]:
    """Patterns of layer 1 [head query_pos key_pos], and logits [pos d_vocab]."""
    with recording("blocks.1.attn.hook_pattern") as seen:
        logits = model(TOKENS)[0]
    return seen["blocks.1.attn.hook_pattern"][0].numpy(), logits.double()


def shares(sent: Any, app: AppTest, key: str = "pattern") -> np.ndarray:
    return sent(app, key)[1]["shares"] / 65534


def line(app: AppTest) -> str:
    return next(html.proto.body for html in app.get("html") if "Next token" in html.proto.body)


def test_patterns_guesses_and_loss_are_those_of_the_cut_model(small_run: Run, open_page: Open, sent: Any) -> None:
    patterns, logits = read(cut(small_run))
    whole, clean = read(small_run.model())
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    np.testing.assert_allclose(shares(sent, app), patterns[2], atol=1e-5)
    assert np.abs(patterns[2] - whole[2]).max() > 1e-3, "the head is read, or this test says nothing"
    now, before = (one[-1].softmax(-1).numpy() for one in (logits, clean))
    ids = guesses.likeliest(now, before)
    assert int(now.argmax()) in ids and int(before.argmax()) in ids
    said = re.findall(r"<li><code>(.*?)</code>.*?<small>(.*?) → </small>(.*?)</li>", line(app))
    two = [(str(i), *(f"{p:.2f}" if p >= 0.005 else "<.01" for p in (before[i], now[i]))) for i in ids]
    assert said == two
    target = TOKENS[0, 1:, None]
    losses = [-one[:-1].log_softmax(-1).gather(1, target).mean() for one in (clean, logits)]
    assert f"Loss on this text: {losses[0]:.3f} → {losses[1]:.3f} nats" in line(app)


def test_all_on_says_one_number_each(open_page: Open, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT)
    assert "→" not in line(app) and line(app).count("<li>") == 5
    assert "All heads on" not in labels(app) and app.session_state["selection"].off == ()


def test_before_and_change(small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    app.segmented_control(key="off_view").set_value("before").run()
    np.testing.assert_allclose(shares(sent, app), read(small_run.model())[0][2], atol=1e-5)
    app.segmented_control(key="off_view").set_value("change").run()
    header, arrays, _ = sent(app, "off_change")
    assert [side["title"] for side in header["sides"]] == ["Every head on", "L0H1 off"]
    np.testing.assert_allclose(arrays["b"] / 65534, read(cut(small_run))[0][2], atol=1e-5)


def test_a_switch_and_the_buttons(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2)
    app.session_state["atlas"] = {"pick": {"value": {"head": [1, 2], "off": [[1, 0], [0, 1]]}, "time": 1}}
    app.run()
    chosen = app.session_state["selection"]
    assert chosen.off == ((0, 1), (1, 0)) and chosen.focus == (1, 2)
    assert state.to_query(chosen)["off"] == "L0H1 L1H0" and "Without L0H1 and L1H0: they write" in captions(app)
    assert sent(app, "atlas")[2]["value"] == {"head": [1, 2], "off": [[0, 1], [1, 0]]}
    app.button(key="switch_focus").click().run()
    assert app.session_state["selection"].off == ((0, 1), (1, 0), (1, 2)) and "Switch L1H2 on" in labels(app)
    app.button(key="all_on").click().run()
    assert app.session_state["selection"].off == () and "A tile is a head" in captions(app)


def test_why_and_its_lines_are_of_the_cut_model(small_run: Run, open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    app.session_state["pattern"] = {"pick": [5, 2]}
    app.run()
    share = read(cut(small_run))[0][2, 5, 2]
    (said,) = [one.value for one in app.text if "of the attention of" in one.value]
    assert said.startswith(f"L1H2 gives {share:.0%}")
    (code,) = [one.value for one in app.code if "tracer.why" in one.value]
    names: dict[str, Any] = {}
    exec(code, names)  # in the folder where the app runs
    assert names["found"].attrs["pattern"] == pytest.approx(share, abs=1e-6)
    sources = names["found"].key_source.values.tolist()
    assert "L0H0" in sources and "L0H1" not in sources, "what is off wrote nothing"


def test_a_film_with_heads_off_waits_for_a_click(small_run: Run, open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, off=(OFF,))
    assert "Film" in labels(app)
    app.button(key="film").click().run()
    assert "Film" not in labels(app)
    step, frame = next(film(small_run, TOKENS, [small_run.steps[-1]], size=6, off=(OFF,)))
    np.testing.assert_allclose(frame[1], read(cut(small_run, step))[0], atol=1e-6)


def test_a_second_step_of_the_run_is_without_them_too(small_run: Run, open_page: Open, sent: Any) -> None:
    first = small_run.steps[0]
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,), other_step=first)
    np.testing.assert_allclose(sent(app, "versus")[1]["b"] / 65534, read(cut(small_run, first))[0][2], atol=1e-5)


def test_heads_that_are_not_there_are_left_out(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, off=((7, 1), OFF))
    assert "This model has no L7H1" in "".join(one.value for one in app.warning)
    assert sent(app, "atlas")[2]["value"]["off"] == [[0, 1]]


def test_without_weights_nothing_can_be_switched(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    run = copy_run("weightless")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("heads", run="weightless", off=(OFF,))
    assert isinstance(sent(app, "atlas")[2]["value"], list) and "switch_focus" not in {b.key for b in app.button}
    assert "Next token" not in written(app) and "off_change" not in was_drawn(app)


def test_a_shown_file_is_of_the_cut_model(small_run: Run, workplace: Path) -> None:
    view = tracer.show(small_run, PROMPT, head=(1, 2), off=[OFF], film=False)
    assert "L0H1 off" in view.html and "off=[(0, 1)]" in view.html
    model = small_run.model()
    with zeroed(model, TOKENS, [OFF]):
        edited, logits = read(model)
    expected, cut_logits = read(cut(small_run))
    np.testing.assert_allclose(edited, expected, atol=1e-6)
    torch.testing.assert_close(logits, cut_logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="L9H0|layer 9"), zeroed(model, TOKENS, [(9, 0)]):
        pass


def test_a_file_of_the_page_has_no_model_to_switch(open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    drawn = taking._drawn(app.session_state[DRAWN])
    (cue,) = [picture.cue for picture in drawn.values() if picture.part == "atlas"]
    assert (cue["value"], cue["off"]) == ([1, 2], [[0, 1]]), "hatched, and a click takes a head into focus"


def test_several_heads_of_several_layers(small_run: Run) -> None:
    heads, model = ((1, 0), OFF, (0, 3)), small_run.model()
    with zeroed(model, TOKENS, heads):
        patterns, logits = read(model)
    expected, cut_logits = read(cut(small_run, heads=heads))
    np.testing.assert_allclose(patterns, expected, atol=1e-6)
    torch.testing.assert_close(logits, cut_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read(model)[1], read(small_run.model())[1], msg="nothing is off after the block")


def test_tokens_are_text_and_small_shares_say_so() -> None:
    words, now, before = ["<b>", "a"], np.array([0.75, 0.001]), np.array([0.25, np.nan])
    said = guesses.line(words, now, before)
    assert "&lt;b&gt;" in said and "<b>" not in said
    assert re.findall(r"width:([\d.]+)%", said) == ["100.0", "33.3", "0.1", "0.0"]
    assert "0.25 → </small>0.75" in said and "– → </small><.01" in said
