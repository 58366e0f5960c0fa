"""Training in one sentence: how the run stands, how far its loss fell, and how many heads have a role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dashboard import theme
from dashboard.loading import diagnoses, head_scores, roles
from dashboard.views.training.facts import latest
from dashboard.views.training.loss_curves import uniform_guess
from tracer.analysis.head_roles import NONE, UNKNOWN, UNSAID
from tracer.diagnosis import verdict
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr


def answer(run: Run, trace: xr.Dataset, each: xr.Dataset | None, step: int | None) -> str:
    """Markdown, at the record nearest to `step`; `each`: what was recorded at every update."""
    row = nearest_row(trace["step"].values, step)
    said = "; ".join(filter(None, (_loss(run, trace, each, row), _roles(trace, row))))
    stands = _stands(run)
    if not said or not stands:
        return theme.sentence(said or stands or "No loss was recorded")
    return f"{stands}: {said}."


def _stands(run: Run) -> str:
    """The verdict on the run; of one that diverged, when."""
    if found := run.meta.get("divergence"):
        return f"Diverged at step {int(found['step']):,}"
    try:
        one = verdict(diagnoses.diagnosis(run))
    except (ValueError, OSError):  # which the page says
        return ""
    return "" if one.severity == "unknown" else f"{one.text[:1].upper()}{one.text[1:]}"


def _loss(run: Run, trace: xr.Dataset, each: xr.Dataset | None, row: int) -> str:
    """The loss there, and what it is compared with: that of the first record, or without one a uniform guess."""
    name = next((one for one in ("val_loss", "train_loss") if head_scores.holds(trace, one)), None)
    if name is None:
        return ""
    loss, at = latest(trace, each, name, row)
    first = int(np.flatnonzero(np.isfinite(trace[name].values))[0])
    unit = " nats" if head_scores.predicts_tokens(trace) else ""
    beside = ""
    if int(trace["step"][first]) < at:
        beside = f" ({theme.fmt(float(trace[name][first]), 'loss')} at step {int(trace['step'][first]):,})"
    elif unit and (guess := uniform_guess(run)) is not None:
        beside = f" (a uniform guess: {theme.fmt(guess, 'loss')})"
    label = "held-out loss" if name == "val_loss" else "training loss"
    label = "loss on text" if run.about.why_not("training") else label
    return f"{label} {theme.fmt(loss, 'loss')}{unit} at step {at:,}{beside}"


def _roles(trace: xr.Dataset, row: int) -> str:
    """How many heads have a role; empty where no role could be measured."""
    if not head_scores.has_heads(trace):
        return ""
    codes = np.asarray(roles.of_rows(trace, [row]).codes)[0][head_scores.head_exists(trace)]
    named = int(((codes != NONE) & (codes < UNKNOWN)).sum())
    return f"{named} of {codes.size} heads ha{'s' if named == 1 else 've'} a role" * bool((codes < UNSAID).any())
