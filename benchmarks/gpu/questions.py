"""What is asked of the trained demo, answered on both devices: ablations, sweeps, `why`, the verdict card, a survey."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from benchmarks.gpu.place import Place, apart, off
from benchmarks.gpu.table import Line, at_most
from benchmarks.gpu.training import strongest
from tracer.ablate import MODES, attribution, effect, losses, outcomes, pairs, sweep, verdict
from tracer.analysis.eval_sequences import batches
from tracer.analysis.logit_attribution import logit_attribution, logit_lens
from tracer.analysis.run_sweep import sweep_run
from tracer.analysis.survey import survey
from tracer.analysis.why import why
from tracer.model import Transformer

EXACT = 1e-5
"""Relative: losses and logits of the same float32 weights; their sums err by some 1e-7."""
OF_TOKENS, OF_MEANS = 1e-4, 2e-5
"""In nats: changes in the loss of single tokens, made of logits of some 20 that err by 1e-5, and in its mean."""
SHARE = 1e-3
"""Relative: first-order estimates, sums of many products of either sign."""
Question = Callable[[Transformer, Tensor], Any]


def ablations(place: Place) -> Iterator[Line]:
    head = strongest(place.demo)
    asked: dict[str, tuple[Question, float]] = {"losses, nothing off": (lambda m, t: losses(m, t, [[]]), EXACT)}
    for mode in MODES:
        asked[f"ablation of one head, {mode}"] = (lambda m, t, mode=mode: effect(m, t, [head], mode).delta, OF_TOKENS)
        asked[f"sweep of all heads, {mode}"] = (lambda m, t, mode=mode: sweep(m, t, mode).values, OF_MEANS)
    asked |= {
        "sweep, patterns frozen": (lambda m, t: sweep(m, t, frozen=True).values, OF_MEANS),
        "pairs of heads": (lambda m, t: pairs(m, t).values, OF_MEANS),
        "first-order estimate": (lambda m, t: _first(attribution(m, t)), SHARE),
    }
    yield from _both(place, asked)
    swept = sweep_run(place.demo, ["zero", "mean"], [place.demo.steps[-1]])["effect"].isel(step=-1)
    kept = batches(place.demo)
    for mode in ("zero", "mean"):
        for name, tokens, where in kept.sequences(mode):
            found = swept.sel(probe=name, mode=mode).values
            on_cpu = sweep(place.model, tokens, mode, positions=where, reference=kept.reference(name, mode)).values
            yield at_most(
                f"`tracer sweep` of the run, {name}, {mode}, off the CPU's", apart(found, on_cpu), OF_MEANS, " nats"
            )


def answers(place: Place) -> Iterator[Line]:
    layer, head = place.model.n_layers - 1, strongest(place.demo)[1]
    n = place.tokens.shape[1]
    asked: dict[str, tuple[Question, float]] = {
        "`why` of one cell": (lambda m, t: why(m, t[:1], layer, head, n - 2, n // 2).values, EXACT),
        "`why`, less the mean over keys": (
            lambda m, t: why(m, t[:1], layer, head, n - 2, n // 2)["above"].values, 10 * EXACT,
        ),
        "logit attribution": (lambda m, t: _first(logit_attribution(m, t)), 10 * EXACT),
        "logit lens": (lambda m, t: _first(logit_lens(m, t)), 10 * EXACT),
        "outcomes of an ablation": (lambda m, t: _first(outcomes(m, t, [(layer, head)])), 10 * EXACT),
        "survey: entropy": (lambda m, t: survey(m, t.cpu(), tokens=t.numel())["entropy"].values, EXACT),
        "survey: share of the first token": (lambda m, t: survey(m, t.cpu(), tokens=t.numel())["sink"].values, EXACT),
    }  # fmt: skip
    yield from _both(place, asked)
    ours, theirs = (verdict(model, layer, head) for model in (place.there, place.model))
    same = [a.passed for a in ours.tests] == [b.passed for b in theirs.tests] and ours.partners == theirs.partners
    gap = apart([a.value for a in ours.tests], [b.value for b in theirs.tests])
    yield Line("verdict card, computed there", f"{'same' if same else 'other'} tests passed, numbers {gap:.1g} apart",
               "same, at most 0.001", same and gap <= 1e-3)  # fmt: skip


def _both(place: Place, asked: dict[str, tuple[Question, float]]) -> Iterator[Line]:
    for what, (question, bound) in asked.items():
        found = question(place.there, place.tokens.to(place.device))
        theirs = question(place.model, place.tokens)
        if bound in (OF_TOKENS, OF_MEANS):
            yield at_most(f"{what}, off the CPU's", apart(found, theirs), bound, " nats")
        else:
            yield at_most(f"{what}, off the CPU's", off(found, theirs), bound)


def _first(table: Any) -> np.ndarray:
    """The first variable of a dataset, or an array itself."""
    return next(iter(table.data_vars.values())).values if hasattr(table, "data_vars") else table.values
