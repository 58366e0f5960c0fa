"""Cached answers of the timeline: the events of a training, and two curves."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import changes
from dashboard.loading.kept import AS_RECORDED
from dashboard.loading.prompt_film import loss_of
from tracer.analysis.timeline import events_of
from tracer.measures.aliases import Head
from tracer.pictures import scrubber
from tracer.pictures.scrubber import Event
from tracer.store import Run, nearest_row


def events(run: Run) -> list[Event]:
    """What Phases dates in the run so far."""
    return [] if loading.so_far(run) is None else events_of(changes.curves(run))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def curves(run: Run, steps: tuple[int, ...], measure: str | None, head: Head | None) -> bytes:
    """A timeline of a loss, and of the score of one head, which is all that is drawn."""
    trace = loading.so_far(run)
    if trace is None:
        return scrubber.pack(steps, {}, np.full(len(steps), np.nan), {}, n=(1, 1))
    at = trace["step"].values
    rows = [*range(len(at))] if np.array_equal(at, steps) else [nearest_row(at, step) for step in steps]
    label, loss = loss_of(trace, rows)
    scores = {} if measure is None or head is None else {measure: trace[measure].values[(rows, *head)]}
    return scrubber.pack(steps, {}, loss, scores, n=(1, 1), loss_label=label, only=head)
