"""One run as one file: every head on a prompt and its film; what happened and when; roles, health, proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracer.analysis import notebook, run_prompts
from tracer.analysis.head_roles import HeadRole, roles_in
from tracer.analysis.timeline import happened
from tracer.analysis.training_curves import strongest
from tracer.diagnosis import Diagnosis, examine
from tracer.diagnosis.verdict import verdict as verdict_of
from tracer.measures import in_trace
from tracer.measures.aliases import Head
from tracer.measures.intervals import margins, within
from tracer.measures.measure import HEAD
from tracer.pictures import curves
from tracer.pictures.page import Mount, Note, page
from tracer.pictures.picture import Picture
from tracer.pictures.scales import head_label, of_measure
from tracer.pictures.scrubber import Event
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

MEASURES = ("induction", "entropy_normalised", "entropy")
"""What colours the heads: the first that was recorded."""
FILM_FLOPS = 1e12
"""What is filmed at most: a minute on one core."""
PROOF_FLOPS = 1e12
PASSES = 55
"""What a proof costs at most: half a minute on one core. Of the demo it is 51 passes over 32 sequences."""


@dataclass(frozen=True)
class Findings:
    """What both pages of a run say."""

    trace: xr.Dataset
    events: list[Event]
    health: Diagnosis


def findings_of(run: Run) -> Findings:
    """ValueError where nothing was recorded."""
    trace = run.trace
    if not trace.sizes["step"]:
        raise ValueError(f"{run.name} has recorded nothing yet: publish it once it has")
    return Findings(trace, happened(run, trace), examine(run))


def run_page(run: Run, found: Findings, prompt: str | None = None) -> str:
    """The file. `prompt`: the text that heads are shown on; by default the one that the dashboard begins with.

    A model that cannot be run here has its curves in place of heads. What would take too long is left out, and the
    page says so.
    """
    trace = found.trace
    measure = measure_of(trace)
    head = strongest(trace)
    history = None if measure is None else _history(run, trace, measure, head)
    notes = [*_happened(found.events), *_roles(trace), _health(found.health), *_proof(run, trace), _facts(run, trace)]
    if run.why_not("prompts") or measure is None or not run.steps:
        return _without_heads(run, trace, history, measure, notes)
    text = run_prompts.example(run) if prompt is None else prompt
    given = text if run_prompts.tokenizer(run) is not None else run_prompts.encode(run, text).tokens
    n = len(run_prompts.encode(run, text).tokens)
    film = 2 * run.meta["n_params"] * n * len(run.steps) <= FILM_FLOPS
    if not film:
        notes.append(Note("Film", terms=[("left out", f"{len(run.steps):,} snapshots take more than a minute here")]))
    return notebook.run_file(run, given, None, head, measure, film, more=notes, history=history, events=found.events)


def measure_of(trace: xr.Dataset) -> str | None:
    """The measure that colours heads; None where none was recorded of them."""
    held = (name for name in MEASURES if name in trace and trace[name].dims == HEAD)
    return next((name for name in held if np.isfinite(trace[name].values).any()), None)


def _history(run: Run, trace: xr.Dataset, measure: str, head: Head | None) -> Picture:
    values, around = trace[measure].values, margins(trace, measure)
    band = None if around is None else within(values, around, in_trace(trace, measure))
    blob = curves.pack_heads(trace["step"].values, values, band)
    scale = of_measure(in_trace(trace, measure), run.about.setting, values)
    return curves.picture(blob, selected=head and head_label(*head), scale=scale)


def _without_heads(run: Run, trace: xr.Dataset, history: Picture | None, measure: str | None, notes: list[Note]) -> str:
    step = int(trace["step"].values[-1])
    mounts = []
    if history is not None and measure is not None:
        mounts.append(Mount("history", history, f"{in_trace(trace, measure).label} over training", wide=True))
    reason = run.why_not("prompts") or "no head was recorded"
    about = {"run": run.name, "step": step, "head": list(strongest(trace) or (0, 0))}
    foot = f"Made with manyeyes {notebook.release()}; works offline. No heads on a prompt: {reason}."
    return page(f"Training of {run.name}", f"step {step:,}", mounts, notes, about=about, foot=foot)


def _happened(events: list[Event]) -> list[Note]:
    """Each event with the step and its 95 % interval."""
    terms = [(when(event), event.says) for event in events]
    return [Note("What happened", terms=terms)] if terms else []


def when(event: Event) -> str:
    """step 300 (275–325)"""
    return f"step {event.step:,.0f} ({event.low:,.0f}–{event.high:,.0f})"


def _roles(trace: xr.Dataset) -> list[Note]:
    if "layer" not in trace.sizes:
        return []
    found = roles_in(trace, None).heads
    terms = [(head_label(*head), "; ".join(map(_role, of))) for head, of in found.items()]
    return [Note("Roles of heads", terms=terms or [("none", "No head has a role at the last step.")])]


def _role(one: HeadRole) -> str:
    interval = "" if math.isnan(one.low) else f" ({one.low:.2f}–{one.high:.2f})"
    return f"{one.label} {one.value:.2f}{interval}, control {one.control:.2f}"


def _health(found: Diagnosis) -> Note:
    terms = [(one.title, one.evidence) for one in found.findings]
    return Note(f"Health: {verdict_of(found).text}", terms=terms or [("looked for", ", ".join(found.looked_for))])


def _proof(run: Run, trace: xr.Dataset) -> list[Note]:
    """The card of the strongest induction head, where there is one and the model is small."""
    head = strongest(trace)
    if head is None or not run.steps or run.why_not("prompts"):
        return []
    from tracer.ablate import verdict
    from tracer.ablate.verdict_card import SEQUENCES

    title, cost = f"Proof: {head_label(*head)}", 2 * run.meta["n_params"] * PASSES * SEQUENCES * (run.about.n_ctx or 0)
    if cost > PROOF_FLOPS:
        code = f"print(tracer.ablate.verdict({run.name!r}, {head[0]}, {head[1]}))"
        return [Note(title, terms=[("left out", f"it takes more than half a minute here: {code}")])]
    try:
        card = str(verdict(run, *head))
    except ValueError as error:
        return [Note(title, terms=[("not tested", str(error))])]
    return [Note(title, code=card, wide=True)]


def _facts(run: Run, trace: xr.Dataset) -> Note:
    about, step = run.about, int(trace["step"].values[-1])
    terms = [("status", f"{run.status} at step {step:,}"), ("parameters", f"{run.meta['n_params']:,}")]
    for name in ("val_loss", "train_loss"):
        if name in trace and np.isfinite(trace[name].values).any():
            known = trace[name].values[np.isfinite(trace[name].values)]
            terms.append((in_trace(trace, name).label, f"{known[-1]:.3f} {in_trace(trace, name).unit}"))
    if about.author:
        terms.append(("model", about.author))
    return Note("The run", terms=terms)
