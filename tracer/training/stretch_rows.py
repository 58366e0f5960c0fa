"""Which rows of a stretch of training moved a head, and when it would have moved without them.

1. The stretch is trained again. After each update the score's gradient says, to first order, what each row of its batch
   did to the score (`tracer.training.first_order`); of one step it is held against the exact answer.
2. Then it is trained again as it was, and without the rows that moved the score most: their losses count for nothing,
   the mean keeps its denominator. And without as many others, drawn at random from the same steps and of the same kind
   (rows of the mix for rows of the mix): a stretch without that many rows is another one, whichever they are.
3. The date of each is where the score is halfway between what it was before the stretch and, as it was, after it.

What a row prepares for steps to come is not in its effect: a row that taught a head below counts only by what it did to
the score at once. Whether the rows with the largest effects matter is what (2) asks, and either answer is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from tracer.data import token_strings
from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.heads.own_measures import Measures
from tracer.interventions.own_clamps import Given
from tracer.measures import MEASURES
from tracer.measures.aliases import Head, Progress
from tracer.store import Run
from tracer.store.row_effects import read_rows, write_rows
from tracer.tracking.scalar_functions import Scalars
from tracer.training.again import Again
from tracer.training.first_order import before_update, row_derivatives
from tracer.training.head_score import HeadScore
from tracer.training.job import forward_backward, hold, update
from tracer.training.which_rows import without_each

SHOWN = 50
"""Rows at each end whose text is kept."""
READS = 100
"""A date is read from about so many reads of the score."""


def stretch_rows(
    run: Run | str | Path, first: int, last: int, head: Head, measure: str = "induction", *,
    without: Sequence[float] = (1, 5, 20), draws: int = 3, until: int | None = None, progress: Progress | None = None,
    measures: Measures = (), probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (),
    corpus: str | Make | None = None, clamp: Given = (),
) -> xr.Dataset:  # fmt: skip
    """What the training rows of steps `first` to `last` did to a head, and when its score moves without them.

    Args:
        run: A run of `tracer.train`, or its name; trained here again, in this process, from the nearest kept state.
        first, last: The updates from `first` to `last` are looked at, and rows of these left out.
        head: (layer, head).
        measure: Of heads, all but the largest logit, which is no mean.
        without: Per cent of the rows of the stretch: it is trained again without so many of those that moved the score
            most the way that it went, and without as many at random; () only ranks.
        draws: How often, at random.
        until: Train on to this step, to see dates that move; by default as far again as the stretch is long.
        progress: Called with (updates that are done, of how many).
        measures, probes, scalars, corpus, clamp: Those of the run, named again, as in `tracer.fork`.

    Returns:
        `effect` [step row]: the score after the update, less the score without the row, to first order.
        `score` [step]: before the update. `mixed_in` [step row]: is it from `data.mix`? `exact` [row]: the effects at
        step `exact_step`, which has the largest. `curve` [training at]: the score, `date` [training] (steps; nan: not
        by `until`), `left_out` [training] (rows), `share` (per cent) and `draw` (-1: the rows that moved it most) of
        each training. Attributes: `rows` (those at both ends, as text), `level` (of the score, whose passing is the
        date), `same` (is what was had again the run, to the bit, where it kept weights?). The run keeps the answer,
        and one that is there is not computed again.

    Source: ours. Effects are the first order of influence functions (Koh and Liang 2017), of one update and through the
    optimizer. Cost: of each update of the stretch about three more passes of its batch, and one of the probe forward
    and back; then the steps to `until`, 1 + len(without) * (1 + draws) times.

    Raises:
        ValueError: For steps that were not trained, a head or a measure that is not there, a loss of one's own.
    """
    again = Again(run, first, last, head, measures=measures, probes=probes, scalars=scalars, corpus=corpus, clamp=clamp)
    parent = again.parent
    if any(not 0 < share < 100 for share in without) or (without and draws < 1):
        raise ValueError(f"without={tuple(without)} are per cent, between 0 and 100, and draws={draws} at least 1")
    end = min(parent.config.steps, 2 * last - first) if until is None else until
    if not last <= end <= parent.config.steps:
        raise ValueError(f"until={end} is none of the steps from {last} to {parent.config.steps}")
    score = HeadScore(again.recorder, again.head, measure)
    layer, at = again.head
    name = f"{first}-{last}-L{layer}H{at}-{measure}"
    asked = {"without": [float(x) for x in without], "draws": draws, "until": end, "created": parent.meta["created"]}
    there = read_rows(parent.dir, name)
    if there is not None and {key: there[1].get(key) for key in asked} == asked:
        return as_dataset(*there)
    row = MEASURES[measure]
    told: dict[str, Any] = {
        "run": parent.name, "first": first, "last": last, "start": again.start, "head": f"L{layer}H{at}",
        "measure": measure, "label": row.label, "unit": row.unit, **asked,
    }  # fmt: skip
    count = _Count(progress, last - first + (end - first) * (1 + len(without) * (1 + draws) if without else 0))
    again.go_to(first)
    kept = again.kept()
    found, told["exact_step"] = _ranked(again, score, last, count)
    again.back(kept, first)
    told["rows"] = _as_text(again, found)
    if without:
        arrays, said = _trained_without(again, score, found, kept, told, count)
        found |= arrays
        told |= said
    write_rows(parent.dir, name, found, told)
    return as_dataset(found, told)


def answer(run: Run, name: str) -> xr.Dataset | None:
    """The one that a run keeps by this name (`tracer.store.row_effects.rows_there`)."""
    there = read_rows(run.dir, name)
    return None if there is None else as_dataset(*there)


def as_dataset(arrays: Mapping[str, np.ndarray], told: Mapping[str, Any]) -> xr.Dataset:
    """An answer as it is kept, with its axes named."""
    dims = {
        "effect": ("step", "row"), "mixed_in": ("step", "row"), "score": ("step",), "exact": ("row",),
        "curve": ("training", "at"), "date": ("training",), "left_out": ("training",), "share": ("training",),
        "draw": ("training",),
    }  # fmt: skip
    coords = {"step": np.arange(told["first"], told["last"]), **{k: arrays[k] for k in ("at",) if k in arrays}}
    return xr.Dataset({name: (dims[name], arrays[name]) for name in dims if name in arrays}, coords, dict(told))


def agreement(told: xr.Dataset) -> tuple[int, float, float]:
    """The step whose effects are known exactly; the least-squares factor from first order to those, and correlation."""
    step = int(told.attrs["exact_step"])
    first_order, exact = told["effect"].sel(step=step).values.astype(float), told["exact"].values
    square = float(first_order @ first_order)
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = float(np.corrcoef(first_order, exact)[0, 1])
    return step, float(first_order @ exact) / square if square else float("nan"), alike


class _Count:
    def __init__(self, progress: Progress | None, of: int) -> None:
        self._progress, self._done, self._of = progress, 0, of

    def __call__(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._of)


def _ranked(again: Again, score: HeadScore, last: int, count: _Count) -> tuple[dict[str, np.ndarray], int]:
    """The effects of every row from here to `last`; the exact ones of the step with the largest, and that step."""
    job, first, n = again.job, again.step, again.job.config.optim.batch_size
    effects, scores = np.zeros((last - first, n), np.float32), np.zeros(last - first)
    mixed = np.stack([job.data.mixed_in(step, n) for step in range(first, last)])
    now, largest, there = score.read(job.raw), -1.0, (first, again.kept())
    for i, step in enumerate(range(first, last)):
        hold(job, step)
        scores[i] = now
        forward_backward(job, step)
        grads = {name: p.grad.detach().clone() for name, p in job.raw.named_parameters() if p.grad is not None}
        before = again.kept()
        weights: dict[str, Tensor] = {name: before[f"model.{name}"] for name, _ in job.raw.named_parameters()}
        update(job, step)
        now, slope = score.gradient(job.raw)
        direction = before_update(job, grads, slope)
        effects[i] = row_derivatives(job, step, weights, direction).cpu().numpy()
        if (most := float(np.abs(effects[i]).max())) > largest:
            largest, there = most, (step, before)
        count()
    again.back(there[1], there[0])
    exact = without_each(again, lambda: score.read(job.raw), lambda done, of: None)
    return {
        "effect": effects, "score": scores, "mixed_in": mixed, "exact": exact["effect"].values,
    }, there[0]  # fmt: skip


def _as_text(again: Again, found: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The rows at both ends, those that raised the score most first."""
    effect, data = found["effect"], again.job.data
    order = np.argsort(-effect, axis=None, kind="stable")
    shown = order if len(order) <= 2 * SHOWN else np.concatenate([order[:SHOWN], order[-SHOWN:]])
    told, n = [], effect.shape[1]
    for at in shown.tolist():
        i, row = divmod(at, n)
        ids = data.train(again.step + i, n)[row].tolist()
        told.append({
            "step": again.step + i, "row": row, "effect": float(effect[i, row]),
            "mixed_in": bool(found["mixed_in"][i, row]), "text": "".join(token_strings(data.tokenizer, ids)),
        })  # fmt: skip
    return told


