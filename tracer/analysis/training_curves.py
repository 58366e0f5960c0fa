"""The course of a run: its curves on one axis of steps, when each turned, and in which order.

1. A curve of a head is that of the head which ends highest; a maximum over heads would hide which one it is. Of
   K-composition it is the induction head reading the best previous-token head of the layers before it.
2. A curve has turned where `tracer.analysis.change_points` finds a change, and that is large enough to tell (`LEAST`).
3. Turns are ordered by their midpoints; two whose windows overlap are not separated by the run's snapshots.

Source: ours; Olsson et al. 2022 read these curves side by side and marked one window by eye.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.analysis.change_points import MIN_PLATEAU, SHARE, PhaseChange, phase_change

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

Head = tuple[int, int]
SLOW = 0.5
"""A window longer than this share of the measured steps is a slope, not an event. Ours."""
FEWEST = 2 * MIN_PLATEAU + 1
"""Values without which `phase_change` has no two plateaus to compare."""
LEAST = {"val_loss": 0.05, "repeat_loss": 0.25, "icl_score": 0.05, "induction": 0.1, "previous_token": 0.1,
         "composition": 0.02, "entropy": 0.05, "gradient": 0.0}  # fmt: skip
"""Smaller moves are none. Ours: nats, shares, and about 8 standard deviations of what random heads of 32 read."""
NAMES = {
    "val_loss": "Held-out loss",
    "repeat_loss": "Loss on repeated tokens",
    "icl_score": "In-context learning score",
    "induction": "Induction head",
    "previous_token": "Previous-token head",
    "composition": "K-composition",
    "entropy": "Mean normalised entropy",
    "gradient": "Gradient norm",
}
"""Every curve, in the order of a page."""
UNITS = {"val_loss": "nats", "repeat_loss": "nats", "icl_score": "nats"}


@dataclass(frozen=True)
class Curve:
    """One quantity over training; `steps` are those at which it was measured."""

    name: str
    """A key of NAMES."""
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    change: PhaseChange | None
    heads: tuple[Head, ...] = ()
    """The head that is measured; of K-composition the one that is read, in an earlier layer, then the reader."""

    @property
    def label(self) -> str:
        """Such as "Induction head L1H2"."""
        names = [f"L{layer}H{head}" for layer, head in self.heads]
        return f"{NAMES[self.name]} {' → '.join(names)}".strip()

    @property
    def slow(self) -> bool:
        """Did it take most of the run to turn?"""
        c = self.change
        return c is not None and c.end - c.onset > SLOW * int(self.steps[-1] - self.steps[0])

    @property
    def unit(self) -> str:
        return UNITS.get(self.name, "")


@dataclass(frozen=True)
class Reads:
    """K-composition of every pair of heads over snapshots."""

    steps: list[int]
    scores: NDArray[np.float32]
    """[step layer1 head1 layer2 head2]"""
    chance: float
    """What random heads of these shapes read of each other."""


def course(trace: xr.Dataset, reads: Reads | None = None) -> list[Curve]:
    """Every curve that this trace holds, in the order of NAMES; K-composition from `reads`."""
    steps = trace["step"].values
    found: dict[str, Curve] = {}

    def add(name: str, values: np.ndarray, at: np.ndarray = steps, heads: tuple[Head, ...] = ()) -> None:
        y = np.asarray(values, float)
        known = np.isfinite(y)
        if known.any():
            found[name] = Curve(name, at[known], y[known], turn(at[known], y[known], LEAST[name]), heads)

    for name in ("val_loss", "repeat_loss", "icl_score"):
        if name in trace:
            add(name, trace[name].values)
    for name in ("induction", "previous_token"):
        if name in trace and (head := best(trace[name].values)) is not None:
            add(name, trace[name].values[(slice(None), *head)], heads=(head,))
    if reads is not None and "induction" in found and "previous_token" in trace:
        reader = found["induction"].heads[0]
        earlier = np.where(np.arange(trace.sizes["layer"])[:, None] < reader[0], trace["previous_token"].values, np.nan)
        if (read := best(earlier)) is not None:
            at = np.asarray(reads.steps)
            add("composition", reads.scores[(slice(None), *read, *reader)] - reads.chance, at, (read, reader))
    if "entropy_normalised" in trace:
        add("entropy", _mean_of_heads(trace["entropy_normalised"].values))
    if "grad_norm" in trace:
        squares = np.square(trace["grad_norm"].values.astype(float))
        measured = np.isfinite(squares).any(axis=1)
        add("gradient", np.where(measured, np.sqrt(np.nansum(squares, axis=1)), np.nan))
    return [found[name] for name in NAMES if name in found]


def turn(steps: np.ndarray, values: np.ndarray, least: float = 0.0) -> PhaseChange | None:
    """`phase_change`, or None where the move is smaller than `least`."""
    change = phase_change(steps, values)
    return None if change is None or abs(change.after - change.before) < least else change


def best(scores: np.ndarray) -> Head | None:
    """The head of scores [step layer head] that is highest over the last tenth of the measured steps, by its median."""
    known = scores[np.isfinite(scores).any(axis=(1, 2))]
    if not len(known):
        return None
    size = max(MIN_PLATEAU, round(SHARE * len(known)))
    last = np.median(known[-size:].astype(float), axis=0)
    if not np.isfinite(last).any():
        return None
    layer, head = np.unravel_index(int(np.nanargmax(last)), last.shape)
    return int(layer), int(head)


def _mean_of_heads(values: np.ndarray) -> np.ndarray:
    """[step layer head] to [step]; heads that do not exist are nan throughout and left out."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis=(1, 2), dtype=float)
    return np.where(known.any(axis=(1, 2)), total / np.maximum(1, known.sum(axis=(1, 2))), np.nan)


