"""Why gradients are as they are: the size of the residual stream, and whether the loss moves where heads look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.loading import head_scores
from dashboard.shared.mount import draw
from tracer.diagnosis.attention_faults import STOPPED, pull
from tracer.measures.aliases import Head
from tracer.pictures import curves

if TYPE_CHECKING:
    import xarray as xr

HEIGHT = 260
FEW = 6
"""Lines that have room for their names; more are told apart by a ramp from first to last."""


def draw_why(trace: xr.Dataset, focus: Head | None, step: int) -> None:
    """Side by side, those of the two that the run has numbers for; `focus` is None where it has no heads."""
    draws = []
    known = all(head_scores.holds(trace, name) for name in ("head_grad_norm", "head_weight_norm"))
    if focus is not None and known:
        draws.append(lambda: _draw_pull(trace, focus, step))
    if head_scores.holds(trace, "resid_rms"):
        draws.append(lambda: _draw_stream(trace, step))
    for column, draw_one in zip(st.columns(len(draws), gap="large") if draws else (), draws, strict=True):
        with column:
            draw_one()


def _draw_pull(trace: xr.Dataset, focus: Head, step: int) -> None:
    st.header("Is the head still learning where to look?", anchor=False)
    st.caption(
        "Gradient times weight of W_Q and W_K, over that of W_V and W_O. Near 0 a head has settled, or its attention "
        "is stuck on one token."
    )
    ratio = pull(trace["head_grad_norm"].values, trace["head_weight_norm"].values)
    there = head_scores.head_exists(trace)
    blob = curves.pack_heads(trace["step"].values, np.where(there, ratio, np.nan), log_y=True)
    picture = curves.picture(
        blob, selected=theme.head_label(*focus), step=step, log_x=state.read().log,
        height=HEIGHT, scale=theme.Scale("W_Q, W_K over W_V, W_O", chance=STOPPED, mark="a hundredth"),
    )  # fmt: skip
    draw(picture, key="pull_curves", on_change=state.focus_on)


def _draw_stream(trace: xr.Dataset, step: int) -> None:
    st.header("Size of the residual stream", anchor=False)
    st.caption("Root mean square of the typical token's vector, at the start and after each block.")
    values = trace["resid_rms"].values
    names = ["at the start", *(f"after block {i}" for i in range(values.shape[1] - 1))]
    many = names if len(names) > FEW else None
    blob = curves.pack(trace["step"].values, values.T, names, group_names=many, log_y=True)
    picture = curves.picture(
        blob, step=step, log_x=state.read().log, selectable=False, n_groups=len(names), height=HEIGHT,
        scale=theme.Scale("Root mean square", digits=3),
    )  # fmt: skip
    draw(picture, key="stream_curves")
