"""From a person's text to a run's tokens and back; the text to begin with is made once."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard.loading.kept import OF_A_STEP
from tracer.analysis import run_prompts
from tracer.analysis.run_prompts import encode, strings, tokenizer
from tracer.store import Run

__all__ = ["encode", "example", "likeliest", "strings", "tokenizer"]


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=OF_A_STEP)
def example(run: Run) -> str:
    """`tracer.analysis.run_prompts.example`."""
    return run_prompts.example(run)


def likeliest(probabilities: np.ndarray, n: int) -> list[int]:
    """The ids of the n likeliest tokens, the likeliest first."""
    return [int(i) for i in np.argsort(-probabilities, kind="stable")[:n]]