def _trained_without(
    again: Again, score: HeadScore, found: Mapping[str, np.ndarray], kept: dict[str, Tensor], told: dict[str, Any],
    count: _Count,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:  # fmt: skip
    """Curves and dates of the trainings."""
    first, last, until = told["first"], told["last"], told["until"]
    every = max(1, (until - first) // READS)
    reads = sorted({*range(first, until, every), last, until})
    same: list[tuple[int, bool]] = []

    def train(left_out: Mapping[int, list[int]]) -> list[float]:
        again.back(kept, first)
        again.job.left_out = left_out
        curve = []
        for step in range(first, until + 1):
            again.go_to(step)
            hold(again.job, step)
            if step in reads:
                curve.append(score.read(again.job.raw))
            if not left_out:
                same.extend((step, is_same) for _, is_same in again.same(step, again.job.raw.state_dict()))
            if step > first:
                count()
        return curve

    curves = [train({})]
    begun, ended = curves[0][0], curves[0][reads.index(last)]
    way = 1.0 if ended >= begun else -1.0
    shares, drawn, numbers = [0.0], [-1], [0]
    for share in told["without"]:
        n = max(1, round(share / 100 * found["effect"].size))
        most = np.argsort(-way * found["effect"], axis=None, kind="stable")[:n]
        for draw in range(-1, told["draws"]):
            rows = most if draw < 0 else _others(again.job.config.seed, draw, most, found["mixed_in"])
            curves.append(train(_by_step(rows, first, found["effect"].shape[1])))
            shares, drawn, numbers = [*shares, share], [*drawn, draw], [*numbers, len(rows)]
    again.job.left_out = {}
    level = (begun + ended) / 2
    arrays = {
        "curve": np.array(curves), "date": np.array([passed(reads, curve, level, way) for curve in curves]),
        "at": np.array(reads), "share": np.array(shares), "draw": np.array(drawn), "left_out": np.array(numbers),
    }  # fmt: skip
    parts = [step for step, is_same in same if not is_same]
    words = (
        "the run kept no weights in this stretch to compare with" if not same
        else f"weights part from the run's at step {parts[0]:,}" if parts
        else f"weights equal to the run's to the bit at {_steps([step for step, _ in same])}"
    )  # fmt: skip
    return arrays, {"level": level, "same": words}


def _steps(steps: Sequence[int]) -> str:
    """Few by name, more by number."""
    if len(steps) <= 3:
        return f"step {', '.join(f'{step:,}' for step in steps)}"
    return f"all {len(steps)} kept steps from {steps[0]:,} to {steps[-1]:,}"


def _others(seed: int, draw: int, most: np.ndarray, mixed: np.ndarray) -> np.ndarray:
    """As many rows of each step and kind as `most` has there, at random, which may be some of them."""
    rng, n = np.random.default_rng([seed, len(most), draw]), mixed.shape[1]
    found: list[int] = []
    for step in np.unique(most // n):
        here = most[most // n == step] % n
        for kind in (False, True):
            there = np.flatnonzero(mixed[step] == kind)
            found += (step * n + rng.choice(there, (mixed[step, here] == kind).sum(), replace=False)).tolist()
    return np.array(found)


def _by_step(rows: np.ndarray, first: int, n: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for at in sorted(rows.tolist()):
        found.setdefault(first + at // n, []).append(at % n)
    return found


def passed(steps: Sequence[int], curve: Sequence[float], level: float, way: float) -> float:
    """Where a curve first passes a level on its way (1: up, -1: down), between two reads by a line; nan: nowhere."""
    beyond = [way * (value - level) >= 0 for value in curve]
    if True not in beyond:
        return float("nan")
    i = beyond.index(True)
    if i == 0:
        return float(steps[0])
    share = (level - curve[i - 1]) / (curve[i] - curve[i - 1])
    return steps[i - 1] + share * (steps[i] - steps[i - 1])
