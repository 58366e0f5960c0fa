"""Cached events of a training: what the curves of a run did, and when, as marks on a timeline."""

from __future__ import annotations

import streamlit as st

from dashboard import loading
from dashboard.loading.kept import AS_RECORDED
from tracer.analysis import training_curves
from tracer.pictures.scrubber import Event
from tracer.store import Run


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=AS_RECORDED)
def of_run(run: Run) -> list[Event]:
    """Every change that Phases dates from the trace alone, in order."""
    changed = training_curves.events(training_curves.course(loading.trace(run)))
    return [
        Event(curve.change.midpoint, curve.change.low, curve.change.high, curve.happens)
        for curve in changed if curve.change
    ]  # fmt: skip
