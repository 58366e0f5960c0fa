"""One atlas in Streamlit: other data, the same again, or another head, and nothing else on the page."""

import streamlit as st

from benchmarks.browsing import ours
from dashboard import theme
from dashboard.shared.mount import all_parts, draw
from tracer.pictures import atlas

SEEDS = 4
state = st.session_state
n = int(st.query_params.get("n", 64))


@st.cache_data
def packed(n: int) -> list[bytes]:
    return [ours.atlas(n, seed) for seed in range(SEEDS)]


def choose(head: tuple[int, int]) -> None:
    state["head"] = head


def other() -> None:
    state["seed"] = state.get("seed", 0) + 1


all_parts()
st.button("Other data", on_click=other)
st.button("Again")
scales = {"score": theme.Scale(label="Induction score", unit="", lo=0.0, hi=1.0, palette="score", chance=0.03)}
draw(
    atlas.picture(
        packed(n)[state.get("seed", 0) % SEEDS], selected=state.get("head", (0, 0)), measure="score", scales=scales,
    ),
    key="atlas", on_change=choose,
)  # fmt: skip
state["runs"] = state.get("runs", 0) + 1
st.text(f"seed {state.get('seed', 0)} head {state.get('head', (0, 0))} run {state['runs']}.")
