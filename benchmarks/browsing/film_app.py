"""The page that `benchmarks.scrubbing` measures: timeline, atlas and pattern of synthetic heads."""

import streamlit as st

from benchmarks.scrubbing import packed
from dashboard.components.all_parts import all_parts
from dashboard.components.atlas import atlas
from dashboard.components.pattern import pattern
from dashboard.components.scrubber import scrubber
from tracer.pictures import payload

st.set_page_config(layout="wide")
all_parts()
step = st.session_state.get("step", 99)
film, shares = st.cache_resource(packed)()
scrubber(
    film, key="scrubber", step=step, head=(1, 2), measure="induction",
    on_change=lambda step: st.session_state.update(step=step),
)  # fmt: skip
left, right = st.columns(2)
with left:
    atlas(payload.atlas(shares[step], {"induction": shares[step][..., 0, 0]}), key="atlas", selected=(1, 2))
with right:
    tokens = [f"w{i}" for i in range(64)]
    pattern(payload.pattern(shares[step][1, 2], tokens), key="pattern", head=(1, 2))
