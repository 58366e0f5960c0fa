"""Cached curves of a run with the events that they date: those of Phases, and of the timeline on every page.

As in `loading`: keyed by run and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading.kept import AS_RECORDED, OF_A_STEP
from tracer.analysis import timeline, training_curves
from tracer.analysis.training_curves import Curve, Reads
from tracer.store import Run


def may_read(run: Run) -> bool:
    """May the weights of every snapshot be read: because they are small, or because the reader said so?"""
    return timeline.is_cheap(run) or bool(st.session_state.get(wish(run)))


def wish(run: Run) -> str:
    """The key under which a session keeps that the reader said so."""
    return f"composition of {run.dir.resolve()}"


def curves(run: Run) -> list[Curve]:
    """`tracer.analysis.training_curves.course`, with K-composition where the model has it and may be read."""
    return _curves(run, training_curves.readable(run) and may_read(run), len(run.steps))


@st.cache_data(max_entries=32, show_spinner=False, hash_funcs=AS_RECORDED)
def _curves(run: Run, with_weights: bool, n_steps: int) -> list[Curve]:
    return training_curves.course(loading.trace(run), _reads(run) if with_weights else None)


def _reads(run: Run) -> Reads | None:
    """K-composition at every snapshot, None where none can be read; what was read before is not read again."""
    import torch

    torch.set_num_threads(1)  # as in `loading.model`: every rerun is a new thread
    return timeline.reads(run, _reel(run))


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=OF_A_STEP)
def _reel(run: Run) -> dict[int, np.ndarray]:
    return {}
