"""What a watched loop trains on: the same batch again, targets other than the next token, a future that is seen.

Of what the recorder saw of the batches (`tracer.watching.signs`) and asked the model (`tracer.watching.causality`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.findings import Advice, Finding, finite_rows, number, since, values

if TYPE_CHECKING:
    import xarray as xr

TARGETS = (
    "the token before", "the token itself", "the next token", "the token after the next",
    "the row read backwards", "the row read backwards, one place on",
)  # fmt: skip
"""What `shifted_loss` is about, in its order."""
SAME, NEXT = TARGETS.index("the token itself"), TARGETS.index("the next token")
CLOSE, APART = 0.05, 3.0
"""The loss is that of a target where the two differ by a twentieth or less, the median of the records, and by a third
or less of what the loss of any other target does. A loop that cuts the last position off differs by one of a row."""
ROUNDS = 1e-5
"""Relative error of a mean of float32. Where no place is cut off, two losses that differ by no more are one number; any
other target's differs by ten times that, before anything is learned too."""
LAST = 2.0
"""The loss of the place that is cut off, at most, over that of the others, or over ln(d_vocab)."""
SMALL = 0.1
"""nats: of smaller losses, differences are taken as shares of this."""
UPDATES = 20
"""On the same batch, from which on it is no accident."""
LEAKS = 0.01
"""Change of earlier logits, over their spread, that no rounding makes: bfloat16 rounds to 0.004 of a number, and both
runs are computed alike, so that a causal model's is 0."""


