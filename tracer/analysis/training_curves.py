"""The course of a run: its curves on one axis of steps, when each changed, and in which order.

1. A curve of a head is that of the head which ends highest; a maximum over heads would hide which one it is. Having
   looked at all heads asks more of its change. Of induction it is the head that ends farthest above its control, and
   there is no curve where no head does. The previous-token head is the best of the layers before that one, which alone
   it can read from, and never the same head. K-composition is that of these two.
   Of a score that only its author knows it is the head that ends highest, or where it has layers, their mean.
2. A curve has changed where `tracer.measures.change_points` finds a change that is large enough to tell: by `LEAST`,
   and by the interval that its probe's rows allow the difference of two levels. What changes as the learning rate warms
   up is not dated.
3. One change comes before another where the intervals of their dates part, of curves in one unit. Half of the way in
   one unit is not half in another: a probability p that rises is halfway later than -ln p that falls. Curves of two
   units are in order where one has gone 90 % of its way before the other has gone 10 %; or where their dates part in
   log odds as well, which a score has and exp of minus a loss. Else their order is not known.

Source: ours; Olsson et al. 2022 read these curves side by side and marked one window by eye.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.config.field_docs import fields_in_help
from tracer.measures import MEASURES, Measure, in_trace, measures_in
from tracer.measures.aliases import Head
from tracer.measures.change_points import PhaseChange, Reading, readings
from tracer.measures.intervals import margins, within
from tracer.measures.measure import HEAD, LAYER
from tracer.measures.strongest import induction_head

if TYPE_CHECKING:
    import xarray as xr

    from tracer.store import Run

LAST = 0.1
"""The share of the steps, at the end, that says which head a curve is of; at least 3 steps."""
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
HAPPENS = {
    "val_loss": ("Held-out loss rises", "Held-out loss falls"),
    "repeat_loss": ("Loss on repeats rises", "Loss on repeats falls"),
    "icl_score": ("Context helps less", "Context starts to help"),
    "induction": ("{0} begins to copy", "{0} stops copying"),
    "previous_token": ("{0} turns to the token before", "{0} turns away from the token before"),
    "composition": ("{1} reads {0}", "{1} no longer reads {0}"),
    "entropy": ("Attention spreads", "Attention sharpens"),
    "gradient": ("Gradients grow", "Gradients shrink"),
}
"""What an event is called: where a curve rises, and where it falls; with the names of its heads."""
MARKS = HAPPENS | {
    "induction": ("{0}: induction", "{0}: induction lost"),
    "previous_token": ("{0}: previous token", "{0}: previous token lost"),
}
"""The same as marks of a timeline, which have little room."""
UNITS = {"val_loss": "nats", "repeat_loss": "nats", "icl_score": "nats", "composition": "above random"}
SCORES, LOSSES = ("induction", "previous_token"), ("val_loss", "repeat_loss")
"""Shares of attention, and losses: the curves that have log odds."""
SCALES = {"val_loss": "loss", "repeat_loss": "loss", "induction": "share", "previous_token": "share"}
"""Curves of one scale are halfway at the same time if they are one event; every other curve has a scale of its own."""
LEAST_ODDS = 1e-4
"""Probabilities nearer to 0 or 1 count as this."""
FULL = 0.999
"""A learning rate that reaches this share of its highest has warmed up."""


@fields_in_help
@dataclass(frozen=True)
class Curve:
    """One quantity over training; `steps` are those at which it was measured."""

    name: str
    """A key of NAMES, or a variable of the trace that only its author knows."""
    steps: NDArray[np.int64]
    """Those with a value."""
    values: NDArray[np.float64]
    """One a step, in the measure's units."""
    change: PhaseChange | None
    """When it moved from one level to another; None where that has no date."""
    heads: tuple[Head, ...] = ()
    """The head that is measured; of K-composition the one that is read, in an earlier layer, then the reader."""
    margins: NDArray[np.float64] | None = None
    """Half of the 95 % interval of each value, over the rows of its probe; None where that was not recorded."""
    undated: str = ""
    """Why nobody may say when it changed."""
    odds: PhaseChange | None = None
    """The change of its log odds, where it has them."""
    own: Measure | None = None
    """What the trace says of somebody's own number."""

    @property
    def title(self) -> str:
        """Such as "Induction head"."""
        return self.own.label if self.own else NAMES[self.name]

    @property
    def label(self) -> str:
        """Such as "Induction head L1H2"."""
        names = [f"L{layer}H{head}" for layer, head in self.heads]
        return f"{self.title} {' → '.join(names)}".strip()

    @property
    def happens(self) -> str:
        """Its event in a few words, such as "L0H1 turns to the token before"; empty where it did not change."""
        return self._by(HAPPENS)

    @property
    def mark(self) -> str:
        """Its event as a mark on a timeline, such as "L0H1: previous token"; empty where it did not change."""
        return self._by(MARKS)

    def _by(self, names: Mapping[str, tuple[str, str]]) -> str:
        if self.change is None:
            return ""
        falls = self.change.after < self.change.before
        if self.own:
            return f"{self.label} {'falls' if falls else 'rises'}"
        return names[self.name][falls].format(*(f"L{layer}H{head}" for layer, head in self.heads))

    @property
    def band(self) -> NDArray[np.float64] | None:
        """Both ends [end step] of the 95 % interval of each value, within what there can be."""
        measure = self.own or MEASURES.get("entropy_normalised" if self.name == "entropy" else self.name)
        return None if self.margins is None or measure is None else within(self.values, self.margins, measure)

    @property
    def ends_at(self) -> float:
        """Its median over the last tenth of its steps, as that which chose its head."""
        last = _at_the_end(self.values[:, None, None])
        return float("nan") if last is None else float(last[0, 0])

    @property
    def unit(self) -> str:
        return self.own.unit if self.own else UNITS.get(self.name, "")


