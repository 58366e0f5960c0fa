"""The Heads page's own cached question to tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard import loading
from tracer.store import open_run

if TYPE_CHECKING:
    from tracer.analysis.induction_by_period import ByPeriod

FEW = 2
"""Rows for each period of a model whose forward pass takes seconds."""


@st.cache_data(max_entries=16, show_spinner="Repeating at every period …")
def by_period(run: str, created: str, step: int) -> ByPeriod:
    """The induction score of every head of a snapshot, at every period."""
    from tracer.analysis.eval_sequences import SMALL
    from tracer.analysis.induction_by_period import ROWS, induction_by_period

    opened = open_run(run)
    rows = ROWS if opened.meta["n_params"] <= SMALL else FEW
    return induction_by_period(loading.model(opened, step), bos=opened.about.bos or 0, rows=rows)
