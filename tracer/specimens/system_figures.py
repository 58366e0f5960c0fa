"""What a run of a system came to, and its figures beside those that its author published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracer.presets import preset
from tracer.specimens.paper import PaperRun
from tracer.specimens.systems import System
from tracer.store import Run
from tracer.training.size import n_params


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    run: str
    status: str
    step: int
    entropy_start: float
    """Mean over heads and rows q >= 1, in nats, before the first step."""
    entropy_end: float
    entropies: tuple[tuple[float, ...], ...]
    """[layer][head] at the end; the last finite row of a run that diverged."""
    loss: float
    """Held-out, at the end; nan for a run that diverged."""
    n_params: int
    own_token: float
    """Share of attention on the token itself at the end, mean over heads."""


def outcome(run: Run) -> Outcome:
    """Read from the trace; ValueError when there is none."""
    trace, meta = run.trace, run.meta
    entropy = trace["entropy"].values
    known = np.flatnonzero(np.isfinite(entropy).all(axis=(1, 2)))
    last = entropy[known[-1]]
    diverged = run.status == "diverged"
    return Outcome(
        run.name, run.status, int(meta["step"]), float(entropy[0].mean()), float(last.mean()),
        tuple(tuple(map(float, row)) for row in last), math.nan if diverged else float(trace["val_loss"].values[-1]),
        int(meta["n_params"]), float(trace["current_token"].values[known[-1]].mean()),
    )  # fmt: skip


def figures(system: System, outcomes: Sequence[Outcome], size: int) -> list[tuple[str, str, str]]:
    """(figure, published, here) of everything that its author or these runs have a number of."""
    start, end = system.entropy or (None, None)
    steps = ", ".join(dict.fromkeys(f"{one.step:,}" for one in outcomes))
    rows = [("entropy at the start", _one(start, 3), _many([one.entropy_start for one in outcomes], 3))]
    if all(one.status == "finished" for one in outcomes):
        rows += [
            (f"entropy at the end, step {steps}", _one(end, 3), _many([one.entropy_end for one in outcomes], 3)),
            ("the same by head", _heads(system.heads), _heads(outcomes[0].entropies)),
            ("held-out perplexity", _one(system.perplexity, 2), _many([math.exp(one.loss) for one in outcomes], 2)),
            (
                "held-out loss",
                "–" if system.loss is None else f"near {system.loss} in training",
                _many([one.loss for one in outcomes], 3),
            ),
            ("attention on the token itself", "–", _many([one.own_token for one in outcomes], 2)),
        ]
        if len(outcomes[0].entropies) == len(outcomes[0].entropies[0]) == 1:
            rows = [row for row in rows if row[0] != "the same by head"]
    else:
        ended = ", ".join(dict.fromkeys(f"{one.status} at step {one.step:,}" for one in outcomes))
        rows.append(("how it ends", system.published, ended))
    published = "–" if system.n_params is None else f"{system.n_params:,}"
    return [*rows, ("parameters, at the published size", published, f"{size:,}")]


def published_size(run: PaperRun) -> int:
    """Parameters; of a preset in small, those of the system as published."""
    config = preset(run.preset.removesuffix("-small")).config if run.preset else run.config
    return n_params(replace(config.model, d_vocab=config.data.vocab_size))


def _one(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _many(values: Sequence[float], digits: int) -> str:
    """The value, or mean and range of several seeds."""
    mean = _one(sum(values) / len(values), digits)
    return mean if len(values) == 1 else f"{mean} ({_one(min(values), digits)} to {_one(max(values), digits)})"


def _heads(entropies: Sequence[Sequence[float]]) -> str:
    """Heads of a layer apart by spaces, layers by slashes."""
    return " / ".join(" ".join(f"{value:.2f}" for value in layer) for layer in entropies) or "–"
