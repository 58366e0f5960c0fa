"""What a trace holds: runs of other people's models lack some variables, and older runs lack newer ones.

`trace.variables[name]` has no coordinates: `trace[name]` gives it all of them anew, for 0.2 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dashboard import theme
from tracer.analysis import head_query
from tracer.analysis.head_query import HeadMatches
from tracer.measures import in_trace, measures_in, strongest
from tracer.measures.aliases import Head
from tracer.store import nearest_row

if TYPE_CHECKING:
    import xarray as xr


def holds(trace: xr.Dataset, name: str) -> bool:
    """Is there a finite value of this variable?"""
    return name in trace and bool(np.isfinite(trace.variables[name].values).any())


def predicts_tokens(trace: xr.Dataset) -> bool:
    """Is its loss that of the next token? Of a model that gives no logits for every token, only its author knows."""
    next_token = holds(trace, "val_loss") and trace.variables["val_loss"].attrs.get("units", "nats") == "nats"
    return next_token or holds(trace, "repeat_loss")


def head_measures(trace: xr.Dataset) -> list[str]:
    """The measures of heads that can be shown: those of the registry in its order, then whatever else was recorded."""
    return [name for name in measures_in(trace) if holds(trace, name)]


def has_heads(trace: xr.Dataset) -> bool:
    """Was anything recorded of heads? Of a model in which no attention was seen nothing is."""
    return "layer" in trace.sizes


def head_exists(trace: xr.Dataset) -> np.ndarray:
    """Which heads exist, [layer head]: where layers differ in width, the missing ones are nan at every step."""
    shape = (trace.sizes["layer"], trace.sizes["head"])
    found = np.zeros(shape, bool)
    for name in head_measures(trace):
        found |= np.isfinite(trace.variables[name].values).any(axis=0)
    return found if found.any() else np.ones(shape, bool)


def head_means(trace: xr.Dataset, name: str, step: int | None = None) -> np.ndarray:
    """A head measure at the row nearest to a step, [layer head]; nan where the run has not measured it."""
    if name not in trace:
        return np.full((trace.sizes["layer"], trace.sizes["head"]), np.nan)
    return trace.variables[name].values[nearest_row(trace.variables["step"].values, step)]


def named(line: str, trace: xr.Dataset, step: int | None = None) -> HeadMatches:
    """The heads that a line of the finder names; ValueError says which word is not understood."""
    values = {name: head_means(trace, name, step) for name in head_measures(trace)}
    return head_query.find(line, values, head_exists(trace), {name: in_trace(trace, name) for name in values})


def induction_words(trace: xr.Dataset, head: Head, step: int | None) -> str:
    """The induction score of a head, and beside it what positions alone give it."""
    found, control = (float(head_means(trace, name, step)[head]) for name in ("induction", "induction_control"))
    label, score = theme.head_label(*head), theme.fmt(found, "induction")
    beside = "not recorded in this run" if np.isnan(control) else theme.fmt(control, "induction")
    return f"Induction score of {label}: {score}. Control, where nothing repeats: {beside}."


def above_control(trace: xr.Dataset, step: int | None = None) -> np.ndarray:
    """Induction scores minus what the same places get without a repeat, [layer head]: what heads are ranked by."""
    scores, control = (head_means(trace, name, step) for name in ("induction", "induction_control"))
    return strongest.above_control(np.where(head_exists(trace), scores, np.nan), control)


def induction_head(trace: xr.Dataset, step: int | None = None) -> Head | None:
    """The strongest induction head; None where none stands out: no head's score is above its control."""
    scores, control = (head_means(trace, name, step) for name in ("induction", "induction_control"))
    return strongest.induction_head(np.where(head_exists(trace), scores, np.nan), control)


def default_head(trace: xr.Dataset, step: int | None = None) -> Head:
    """The strongest induction head, or what is nearest to one; without that score, the head that looks most sharply."""
    exist = head_exists(trace)
    for found in (above_control(trace, step), np.where(exist, -head_means(trace, "entropy_normalised", step), np.nan)):
        if (best := top_head(found)) is not None:
            return best
    layer, head = np.argwhere(exist)[0]
    return int(layer), int(head)


def top_head(values: np.ndarray) -> Head | None:
    """The head of the largest value, [layer head]; None where none is known."""
    if not np.isfinite(values).any():
        return None
    layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
    return int(layer), int(head)