def target(meta: dict[str, Any], trace: xr.Dataset) -> int | None:
    """Which of TARGETS the training loss is about; None where that cannot be told.

    A loop that gives the model all but the last token of a row has one target more than can be seen here, of which the
    loss is not known: between 0 and LAST times that of the others, or of a guess.
    """
    if values(trace, "shifted_loss") is None or values(trace, "train_loss") is None:
        return None
    loss, others = trace["train_loss"].values.astype(float), trace["shifted_loss"].values.astype(float)
    rows = np.isfinite(loss) & np.isfinite(others[:, NEXT])
    if rows.sum() < 3:
        return None
    loss, others = loss[rows][len(loss[rows]) // 2 :], others[rows][len(loss[rows]) // 2 :]
    size, places = np.maximum(loss, SMALL), int(meta.get("row") or 0)
    away = np.median(np.abs(others - loss[:, None]) / size[:, None], axis=0)
    ranked = np.argsort(np.where(np.isnan(away), np.inf, away))
    if away[ranked[0]] <= ROUNDS < ROUNDS * 10 < away[ranked[1]]:
        return int(ranked[0])
    if places:
        seen = others[:, NEXT] * (places - 1) / places
        most = LAST * np.maximum(others[:, NEXT], math.log(meta.get("d_vocab") or 2)) / places
        away[NEXT] = np.median(np.maximum(np.maximum(seen - loss, loss - seen - most), 0) / size)
        ranked = np.argsort(np.where(np.isnan(away), np.inf, away))
    best, second = ranked[:2]
    near = away[best] <= CLOSE and away[second] > APART * max(float(away[best]), CLOSE / APART)
    return int(best) if near else None


def certain(trace: xr.Dataset) -> bool:
    """Is the training loss, but for rounding, the cross-entropy of the next token, and of no other target? That shows
    where the loop takes its targets from the row that the model was given."""
    rows = np.isfinite(trace["train_loss"].values) & np.isfinite(trace["shifted_loss"].values[:, NEXT])
    loss, others = trace["train_loss"].values[rows].astype(float), trace["shifted_loss"].values[rows].astype(float)
    return len(loss) >= 3 and bool(np.median(np.abs(others[:, NEXT] - loss) / np.maximum(loss, SMALL)) < ROUNDS)


def sees_the_future(trace: xr.Dataset) -> bool | None:
    """Did the logits ever depend on later tokens? None where the model was not asked."""
    effect = values(trace, "future_effect")
    return None if effect is None else bool(np.nanmax(effect) > LEAKS)


def repeated(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """One batch at every update, to the last."""
    same, steps = trace["same_batch"].values, trace["update"].values
    known = np.isfinite(same)
    same, steps = same[known], steps[known]
    first = int(since(same == 1))
    if len(same) - first < max(UPDATES, len(same) // 2):
        return
    loss = values(trace, "val_loss")
    learned = loss is not None and np.nanmin(loss) < loss[np.isfinite(loss)][0]
    yield Finding(
        "repeated", "bad", "The same batch at every update", int(steps[first]), (),
        f"{len(same) - first + 1:,} updates in a row were made on one and the same batch"
        + ("" if not learned or loss is None else f"; the held-out loss was {number(float(np.nanmin(loss)))} at best"),
        Advice("", ("a batch that is drawn once, outside of the loop", "a loader or a generator that begins anew at "
                    "every step (next(iter(loader)), a seed that is set in the loop)", "a data set of one batch, or a "
                    "test whether the model can learn a batch by heart, on purpose"),
               "print the first ten ids of the batch at two steps"),
        "the fingerprint of each batch; that it is equal is no threshold, the number of updates is ours",
    )  # fmt: skip


def leak(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A model that is trained to predict the next token, and is shown it."""
    if target(meta, trace) != NEXT or not sees_the_future(trace):
        return
    effect = trace["future_effect"].values
    row = int(np.flatnonzero(effect > LEAKS)[0])
    loss = finite_rows(trace, "train_loss")["train_loss"].values[-1]
    yield Finding(
        "leak", "bad", "The model sees the tokens that it has to predict", int(trace["step"].values[row]), (),
        f"with other tokens in the second half of a row, the logits before it change by {np.nanmax(effect):.0%} of "
        f"their spread; the loss is that of the next token, and ends at {number(float(loss))} nats",
        Advice("", ("attention without a causal mask", "a mask that is one place off (tril with diagonal=1), or of the "
                    "wrong sign", "something else that mixes positions: a norm or a convolution over them"),
               "compare the logits of a row with those of its first half alone: they have to be equal; then look at "
               "the patterns on Heads, where nothing may stand right of the diagonal"),
        "the definition of a causal model; a causal one changes by 0, the edge is ours",
    )  # fmt: skip


def targets(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A causal model that is trained to predict something else than the next token."""
    found = target(meta, trace)
    if found is None or found == NEXT or sees_the_future(trace) is not False:
        return
    trace = finite_rows(trace, "shifted_loss")
    loss, others = trace["train_loss"].values[-1], trace["shifted_loss"].values[-1]
    causes = {
        SAME: ("labels that are the inputs, not shifted by one place",),
        SAME - 1: ("labels that are shifted the wrong way",),
        NEXT + 1: ("labels that are shifted twice: by the loop, and by the model or its loss once more",),
    }.get(found, ("inputs or labels that are read backwards (a flip), and not both",))
    yield Finding(
        "targets", "bad", f"Trained to predict {TARGETS[found]}", int(trace["step"].values[0]), (),
        f"the loss, {number(float(loss))} nats, is that of the logits against {TARGETS[found]} "
        f"({number(float(others[found]))}), not against the next token ({number(float(others[NEXT]))})",
        Advice(f"look at how labels are made: {causes[0]}"),
        "the cross-entropy of the same logits against six targets; that the loss is one of them to a twentieth is ours",
    )  # fmt: skip


def positions(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Positions that are all the same."""
    where = str(meta["constant_positions"])
    if not where:
        return
    yield Finding(
        "positions", "bad", "Every token has the same position", int(trace["step"].values[0]), (),
        f"in a row of different tokens, {where} was " + ("the same number at every place" if where == "position_ids"
                                                         else "asked for one and the same row at every place"),
        Advice("", ("position ids that are not counted up (zeros, or the last one for all)", "ids that are cut to one "
                    "place for generating, and used in training"), "print the position ids of a batch: 0, 1, 2, ..."),
        "what was looked up in the first record; no threshold",
    )  # fmt: skip