@dataclass(frozen=True)
class Reads:
    """K-composition of every pair of heads over snapshots."""

    steps: list[int]
    scores: NDArray[np.float32]
    """[step layer1 head1 layer2 head2]"""
    chance: float
    """What random heads of these shapes read of each other."""


def course(trace: xr.Dataset, reads: Reads | None = None) -> list[Curve]:
    """Every curve that this trace holds, in the order of NAMES, then somebody's own; K-composition from `reads`."""
    every = trace["step"].values
    found: dict[str, tuple[np.ndarray, np.ndarray, tuple[Head, ...], np.ndarray | None]] = {}
    full = warmed_up(trace)

    def add(name: str, values: np.ndarray, heads: tuple[Head, ...] = (), at: np.ndarray = every, of: str = "") -> None:
        around = margins(trace, of) if of else None
        if around is not None and heads:
            around = around[(slice(None), *heads[0])]
        if around is not None and around.ndim == 3:  # a mean over heads that see the same rows: no surer than one
            around = _mean_of_heads(around)
        if np.isfinite(values).any():
            found[name] = at, np.asarray(values, float), heads, around

    for name in ("val_loss", "repeat_loss", "icl_score"):
        if name in trace:
            add(name, values_of(trace, name), of=name)
    reader = strongest(trace)
    behind = None if "previous_token" not in trace else best(_others(trace["previous_token"].values, reader))
    for name, head in (("induction", reader), ("previous_token", behind)):
        if head is not None:
            add(name, values_of(trace, name, head), (head,), of=name)
    if reads is not None and reader is not None and behind is not None and behind[0] < reader[0]:
        scores = reads.scores[(slice(None), *behind, *reader)] - reads.chance
        add("composition", scores, (behind, reader), np.asarray(reads.steps))
    if "entropy_normalised" in trace:
        add("entropy", values_of(trace, "entropy"), of="entropy_normalised")
    if "grad_norm" in trace:
        add("gradient", values_of(trace, "gradient"))
    own = {name: in_trace(trace, name) for dims in (("step",), LAYER, HEAD) for name in measures_in(trace, dims)
           if name not in MEASURES}  # fmt: skip
    for name, measure in own.items():
        head = best(_finite(trace[name].values)) if measure.dims == HEAD else None
        if measure.dims == LAYER:
            add(name, values_of(trace, name))
        elif measure.dims != HEAD or head is not None:
            add(name, values_of(trace, name, head), (head,) if head else (), of=name)
    on_trace = [name for name in found if name != "composition"]
    of_heads = (*SCORES, *(name for name, measure in own.items() if measure.dims == HEAD))
    tried = [_heads_in(trace[name].values) if name in of_heads else 1 for name in on_trace]
    read = dict(zip(on_trace, readings(every, [found[n][1] for n in on_trace], tried=tried, warmup=full), strict=True))
    with_odds = [name for name in on_trace if name in (*SCORES, *LOSSES)]
    in_odds = readings(every, [log_odds(n, found[n][1]) for n in with_odds], known=True) if with_odds else []
    odds = {name: one.change for name, one in zip(with_odds, in_odds, strict=True)}
    if "composition" in found:
        at, values, *_ = found["composition"]
        read["composition"] = readings(at, values[None], warmup=full)[0]
    order = [name for name in (*NAMES, *own) if name in found]
    return [_curve(name, *found[name], read[name], odds.get(name), own.get(name)) for name in order]


