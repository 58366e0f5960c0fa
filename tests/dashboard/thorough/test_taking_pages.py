"""Every page to take along: the file holds what its parts were given, and the lines of Python compute it again."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import loading
from dashboard.loading import prompt_tokens
from dashboard.shared.export import data as taking
from dashboard.shared.export.snippets import PAGES, View, snippet
from dashboard.shared.mount import DRAWN
from dashboard.shared.plots import PLOTLY, TABLE
from dashboard.state import Selection
from dashboard.views.circuits import data as circuits
from dashboard.views.find import data as finding_passages
from tracer.analysis import training_curves
from tracer.measures import MEASURES
from tracer.pictures import atlas
from tracer.pictures.picture import Picture
from tracer.pictures.taken import UNSEEN
from tracer.store import open_run

STEP, HEAD = 20, (1, 2)


def view(selection: Selection, name: str = "tiny") -> View:
    run = open_run(name)
    return View(run, loading.trace(run), STEP, HEAD, selection, name == "tiny")


def ran(page: str, selection: Selection | None = None, name: str = "tiny") -> Any:
    """The value of the last line of the snippet, and the rest run before it."""
    *before, last = snippet(page, view(selection or Selection(), name)).splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join(before), scope)
    return eval(last, scope)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_file_holds_what_the_page_was_given(page: str, open_page: Callable[..., AppTest]) -> None:
    app = open_page(page, run="tiny", step=STEP)
    given = app.session_state[DRAWN]
    sent = {element.proto.id.rpartition("-")[2]: element.proto for element in app.get("bidi_component")}
    shown = {key for key, (part, _) in given.items() if part not in (*UNSEEN, PLOTLY, TABLE)}
    assert given and shown == {key for key in sent if not key.endswith(":cue")} & shown
    blocks = [{"kind": "part", "key": re.sub(r"[^\w-]", "-", key), "at": None} for key in sorted(shown)]
    run = open_run("tiny")
    text = taking.page(page.title(), run, STEP, blocks, given, code="import tracer", link="http://a/b?c", head=HEAD)
    held = re.search(r'id="view">(.*?)</script>', text, re.DOTALL)
    assert held
    mounts = json.loads(held[1])["mounts"]
    assert [mount["key"] for mount in mounts] == [block["key"] for block in blocks]
    for key, mount in zip(sorted(shown), mounts, strict=True):
        assert base64.b64decode(mount["blob"] or "") == sent[key].bytes
        cue = json.loads(sent[f"{key}:cue"].json)
        assert mount["cue"] == (atlas.without_switches(cue) if given[key][0] == "atlas" else cue)
    assert f"{page.title()} · tiny" in text and "step 20" in text and 'href="http://a/b?c"' in text


def test_keys_are_named_as_a_browser_names_them() -> None:
    assert list(taking._drawn({" Köln 1": ("curves", b"")})) == ["K-ln-1"]


def test_what_is_explained_is_what_is_shown() -> None:
    drawn = {"a": Picture("curves", {"scale": {"label": "Induction score"}}, b"")}
    assert [one.name for one in taking._measures(drawn, MEASURES.values())] == ["induction"]


def test_training_again(workplace: object) -> None:
    found, trace = ran("training"), open_run("tiny").trace
    assert {"train_loss", "val_loss", "entropy", "induction"} <= set(found)
    assert all(np.array_equal(found[name], trace[name].sel(step=STEP), equal_nan=True) for name in found)


def test_gradients_again(workplace: object) -> None:
    found, trace = ran("gradients"), open_run("tiny").trace
    assert np.array_equal(found["update_ratio"], trace["update_ratio"].sel(step=STEP))


def test_phases_again(workplace: object) -> None:
    from dashboard.loading import changes

    run = open_run("tiny")
    assert ran("phases") == {curve.label: curve.change for curve in training_curves.events(changes.curves(run))}


def test_circuits_again(workplace: object) -> None:
    scores = circuits.composition(open_run("tiny"), STEP, ("k",), print).scores["k"]
    assert np.array_equal(ran("circuits"), scores[:, :, *HEAD], equal_nan=True)


@pytest.mark.parametrize("looks", ["sharpest", "induction"])
def test_find_again(workplace: object, looks: str) -> None:
    found = finding_passages.search(open_run("tiny"), STEP)
    assert ran("find", Selection(looks=looks)) == finding_passages.shown(found, looks, HEAD).hits


@pytest.mark.parametrize("off", [(), ((0, 1), (1, 2))])
def test_ablate_again(workplace: object, off: tuple[tuple[int, int], ...]) -> None:
    from dashboard.loading.ablation import Setup, costs, sweep

    found, run = ran("ablate", Selection(off=off, mode="mean")), open_run("tiny")
    if off:
        expected = costs(Setup.of(run, STEP, off, "mean", False))["repeat"].change
        assert (found.mean, found.low, found.high) == pytest.approx(
            (expected.mean, expected.low, expected.high), abs=1e-6
        )
    else:
        shown = sweep(run, STEP, "mean", False)["repeat"]
        for name, values in (("effect", shown.effect), ("low", shown.low), ("high", shown.high)):
            np.testing.assert_array_equal(found[name], values)
        assert np.array_equal(found.p_holm < 0.05, shown.corrected)
        for layer, head in np.ndindex(found.effect.shape):
            alone = costs(Setup.of(run, STEP, ((layer, head),), "mean", False))["repeat"].change
            assert float(found.effect[layer, head]) == pytest.approx(alone.mean, abs=1e-5)


@pytest.mark.parametrize("name", ["gpt", "patches"])
@pytest.mark.parametrize("page", sorted(PAGES))
def test_models_of_others(elsewhere: object, page: str, name: str) -> None:
    run = open_run(name)
    trace = loading.trace(run)
    step = run.steps[-1] if run.steps else int(trace["step"].values[-1])
    runs = run.about.rebuilds and prompt_tokens.tokenizer(run) is not None
    code = snippet(page, View(run, trace, step, (0, 0), Selection(), runs))
    *before, last = code.splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join(before), scope)
    assert eval(last, scope) is not None
