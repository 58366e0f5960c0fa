"""The token view on Heads: what is sent for short, long, kept and foreign prompts, and what a click changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard.loading import token_reading
from tracer.interventions.edits import recording
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

Open = Callable[..., AppTest]
PROMPT = "3 4 5 3 4"


def taps(run: Run, prompt: str) -> dict[str, np.ndarray]:
    """Patterns and v of every layer by the explicit path, without the batch axis."""
    tokens = torch.tensor([[run.about.bos, *map(int, prompt.split())]])
    with torch.no_grad(), recording("hook_pattern", "hook_v") as seen:
        run.model(run.steps[-1])(tokens)
    return {name: x[0].double().numpy() for name, x in seen.items()}


def exactly(app: AppTest) -> str:
    return next(text.value for text in app.text if "exactly:" in text.value or "Pin a token" in text.value)


def test_every_head_is_sent_once_with_its_norms(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2)
    header, arrays, cue = sent(app, "reading")
    seen = taps(small_run, PROMPT)
    model: Any = small_run.model(small_run.steps[-1])
    cells = np.tril_indices(6)
    for layer in range(2):
        pattern, v = (seen[f"blocks.{layer}.attn.{name}"] for name in ("hook_pattern", "hook_v"))
        np.testing.assert_allclose(arrays["shares"][layer] / 65534, pattern[:, cells[0], cells[1]], atol=1e-5)
        W_O = model.blocks[layer].attn.W_O
        assert W_O is not None
        written = np.einsum("khd,hdm->hkm", v, W_O.detach().double().numpy())
        np.testing.assert_allclose(arrays["norms"][layer], np.linalg.norm(written, axis=-1), rtol=1e-5)
    assert header["tokens"][1:] == PROMPT.split() and header["apart"] and cue["value"] == [None, [1, 2]]
    before = header["version"]
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=0, head=1, token=3)
    header, _, cue = sent(app, "reading")
    assert header["version"] == before and cue["value"] == [3, [0, 1]]


def test_a_click_holds_a_token_and_reads_it_exactly(open_page: Open, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=0, head=3)
    assert exactly(app).startswith("Pin a token")
    app.session_state["reading"] = {"pick": [4, [0, 3]]}
    app.run()
    assert not app.exception and app.session_state["selection"].token == 4
    row = taps(small_run, PROMPT)["blocks.0.attn.hook_pattern"][3, 4]
    found = re.match(r"L0H3, exactly: 4 “3” → (\d) “.+” (0\.\d{6}), value-weighted 0\.\d{6}", exactly(app))
    assert found and int(found[1]) == row.argmax() and float(found[2]) == pytest.approx(row.max(), abs=1e-6)
    app.session_state["reading"] = {"pick": [None, [0, 3]]}
    app.run()
    assert app.session_state["selection"].token is None and exactly(app).startswith("Pin a token")  # pyrefly: ignore[unnecessary-comparison]


def test_a_click_on_a_square_moves_the_focus_and_a_token_does_not(open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT)
    first = [s.value for s in app.header if "on this prompt" in s.value][-1][:4]
    app.session_state["reading"] = {"pick": [2, [int(first[1]), int(first[3])]]}
    app.run()
    selection = app.session_state["selection"]
    assert (selection.token, selection.layer, selection.head) == (2, None, None)
    app.session_state["reading"] = {"pick": [2, [0, 0]]}
    app.run()
    selection = app.session_state["selection"]
    assert (selection.token, selection.layer, selection.head) == (2, 0, 0)


def test_a_token_beyond_the_prompt_is_not_held(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, token=6)
    assert sent(app, "reading")[2]["value"][0] is None and exactly(app).startswith("Pin a token")


def test_a_kept_prompt_has_no_values_to_weigh(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    run = copy_run("unweighed")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("heads", run="unweighed", kept="repeat 0", layer=0, head=3, step=10, token=2)
    header, arrays, _ = sent(app, "reading")
    kept = run.trace["pattern"].sel(step=10, prompt="repeat 0").values.astype(np.float32)
    n = len(header["tokens"])
    rows, cols = np.tril_indices(n)
    np.testing.assert_allclose(arrays["shares"] / 65534, kept[:, :, :n, :n][:, :, rows, cols], atol=1e-5)
    assert not arrays["norms"].size and "value-weighted" not in exactly(app)


@pytest.mark.parametrize("name", ["gpt", "patches", "opened"])
def test_models_of_others(elsewhere: Any, open_page: Open, sent: Any, name: str) -> None:
    app = open_page("heads", run=name, layer=1, head=1)
    header, arrays, _ = sent(app, "reading")
    assert not arrays["norms"].size and len(header["tokens"]) > 1
    assert header["causal"] == [name != "patches"] * 2
    assert arrays["there"].tolist() == [[1] * 4, [1, 1, 0, 0]] if name == "patches" else [[1, 1]] * 2


def test_heads_that_look_at_something_else() -> None:
    """Cross attention, a layer of fewer heads, and one whose queries are not the tokens."""
    thumbs = np.zeros((4, 2, 1, 1))
    thumbs[1, 1] = np.nan
    shown = PromptPatterns(
        ("run", "now", ()), 0, ["a", "b"], [True] * 4, [(2, 2), (2, 2), (2, 2), (3, 2)],
        ["self", "self", "other (cross)", "pooled"], thumbs, lambda *_: np.eye(2), lambda *_: np.eye(2),
    )  # fmt: skip
    assert token_reading.head_exists(shown).tolist() == [[True, True], [True, False], [False, False], [False, False]]