def values_of(trace: xr.Dataset, name: str, head: Head | None = None) -> NDArray[np.float64]:
    """A curve by its name, at every step of a trace; K-composition is not in one."""
    if name == "entropy":
        return _mean_of_heads(trace["entropy_normalised"].values).astype(float)
    if name == "gradient":
        squares = np.square(trace["grad_norm"].values.astype(float))
        return np.where(np.isfinite(squares).any(axis=1), np.sqrt(np.nansum(squares, axis=1)), np.nan)
    values = trace[name].values if name in NAMES else _finite(trace[name].values)
    if head is None and values.ndim == 2:  # of layers
        values = _mean_of_heads(values[..., None])
    return np.asarray(values[(slice(None), *(head or ()))], float)


def finer(curve: Curve, closer: Iterable[xr.Dataset]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps and values of a curve, with those of the same training that these traces recorded between."""
    found = dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
    head = curve.heads[0] if len(curve.heads) == 1 else None
    for trace in closer if len(curve.heads) < 2 else ():
        if {"entropy": "entropy_normalised", "gradient": "grad_norm"}.get(curve.name, curve.name) in trace:
            more = zip(trace["step"].values.tolist(), values_of(trace, curve.name, head).tolist(), strict=True)
            found = {step: value for step, value in more if np.isfinite(value)} | found
    steps = sorted(found)
    return np.array(steps), np.array([found[step] for step in steps])


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


def log_odds(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """ln(p / (1 - p)) of a score p, or of p = exp(-loss): one event is one curve, whichever of the two was measured."""
    p = np.asarray(values, float) if name in SCORES else np.exp(-np.asarray(values, float))
    p = np.clip(p, LEAST_ODDS, 1 - LEAST_ODDS)
    return np.log(p / (1 - p))


def warmed_up(trace: xr.Dataset) -> float | None:
    """The first recorded step at the highest learning rate, 0 if that is the first of all.

    None where no learning rate was recorded, or it still rises where the record ends.
    """
    rate = trace["learning_rate"].values if "learning_rate" in trace else np.array([])
    known = np.isfinite(rate)
    if not known.any():
        return None
    at, rate = trace["step"].values[known], rate[known]
    first = int(np.argmax(rate >= FULL * rate.max()))
    return 0.0 if first == 0 else None if first == len(at) - 1 else float(at[first])


def _heads_in(scores: np.ndarray) -> int:
    """Heads of scores [step layer head] that were measured."""
    return int(np.isfinite(scores).any(axis=0).sum())


ONE_TOKEN = "read from one token of each row, as runs did that recorded no standard error"


def _curve(
    name: str, at: np.ndarray, values: np.ndarray, heads: tuple[Head, ...], around: np.ndarray | None,
    reading: Reading, odds: PhaseChange | None, own: Measure | None = None,
) -> Curve:  # fmt: skip
    """What was measured of a curve, and its change unless that is too small to tell."""
    known = np.isfinite(values)
    change = reading.change
    around = None if around is None else around[known]
    undated = ONE_TOKEN if name == "icl_score" and around is None else reading.undated
    apart = 0.0
    if change is not None and around is not None:
        ends = np.interp([change.onset, change.end], at[known], around)
        apart = float(np.hypot(*np.nan_to_num(ends)))
    if change is not None and (undated or abs(change.after - change.before) < max(LEAST.get(name, 0.0), apart)):
        change = None
    return Curve(name, at[known], values[known], change, heads, around, undated, odds if change else None, own)


def strongest(trace: xr.Dataset) -> Head | None:
    """The strongest induction head over the last tenth of the measured steps; None where none stands out."""
    if "induction" not in trace or (scores := _at_the_end(trace["induction"].values)) is None:
        return None
    control = _at_the_end(trace["induction_control"].values) if "induction_control" in trace else None
    return induction_head(scores, control)


def _others(scores: np.ndarray, reader: Head | None) -> np.ndarray:
    """Scores [step layer head] of the heads that `reader` can read from, nan for the rest: those of earlier layers.

    Of one in the first layer, which can read none, those of all heads but itself; without a reader all.
    """
    others = np.ones(scores.shape[1:], bool)
    if reader is not None:
        others[reader[0] :] = reader[0] == 0
        others[reader] = False
    return np.where(others, scores, np.nan)


def best(scores: np.ndarray) -> Head | None:
    """The head of scores [step layer head] that is highest over the last tenth of the measured steps, by its median."""
    last = _at_the_end(scores)
    if last is None:
        return None
    layer, head = np.unravel_index(int(np.nanargmax(last)), last.shape)
    return int(layer), int(head)


def _at_the_end(scores: np.ndarray) -> np.ndarray | None:
    """Medians [layer head] over the last tenth of the measured steps; None where nothing was measured."""
    known = scores[np.isfinite(scores).any(axis=(1, 2))]
    if not len(known):
        return None
    size = max(3, round(LAST * len(known)))
    end = known[-size:].astype(float)
    last, there = np.full(end.shape[1:], np.nan), np.isfinite(end).any(0)
    last[there] = np.nanmedian(end[:, there], axis=0)  # a record may lack a head, and a layer may have fewer
    return last if there.any() else None


def _mean_of_heads(values: np.ndarray) -> np.ndarray:
    """[step layer head] to [step]; heads that do not exist are nan throughout and left out."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis=(1, 2), dtype=float)
    return np.where(known.any(axis=(1, 2)), total / np.maximum(1, known.sum(axis=(1, 2))), np.nan)


def events(curves: Iterable[Curve]) -> list[Curve]:
    """The curves that changed, by their midpoints; of those at one step the one whose interval begins earlier first."""
    changed = [(c.change.midpoint, c.change.low, c.change.high, i, c) for i, c in enumerate(curves) if c.change]
    return [curve for *_, curve in sorted(changed, key=lambda one: one[:4])]


def may_feed(previous: Curve, induction: Curve) -> bool:
    """Is the one head in a layer before that of the other, as in an induction circuit? True where one is not known."""
    return not (previous.heads and induction.heads) or previous.heads[0][0] < induction.heads[0][0]


def order(one: Curve, other: Curve) -> str:
    """When `one` changed: before or after `other`; "overlap" where the intervals of their dates do, "units" where their
    units differ and in others the order may be another; empty where one never changed."""
    a, b = one.change, other.change
    if a is None or b is None:
        return ""
    known = _apart(a, b)
    if known == "overlap" or SCALES.get(one.name, one.name) == SCALES.get(other.name, other.name):
        return known
    if (a.high + a.end - a.midpoint < b.low - b.midpoint + b.onset) or (
        b.high + b.end - b.midpoint < a.low - a.midpoint + a.onset
    ):
        return known
    return known if one.odds and other.odds and _apart(one.odds, other.odds) == known else "units"


def _apart(a: PhaseChange, b: PhaseChange) -> str:
    return "overlap" if a.overlaps(b) else "before" if a.high < b.low else "after"


def readable(run: Run) -> bool:
    """Has it the weights of which K-composition is made?"""
    return bool(run.steps) and run.can("composition_curve")


def compositions(run: Run, steps: Iterable[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """K-composition [layer1 head1 layer2 head2] at each snapshot; a damaged one is left out."""
    from tracer.analysis.prompt_over_steps import models
    from tracer.measures.composition import composition

    for step, model in models(run, steps):
        yield step, composition("k", *model.head_weights()[:4]).numpy()


def by_chance(run: Run, step: int | None = None) -> float:
    """What heads with random weights of this model's shapes read of each other; `step`: any whose weights are whole."""
    from tracer.measures.composition import random_composition

    return random_composition(*run.model(step).head_weights().W_Q.shape[2:])[0]


def extremes(values: ArrayLike, parts: int) -> NDArray[np.intp]:
    """Where, in order, each of so many equal parts is least and greatest: a long curve's picture, no spike of it lost.

    All places if there are no more than twice as many as parts; a part without a finite value has none.
    """
    y = np.asarray(values, float)
    if y.size <= 2 * parts:
        return np.arange(y.size)
    edges = np.linspace(0, y.size, parts + 1).round().astype(int)
    y = np.where(np.isfinite(y), y, np.nan)  # an inf would stand for its whole part, and is not drawn
    held = [(a, part) for a, b in itertools.pairwise(edges) if np.isfinite(part := y[a:b]).any()]
    return np.unique([a + at(part) for a, part in held for at in (np.nanargmin, np.nanargmax)]).astype(np.intp)


def perplexity(loss: ArrayLike) -> NDArray[np.float64]:
    """exp of a loss in nats; inf, without a warning, beyond what a float holds."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(np.asarray(loss, float)))


def total_norm(norms: ArrayLike) -> NDArray[np.float64]:
    """The l2 norm of all tensors together [step], from that of each [step param]; clipping limits it."""
    return np.sqrt(np.square(np.asarray(norms, float)).sum(axis=1))
