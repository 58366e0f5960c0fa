"""What a page drew, as blocks: in order, with its columns, without what only works there."""

from streamlit.testing.v1 import AppTest


def page() -> None:
    import plotly.graph_objects as go
    import streamlit as st

    from dashboard.shared.export.drawing import blocks
    from dashboard.streamlit_internals import drawn

    with drawn() as messages:
        st.header("H", anchor=False)
        st.caption("c **b**")
        with st.container(key="heading"):
            st.title("left out")
        with st.container(key="only_here_how"):
            st.caption("Click it.")
        left, right = st.columns(2)
        with right:
            st.metric("Loss", "1.2", "3")
            st.columns(2)[1].text("<b>")
        left.selectbox("Measure", ["a", "b"], format_func=str.upper, key="measure_box")
        st.segmented_control("Axis", ["linear", "log"], default="log", required=True)
        st.multiselect("Compare with", ["seed1", "seed2", "seed3"], default=["seed1", "seed3"])
        st.segmented_control("Hidden", ["x"], default="x", label_visibility="collapsed")
        with st.expander("Folded"):
            st.text("not seen")
        with st.expander("A *card*", key="card_x"):
            st.code("x = 1")
        with st.expander("The numbers", key="verdict_numbers"):
            st.html("<table></table>")
        with st.popover("More"):
            st.text("not asked for")
        place = st.empty()
        place.container().text("first")
        place.markdown("then")
        st.html("<p>h</p>")
        st.error("e")
        table = {"a": [1.5, None], "b": ["x", "y"], "c": [0, 1]}
        config = {"a": st.column_config.NumberColumn("A", format="%.2f"), "c": None}
        st.dataframe(table, hide_index=True, column_config=config)
        st.plotly_chart(go.Figure(), key="a chart", alt="what it shows")
        st.button("Search", key="search")
        st.button("L0H1", key="health_head 0")
        st.button("Switch L0H1 off", key="switch_focus")
        st.button("All heads on", key="all_on")
        st.text_area("Prompt", "5 7")
    st.text("after")
    st.session_state["found"] = blocks(messages)


def test_what_a_page_drew() -> None:
    app = AppTest.from_function(page).run()
    assert not app.exception
    found = app.session_state["found"]
    row, rest = found[2]["at"][0], {"at": None}
    assert found == [
        {"kind": "heading", "level": 2, "text": "H", **rest},
        {"kind": "note", "text": "c **b**", **rest},
        {"kind": "choice", "label": "Measure", "value": "A", "at": (row, 0)},
        {"kind": "fact", "label": "Loss", "text": "1.2", "note": "3", "at": (row, 1)},
        {"kind": "text", "text": "<b>", "at": (row, 1)},
        {"kind": "choice", "label": "Axis", "value": "log", **rest},
        {"kind": "choice", "label": "Compare with", "value": "seed1, seed3", **rest},
        {"kind": "markdown", "text": "A *card*", **rest},
        {"kind": "code", "text": "x = 1", **rest},
        {"kind": "markdown", "text": "The numbers", **rest},
        {"kind": "markup", "text": "<table></table>", **rest},
        {"kind": "markdown", "text": "then", **rest},
        {"kind": "markup", "text": "<p>h</p>", **rest},
        {"kind": "markdown", "text": "e", **rest},
        {"kind": "table", "rows": [["A", "b"], ["1.50", "x"], ["", "y"]], "more": 0, **rest},
        {"kind": "still", "key": "a-chart", "alt": "what it shows", **rest},
        {"kind": "button", "text": "Search", **rest},
        {"kind": "place", "text": "L0H1", **rest},
        {"kind": "prompt", "text": "5 7", **rest},
    ]
