"""The Heads page's own cached question to tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading
from dashboard.loading.kept import OF_A_STEP
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.induction_by_period import ByPeriod

FEW = 2
"""Rows for each period of a model whose forward pass takes seconds."""


@st.cache_data(max_entries=16, show_spinner="Repeating at every period …", hash_funcs=OF_A_STEP)
def by_period(run: Run, step: int) -> ByPeriod:
    """The induction score of every head of a snapshot, at every period."""
    from tracer.analysis.eval_sequences import SMALL
    from tracer.analysis.induction_by_period import ROWS, induction_by_period

    rows = ROWS if run.meta["n_params"] <= SMALL else FEW
    return induction_by_period(loading.model(run, step), bos=run.about.bos or 0, rows=rows)
