"""Links: every choice of Circuits, of Phases and of the tour comes back, and a damaged one opens at its default."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.runtime.state import QueryParamsProxy
from streamlit.testing.v1 import AppTest

from dashboard import state
from dashboard.state import Selection
from tests.dashboard.words import shown

Open = Callable[..., AppTest]


@pytest.mark.parametrize(
    ("chosen", "query"),
    [
        ({"into": "q"}, {"into": "q"}),
        ({"raw": True}, {"raw": "True"}),
        ({"unit": "perplexity", "setting": "64 wide"}, {"unit": "perplexity", "setting": "64 wide"}),
        ({"log": True, "since": True}, {"log": "True", "since": "True"}),
        ({"compare": "a", "over": ("demo-1", "my run, 2")}, {"compare": "a", "over": "demo-1/my run, 2"}),
        ({"alone": True}, {"alone": "True"}),
        ({"across": "effect", "up": "layer", "colour": "sink"}, {"across": "effect", "up": "layer", "colour": "sink"}),
        ({"phase": "previous_token", "path": "late"}, {"phase": "previous_token", "path": "late"}),
        ({"guess": "everything", "tour": 5}, {"guess": "everything", "tour": "5"}),
        ({}, {}),
    ],
)
def test_a_choice_and_its_link(chosen: dict[str, Any], query: dict[str, str]) -> None:
    assert state.to_query(Selection(**chosen)) == query
    assert state.from_query(query) == Selection(**chosen)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"unit": "bits"}, {}),
        ({"into": "o", "path": "back", "guess": "all"}, {}),
        ({"raw": "yes", "log": "1", "since": "true"}, {}),
        ({"compare": "c", "over": "a//b/a/"}, {"compare": "c", "over": ("a", "b")}),
        ({"into": "v", "path": "loss", "phase": "somebodys"}, {"into": "v", "phase": "somebodys"}),
    ],
)
def test_a_damaged_link(query: dict[str, str], found: dict[str, Any]) -> None:
    assert state.from_query(query) == Selection(**found)


def test_a_link_that_would_be_too_long_leaves_the_runs_out() -> None:
    assert state.to_query(Selection(over=("x" * 3000, "y" * 3000), log=True)) == {"log": "True"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"beside": "a//b/a/"}, {"compare": "a", "over": ("b",)}),
        ({"beside": "/"}, {"alone": True}),
        ({"beside": "a", "compare": "c"}, {"compare": "c"}),
    ],
)
def test_an_old_link_of_phases_opens_what_it_opened(query: dict[str, str], found: dict[str, Any]) -> None:
    assert state.from_query(query) == Selection(**found)


def test_another_run_leaves_behind_what_belonged_to_the_old_one(open_page: Open) -> None:
    app = open_page("circuits", run="gone", guess="nothing", alone=True, phase="induction", path="late", into="v")
    assert app.session_state["selection"].run == "gone"  # a run that is not there is refused, and nothing is lost
    app.selectbox(key="run_box").set_value("tiny").run()
    assert app.session_state["selection"] == Selection(run="tiny", into="v")


def parts(app: AppTest) -> dict[str, Any]:
    """What every part got: its bytes, and its cue without the time of the last pick."""
    found = {}
    for e in app.get("bidi_component"):
        cue = json.loads(e.proto.json) if e.proto.json else {}
        found[e.proto.id.rpartition("-")[2]] = e.proto.bytes, {k: v for k, v in cue.items() if k != "seen"}
    return found


def reopened(open_page: Open, page: str, app: AppTest) -> AppTest:
    """The link of what is shown, opened by somebody else."""
    query = state.to_query(app.session_state["selection"])
    return open_page(page, **vars(state.from_query(query)))


def test_circuits_reopen_as_they_were(open_page: Open) -> None:
    first = open_page("circuits", run="tiny")
    app = open_page("circuits", run="tiny")
    app.segmented_control(key="into_box").set_value("v").run()
    app.toggle(key="positions_normed").set_value(False).run()
    again = reopened(open_page, "circuits", app)
    assert parts(again) == parts(app)
    assert parts(again)["composition:cue"][1]["into"] == "v" and parts(first)["composition:cue"][1]["into"] == "k"
    assert shown(again, "positions") == shown(app, "positions") != shown(first, "positions")
    assert again.toggle(key="positions_normed").value is False and again.segmented_control(key="into_box").value == "v"


def test_what_is_chosen_back_is_written_although_the_browser_still_brings_the_address_of_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The address of the click before is still on its way to it."""
    written: list[dict[str, str]] = []
    from_dict = QueryParamsProxy.from_dict
    monkeypatch.setattr(
        QueryParamsProxy, "from_dict", lambda params, query: (written.append(query), from_dict(params, query))
    )

    def page() -> None:
        import streamlit as st

        from dashboard import state

        state.read()
        st.button("there", on_click=lambda: state.update(step=1))
        st.button("back", on_click=lambda: state.update(step=None))

    app = AppTest.from_function(page).run()
    app.button[0].click().run()
    app.query_params.clear()
    app.button[1].click().run()
    assert written == [{"step": "1"}, {}]
    app.run()
    assert len(written) == 2


def test_a_link_to_a_run_that_is_gone_offers_others_and_keeps_the_rest(open_page: Open, tmp_path: Path) -> None:
    app = open_page("heads", run=str(tmp_path / "gone"), layer=1, head=1, measure="induction")
    text = app.text[0].value
    assert app.error and text.startswith("gone is not here any more") and "/" not in text and "`" not in text
    next(b for b in app.button if b.label == "Open tiny").click().run()
    chosen = app.session_state["selection"]
    assert not app.exception and not app.error
    assert (chosen.run, chosen.layer, chosen.head, chosen.measure) == ("tiny", 1, 1, "induction")
