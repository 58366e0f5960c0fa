"""Tests of a verdict and roles of heads that a person names when the server starts, on Ablate and Circuits."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import tracer
from dashboard.shared.export.snippets import View, snippet
from dashboard.state import Selection
from dashboard.views.circuits import head_roles
from tests.ablate.test_own_tests import HERE as TESTS_HERE
from tests.dashboard.test_circuits_page import cue
from tracer import ablate
from tracer.cli import serving
from tracer.named_code import ROLES, TESTS, remember
from tracer.store import Run

Open = Callable[..., AppTest]
HERE = __name__
ANY = tracer.role("any", measure="entropy", at_least=0.0, control="confidence", label="any *head* <b>")
GONE = tracer.role("gone", measure="again_the_copy", at_least=0.5)
CARD = {"run": "tiny", "layer": 1, "head": 2, "cards": ("verdict-L1H2-30",)}


def sharpest(rows: Any) -> Any:
    return rows.lse


def listed(app: AppTest) -> str:
    return next(e.proto.body for e in app.get("html") if '<div class="roles">' in e.proto.body)


def test_the_card_has_a_row_more(open_page: Open, small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    invited = open_page("ablate", **CARD | {"cards": ()})
    assert invited.button(key="verdict").help == "Six tests, five of them after Olsson et al. 2022."
    monkeypatch.setenv(TESTS, f"{TESTS_HERE}:one_back,{TESTS_HERE}:broken")
    assert "2022, and those of --tests." in invited.run().button(key="verdict").help
    app = open_page("ablate", **CARD)
    found = ablate.verdict(small_run, 1, 2, 30, tests=[f"{TESTS_HERE}:one_back", f"{TESTS_HERE}:broken"])
    assert app.code[0].value == found.snippet and "tests=['tests.ablate.test_own_tests:one_back'," in found.snippet
    html = next(e.proto.body for e in app.get("html") if '<table class="verdict">' in e.proto.body)
    assert html.count("<tr>") == 9 and "raised KeyError: &#x27;comma&#x27;" in html and "nan" not in html
    assert f"Measured by {TESTS_HERE}:one_back." in html and "–</td>" not in html
    ticks = next(e.proto.body for e in app.get("html") if f"{found.headline}." in e.proto.body)
    assert " of 1 that were added" in ticks and "broken (not measured)" in ticks


def test_a_name_that_is_none_leaves_the_card(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TESTS, "math:nothing")
    app = open_page("ablate", **CARD)
    assert "tests='math:nothing': math has no nothing" in [text.value for text in app.text]
    assert "tests=" not in app.code[0].value and "print(verdict(" in app.code[0].value


def test_heads_are_called_by_roles_that_are_named(
    open_page: Open, small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_page("circuits", run="tiny")
    assert "Named roles" not in [one.value for one in before.header]
    ours = cue(before, "composition")["roles"]
    monkeypatch.setenv(ROLES, f"{HERE}:ANY,{HERE}:GONE")
    app = open_page("circuits", run="tiny")
    got = tracer.roles(small_run, roles=[ANY, GONE])
    assert cue(app, "composition")["roles"] == [
        [", ".join(filter(None, ["any *head* <b>" * ((a, b) in got.heads), ours[a][b]])) for b in range(4)]
        for a in range(2)
    ]  # fmt: skip
    said = listed(app)
    assert "<b>gone</b> <span>Not recorded here: again_the_copy.</span>" in said
    assert "<b>any *head* &lt;b&gt;</b> <span>Attention entropy: at least 0; above: Confidence</span>" in said
    best = got.of("any")[0]
    entropy, control = (float(small_run.trace[name][-1][best.head]) for name in ("entropy", "confidence"))
    assert entropy == best.value and f"<b>L{best.head[0]}H{best.head[1]}</b> {entropy:.3f}<span>" in said
    assert f"<span>{best.low:.3f} to {best.high:.3f}</span><span>control {control:.3f}</span>" in said
    assert said.count("<li>") == len(got.of("any")) == 8
    lines = snippet("circuits", View(small_run, small_run.trace, 30, (1, 2), Selection(run="tiny"), True))
    assert lines.endswith(f"print(tracer.roles(run, 30, roles=['{HERE}:ANY', '{HERE}:GONE']))")


def test_a_role_that_is_none_is_said(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLES, "math:pi")
    app = open_page("circuits", run="tiny")
    assert "roles=math:pi: make it with tracer.role" in [text.value for text in app.text]


@pytest.mark.usefixtures("elsewhere")
def test_a_role_needs_no_model(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROLES, f"{HERE}:GONE")
    app = open_page("circuits", run="patches")
    assert "<b>gone</b> <span>Not recorded here: again_the_copy.</span>" in listed(app)


def test_ours_say_what_they_said(small_run: Run) -> None:
    """The first of these measures that is above 0.4 names a head."""
    words = {"induction": "induction", "previous_token": "previous token", "current_token": "own token",
             "first_token": "first token"}  # fmt: skip
    trace, rng = small_run.trace.load().copy(deep=True), np.random.default_rng(0)
    for name in words:
        trace[name].values[-1] = 0.5 * rng.random((2, 4))
    trace["induction"].values[-1, 0, 0] = np.nan
    expected: list[list[Any]] = [[""] * 4, [""] * 4]
    for layer, head in np.ndindex(2, 4):
        high = [word for name, word in words.items() if trace[name].values[-1, layer, head] > 0.4]
        expected[layer][head] = high[0] if high else ""
    assert head_roles.words(trace, 30) == expected
    assert {*words.values(), ""} == {word for row in expected for word in row}


def test_what_is_named_is_checked_before_anything_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in (TESTS, ROLES):
        monkeypatch.setenv(setting, "")
    with pytest.raises(ValueError, match="make it with tracer.head_test"):
        serving.view(tests=("math:pi",))
    with pytest.raises(ValueError, match="make it with tracer.role"):
        serving.view(roles=("math:pi",))
    with pytest.raises(ValueError, match="a float is no function of rows"):
        serving.view(measures=("math:pi",))
    with pytest.raises(ValueError, match="a survey has numbers called sharpest"):
        serving.view(measures=(f"{HERE}:sharpest",))
    assert os.environ[TESTS] == os.environ[ROLES] == ""
    serving._allow((), (f"{TESTS_HERE}:one_back",), (f"{HERE}:ANY",))
    remember(TESTS, f"{TESTS_HERE}:one_back", "b:f")
    assert os.environ[TESTS] == f"{TESTS_HERE}:one_back,b:f" and os.environ[ROLES] == f"{HERE}:ANY"