def events(curves: Iterable[Curve]) -> list[Curve]:
    """The curves that turned, but for slow ones, by their midpoints; of those at one step the earlier onset first."""
    turned = [
        (c.change.midpoint, c.change.onset, c.change.end, i, c) for i, c in enumerate(curves) if c.change and not c.slow
    ]
    return [curve for *_, curve in sorted(turned, key=lambda one: one[:4])]


def order(one: Curve, other: Curve) -> str:
    """When `one` turned: before or after `other`, or "overlap" where their windows do; empty where one never turned."""
    a, b = one.change, other.change
    if a is None or b is None:
        return ""
    return "overlap" if a.overlaps(b) else "before" if a.end < b.onset else "after"


def first_of(one: Curve, other: Curve) -> int:
    """-1 where `one` has the earlier midpoint, 1 where `other` has, 0 at the same step."""
    assert one.change is not None and other.change is not None
    return int(np.sign(one.change.midpoint - other.change.midpoint))


def readable(run: Run) -> bool:
    """Has it the weights of which K-composition is made?"""
    return bool(run.steps) and not run.why_not("composition_curve")


def compositions(run: Run, steps: Iterable[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """K-composition [layer1 head1 layer2 head2] at each snapshot; a damaged one is left out."""
    from tracer.analysis.composition import composition
    from tracer.analysis.prompt_over_steps import models

    for step, model in models(run, steps):
        yield step, composition("k", *model.head_weights()[:4]).numpy()


def by_chance(run: Run) -> float:
    """What heads with random weights of this model's shapes read of each other."""
    from tracer.analysis.composition import random_composition

    model = run.config.model
    return random_composition(model.d_model, model.head_width)[0]


def perplexity(loss: ArrayLike) -> NDArray[np.float64]:
    """exp of a loss in nats; inf, without a warning, beyond what a float holds."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(np.asarray(loss, float)))


def total_norm(norms: ArrayLike) -> NDArray[np.float64]:
    """The l2 norm of all tensors together [step], from that of each [step param]; clipping limits it."""
    return np.sqrt(np.square(np.asarray(norms, float)).sum(axis=1))
