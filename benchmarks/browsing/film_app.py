"""The page that `benchmarks.scrubbing` measures: timeline, atlas and pattern of synthetic heads."""

import streamlit as st

from benchmarks.scrubbing import packed
from dashboard.shared.mount import all_parts, draw
from tracer.pictures import atlas, pattern, scrubber

st.set_page_config(layout="wide")
all_parts()
step = st.session_state.get("step", 99)
film, shares = st.cache_resource(packed)()
draw(
    scrubber.picture(film, step=step, head=(1, 2), measure="induction"),
    key="scrubber", on_change=lambda step: st.session_state.update(step=step),
)  # fmt: skip
left, right = st.columns(2)
with left:
    draw(
        atlas.picture(atlas.pack(shares[step], {"induction": shares[step][..., 0, 0]}), selected=(1, 2)),
        key="atlas",
    )  # fmt: skip
with right:
    tokens = [f"w{i}" for i in range(64)]
    draw(pattern.picture(pattern.pack(shares[step][1, 2], tokens), head=(1, 2)), key="pattern")
