"""Cached events of a training, as marks on its timeline."""

from __future__ import annotations

import streamlit as st

from dashboard import loading
from dashboard.loading.kept import AS_RECORDED
from tracer.analysis.timeline import events_of
from tracer.pictures.scrubber import Event
from tracer.store import Run


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=AS_RECORDED)
def of_run(run: Run) -> list[Event]:
    """`tracer.analysis.timeline.events_of`, of what was recorded so far."""
    return events_of(loading.trace(run))
