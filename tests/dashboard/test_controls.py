"""A control shows what is chosen, hands on what a person picks, and is written to no more often than that takes."""

from __future__ import annotations

from typing import Any

from streamlit.testing.v1 import AppTest

from dashboard.state import Selection


def page() -> None:
    import streamlit as st

    from dashboard import state

    state.turn_to(st.session_state.get("at", "heads"))
    steps = [0, 10, 20, 30]
    st.select_slider("Step", steps, **state.control("box", state.read().step or 30, lambda s: state.update(step=s)))
    st.button("go", on_click=state.update, kwargs={"step": 20})
    st.text(f"{state.among('measure', ['induction', 'entropy'])} of {state.read().measure}")


def opened(**selection: Any) -> AppTest:
    app = AppTest.from_function(page)
    app.session_state["selection"] = Selection(**selection)
    return app.run()


def address(app: AppTest) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[-1] for name, value in app.query_params.items()}


def test_a_control_is_written_once_a_value_and_once_a_page() -> None:
    app = opened()
    assert app.select_slider[0].value == 30 and app.select_slider[0].proto.set_value
    assert not app.run().select_slider[0].proto.set_value  # else a person who drags meanwhile is thrown back
    app.session_state["at"] = "ablate"
    assert app.run().select_slider[0].proto.set_value and app.select_slider[0].value == 30


def test_a_choice_is_the_selection_and_the_address_and_the_other_way_round() -> None:
    app = opened()
    app.select_slider[0].set_value(10).run()
    assert app.session_state["selection"].step == 10 and address(app) == {"step": "10"}
    app.button[0].click().run()
    assert app.select_slider[0].value == 20 and address(app) == {"step": "20"}


def test_what_a_page_does_not_have_is_chosen_no_more() -> None:
    assert opened(measure="entropy").text[0].value == "entropy of entropy"
    app = opened(measure="first_token", step=10)
    assert app.text[0].value == "None of induction" and address(app) == {"step": "10"}


def test_a_session_begins_with_its_address_and_goes_by_its_own_value_then() -> None:
    app = AppTest.from_function(page)
    app.query_params["step"] = "10"
    assert app.run().select_slider[0].value == 10
    app.query_params["step"] = "20"  # a browser that lags behind
    assert app.run().select_slider[0].value == 10 and address(app) == {"step": "10"}
