"""From a person's text to a run's tokens and back; the text to begin with is made once."""

from __future__ import annotations

import streamlit as st

from dashboard.loading.kept import OF_A_STEP
from tracer.analysis import run_prompts
from tracer.analysis.run_prompts import encode, strings, tokenizer
from tracer.store import Run

__all__ = ["encode", "example", "strings", "tokenizer"]


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def example(run: Run) -> str:
    """`tracer.analysis.run_prompts.example`."""
    return run_prompts.example(run)
