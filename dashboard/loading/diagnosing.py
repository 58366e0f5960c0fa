"""Cached findings of a run: what went wrong in it, and what there was to look at."""

from __future__ import annotations

import streamlit as st

from dashboard import loading, measured
from tracer.diagnosis import Finding, diagnose
from tracer.store import Run, open_run

LOOKED_FOR = {
    "divergence": (),
    "one-hot attention out of reach": ("entropy_normalised", "max_logit", "head_grad_norm", "head_weight_norm"),
    "heads that stand in for a residual connection": ("current_token",),
    "entropy collapse": ("entropy_normalised", "val_loss"),
    "scores beyond the softmax": ("max_logit",),
    "update ratios out of band": ("update_ratio",),
}
"""What `tracer.diagnose` can find, and the variables that it needs for that; idle heads need a sweep besides."""
IDLE = "idle heads"


def findings(run: Run) -> list[Finding]:
    """What went wrong, the worst first; computed again when the run has moved on."""
    return _findings(str(run.dir.resolve()), run.stamp)


@st.cache_data(max_entries=64, show_spinner=False)
def _findings(directory: str, stamp: str) -> list[Finding]:
    return diagnose(open_run(directory))


def looked_for(run: Run) -> tuple[list[str], list[str]]:
    """What this run holds the numbers for, and what it does not."""
    try:
        trace = loading.trace(run)
    except ValueError:
        return ["divergence"], [*list(LOOKED_FOR)[1:], IDLE]
    known = {what: all(measured.holds(trace, name) for name in needs) for what, needs in LOOKED_FOR.items()}
    known[IDLE] = _swept(str(run.dir.resolve()), run.stamp)
    return [what for what, held in known.items() if held], [what for what, held in known.items() if not held]


@st.cache_data(max_entries=64, show_spinner=False)
def _swept(directory: str, stamp: str) -> bool:
    try:
        effects = open_run(directory).effects
    except ValueError:
        return False
    return "effect" in effects and "resample" in effects["mode"].values
