"""Share: link and Python lines say what is on the page, and the file is made of the same numbers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import loading
from dashboard.loading import head_scores, prompt_attention, recorded_prompts
from dashboard.shared.export import data as taking
from dashboard.shared.export import page_file
from dashboard.shared.export.snippets import as_notebook
from dashboard.shared.mount import DRAWN
from tests.dashboard.conftest import opener
from tests.dashboard.words import written
from tracer.pictures import payload
from tracer.store import Run, open_run


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Callable[..., AppTest]:
    """The page with its Share, which app.py draws after it."""
    share = "from dashboard.shared.export.page_file import draw_page_taking\n"
    return opener(request, share + "draw_page_taking({page!r}, {page!r}.title())\n")


def view(text: str) -> dict[str, Any]:
    """The mounts of a file by their keys."""
    found = re.search(r'<script type="application/json" id="view">(.*?)</script>', text, re.DOTALL)
    assert found
    return {one["key"]: one for one in json.loads(found[1])["mounts"]}


def test_link_and_code_of_a_text(open_page: Callable[..., AppTest]) -> None:
    app = open_page("heads", run="tiny", step=10, layer=1, head=2, prompt="5 7 9 5", measure="previous_token")
    link, code = (box.value for box in app.code)
    assert parse_qs(link.partition("?")[2]) == {
        "run": ["tiny"], "step": ["10"], "prompt": ["5 7 9 5"], "layer": ["1"], "head": ["2"],
        "measure": ["previous_token"],
    }  # fmt: skip
    call = "tracer.show('checkpoints/tiny', '5 7 9 5', step=10, head=(1, 2), measure='previous_token')"
    assert code == f"import tracer\n\n{call}"
    assert "It opens on this computer only" not in written(app)  # an AppTest has no address


def test_a_link_that_opens_nowhere_else_says_so(open_page: Callable[..., AppTest], monkeypatch: Any) -> None:
    monkeypatch.setattr(page_file, "_link", lambda selection: "http://localhost:8501/heads?run=tiny")
    assert "It opens on this computer only" in written(open_page("heads", run="tiny"))


def test_a_link_names_what_nobody_chose(open_page: Callable[..., AppTest], small_run: Run) -> None:
    link = open_page("heads", run="tiny").code[0].value
    query = parse_qs(link.partition("?")[2])
    assert int(query["step"][0]) == small_run.steps[-1] and {"layer", "head"} <= set(query)


def ran(code: str, call: str) -> Any:
    scope: dict[str, Any] = {}
    exec(code.replace(call, f"found = {call}"), scope)
    return scope["found"]


def test_patterns_that_were_kept(open_page: Callable[..., AppTest], elsewhere: Path) -> None:
    code = open_page("heads", run="patches").code[1].value
    run = open_run("patches")
    trace, found = loading.trace(run), recorded_prompts.prompts(run)
    shown = recorded_prompts.of_prompt(run, found.steps[-1], found.names[0])
    layer, head = head_scores.default_head(trace, shown.step)
    exact = shown.window(layer, head, slice(None), slice(None))
    assert np.array_equal(ran(code, "tracer.open_run(").values, exact, equal_nan=True)
    text = taking.heads(run, trace, shown, (layer, head), "entropy", prompt="", code="", link="")
    assert np.abs(cells(text)[layer, head] - exact).max() < 1e-3
    assert view(text)["atlas"]["template"]["exist"] == [[1, 1, 1, 1], [1, 1, 0, 0]]


@pytest.mark.parametrize("name", ["gpt", "opened"])
def test_models_of_others_are_shown_again(open_page: Callable[..., AppTest], elsewhere: Path, name: str) -> None:
    picture = ran(open_page("heads", run=name).code[1].value, "tracer.show(")
    assert f"Every head of {name}" in picture.html and len(view(picture.html)["reading"]["blob"]) > 1000


def cells(text: str) -> np.ndarray:
    head, arrays = payload.unpack(base64.b64decode(view(text)["reading"]["blob"]))
    n, found = len(head["tokens"]), arrays["shares"] / 65534
    full = np.zeros((*found.shape[:2], n, n))
    rows, cols = np.tril_indices(n) if head["triangle"] else np.indices((n, n)).reshape(2, -1)
    full[:, :, rows, cols] = found
    return full


def test_the_file_holds_what_the_page_shows(workplace: Path) -> None:
    run = open_run("tiny")
    trace, ids = loading.trace(run), [0, 5, 7, 9, 5]
    shown = prompt_attention.of_text(run, 10, ids, ["<bos>", "5", "7", "9", "5"])
    text = taking.heads(
        run, trace, shown, (1, 2), "induction", prompt="5 7 9 5", code="import tracer", link="http://a/?b"
    )
    mounts = view(text)
    exact = np.array([[shown.window(layer, head, slice(None), slice(None)) for head in range(4)] for layer in range(2)])
    assert np.abs(cells(text) - exact).max() < 1e-5
    values = dict(zip(mounts["atlas"]["template"]["measures"], mounts["atlas"]["template"]["values"], strict=True))
    assert list(values) == head_scores.head_measures(trace)
    assert np.allclose(values["induction"], head_scores.head_means(trace, "induction", 10), rtol=1e-4)
    assert payload.unpack(base64.b64decode(mounts["scrubber"]["blob"]))[1]["steps"].tolist() == run.steps
    assert "Every head of tiny" in text and 'href="http://a/?b"' in text and "import tracer" in text


def test_the_file_holds_the_token_and_the_chart_of_the_page(open_page: Callable[..., AppTest]) -> None:
    given = open_page("heads", run="tiny", step=10, token=3).session_state[DRAWN]
    run = open_run("tiny")
    shown = prompt_attention.of_text(run, 10, [0, 5, 7, 9, 5], ["<bos>", "5", "7", "9", "5"])
    told = {"prompt": "5 7 9 5", "code": "", "link": "", "given": given}
    mounts = view(taking.heads(run, loading.trace(run), shown, (1, 2), "induction", **told, token=3))
    assert mounts["reading"]["cue"]["value"] == [3, [1, 2]] and mounts["history"]["part"] == "curves"
    assert base64.b64decode(mounts["history"]["blob"]) == loading.head_curves(run, "induction")
    without = view(taking.heads(run, loading.trace(run), shown, (1, 2), "induction", **told, token=9))
    assert without["reading"]["cue"]["value"] == [None, [1, 2]]  # that prompt has no such token


def lines(app: AppTest) -> str:
    """The code of Share, where the page itself shows none."""
    return app.code[-1].value


def test_lines_of_circuits_are_without_the_heads_that_are_off(open_page: Callable[..., AppTest]) -> None:
    app = open_page("circuits", run="tiny", layer=1, head=2, prompt="5 7 9 5 7 9", token=4, off=((0, 1), (9, 9)))
    assert parse_qs(app.code[-2].value.partition("?")[2])["off"] == ["L0H1 L9H9"]
    assert "with zeroed(model, tokens, [(0, 1)]):" in lines(app)
    scope: dict[str, Any] = {}
    exec(lines(app), scope)
    (cue,) = [e.proto.json for e in app.get("bidi_component") if e.proto.id.rpartition("-")[2] == "logit_heads:cue"]
    found = scope["parts"].heads.sel(pos=4).squeeze("batch").values
    np.testing.assert_allclose(found, np.array(json.loads(cue)["values"]), atol=1e-6)
    assert found[0, 1] == 0
    assert "zeroed" not in lines(open_page("circuits", run="tiny", layer=1, head=2, prompt="5 7 9"))


def test_lines_of_find_are_without_the_heads_that_are_off(open_page: Callable[..., AppTest], sent: Any) -> None:
    app = open_page("find", run="tiny", layer=1, head=2, off=((0, 1),))
    best = ran(lines(app), "strongest(")
    shown = sent(app, "passages")[0]["passages"]
    assert [(hit.sequence, hit.query, hit.key) for hit in best] == [
        (one["sequence"], one["query"], one["key"]) for one in shown
    ]
    assert [hit.score for hit in best] == pytest.approx([one["score"] for one in shown], abs=1e-6)
    assert "with zeroed(model, tokens, [(0, 1)]):" in lines(app)


def test_a_notebook_holds_the_lines() -> None:
    held = json.loads(as_notebook("Heads", "http://a/?b", "import tracer\n1 + 1"))
    assert (held["nbformat"], [cell["cell_type"] for cell in held["cells"]]) == (4, ["markdown", "code"])
    assert held["cells"][1]["source"] == "import tracer\n1 + 1" and "<http://a/?b>" in held["cells"][0]["source"]
