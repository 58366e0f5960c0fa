"""A widget's value reaches the browser, which mounts a widget late, also when a click cut the first run short."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest


def page(cut: bool) -> None:
    import streamlit as st

    from dashboard import state

    state.show("box", 30)
    st.select_slider("Step", [0, 10, 20, 30], key="box")
    if not (cut and st.session_state.setdefault("runs", 0) == 0):
        state.arrived()
    st.session_state["runs"] = st.session_state.get("runs", 0) + 1


@pytest.mark.parametrize("cut", [True, False])
def test_a_value_is_given_again_until_a_run_reached_its_end(cut: bool) -> None:
    app = AppTest.from_function(page, kwargs={"cut": cut}).run()
    assert app.select_slider[0].value == 30 and app.select_slider[0].proto.set_value
    said = [app.run().select_slider[0].proto.set_value for _ in range(2)]
    assert said == [cut, False]
    app.select_slider[0].set_value(10).run()
    assert app.select_slider[0].value == 30 and app.select_slider[0].proto.set_value  # what holds is the selection
