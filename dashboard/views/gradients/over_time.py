"""Heads x time: how fast each head learns where to look, and what to pass on, on the axis of the timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dashboard import state, theme
from dashboard.loading import head_scores, roles
from dashboard.shared import choosers
from dashboard.shared.mount import draw
from dashboard.views.gradients.health import USUAL
from dashboard.views.gradients.norms import reach
from tracer.measures.aliases import Head
from tracer.pictures import step_heatmap

if TYPE_CHECKING:
    import xarray as xr

PAIRS = {"QK": "Where it looks (W_Q, W_K)", "VO": "What it passes on (W_V, W_O)"}
ROW, MOST, FRAME = 18, 300, 62
"""Pixels of a row, of all rows together, and of what is around them."""


def draw_over_time(trace: xr.Dataset, shown: str, label: str, focus: Head) -> None:
    """A row a head, of the pair of matrices the larger number; a click takes a head into focus."""
    steps = trace["step"].values.tolist()
    step = choosers.step_in_force(steps)
    values, names = trace[f"head_{shown}"].values, [str(name) for name in trace["matrix"].values]
    found = {pair: np.fmax.reduce(values[..., [names.index(name) for name in pair]], axis=-1) for pair in PAIRS}
    paced = shown == "update_ratio"
    low, high = reach(np.stack([*found.values()]), USUAL if paced else None)
    called, there = roles.of_step(trace, step), head_scores.head_exists(trace)
    codes = np.asarray(called.codes)
    notes = {
        theme.head_label(*at): called.labels[code - 1] if 0 < (code := int(codes[at])) <= len(called.labels) else ""
        for at in zip(*np.nonzero(there), strict=True)
    }
    for pair, title in PAIRS.items():
        scale = theme.Scale(f"{title}: {label}", lo=10.0**low, hi=10.0**high, palette="pace" if paced else "score")
        picture = step_heatmap.picture(
            step_heatmap.pack(steps, found[pair], dated=False, log=True),
            selected=theme.head_label(*focus), step=step, log_x=state.read().log, scale=scale, notes=notes,
            span=(steps[0], steps[-1]), height=FRAME + min(ROW * len(notes), MOST), bare=pair != "QK",
            note="blue: slow, grey: usual, orange: fast" if paced else "", ticks=USUAL if paced else None,
        )  # fmt: skip
        draw(picture, key=f"over_time_{pair}", on_change=state.focus_on)
