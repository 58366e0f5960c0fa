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
    "the row read backwards", "the row read backwards, one place on", "the next token, through softmax twice",
)  # fmt: skip
"""What `shifted_loss` is about, in its order."""
SAME, NEXT, TWICE = TARGETS.index("the token itself"), TARGETS.index("the next token"), len(TARGETS) - 1
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
TWICE_CLOSE, TWICE_APART = 0.02, 0.05
"""Relative differences: the loss of probabilities taken for logits hardly differs between places, and is far from the
right one as soon as anything is learned."""
SILENT = 0.5
"""Share of the rows of a batch without any gradient."""
COMMON, KINDS = 0.6, 4
"""Share of one token among all, in a vocabulary of so many kinds at least."""
UPDATES = 20
"""On the same batch, from which on it is no accident."""
LEAKS = 0.01
"""Change of earlier logits, over their spread, that no rounding makes: bfloat16 rounds to 0.004 of a number, and both
runs are computed alike, so that a causal model's is 0."""


def target(meta: dict[str, Any], trace: xr.Dataset) -> int | None:
    """Which of TARGETS but TWICE the training loss is about; None where that cannot be told.

    A loop that gives the model all but the last token of a row has one target more than can be seen here, of which the
    loss is not known: between 0 and LAST times that of the others, or of a guess.
    """
    loss, others = _beside(trace)
    if len(loss) < 3:
        return None
    if meta.get("built_with"):  # the loop is ours, before anything is learned too
        return NEXT
    loss, others = loss[len(loss) // 2 :], others[len(loss) // 2 :, :TWICE]
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


def _beside(trace: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The training loss and those against TARGETS, of the records that have both."""
    if values(trace, "shifted_loss") is None or values(trace, "train_loss") is None:
        return np.zeros(0), np.zeros((0, 0))
    loss, others = trace["train_loss"].values.astype(float), trace["shifted_loss"].values.astype(float)
    rows = np.isfinite(loss) & np.isfinite(others[:, NEXT])
    return loss[rows], others[rows]


def twice(trace: xr.Dataset) -> bool:
    """Is the training loss that of probabilities taken for logits, and not that of the logits?"""
    loss, others = _beside(trace)
    if len(loss) < 3 or others.shape[1] <= TWICE:  # a run of before it was recorded
        return False
    size = np.maximum(np.abs(loss), SMALL)[:, None]
    away = np.median((np.abs(others - loss[:, None]) / size)[len(loss) // 2 :], axis=0)
    return bool(away[TWICE] <= TWICE_CLOSE < TWICE_APART <= away[NEXT])


def upside_down(trace: xr.Dataset) -> bool:
    """Is the training loss minus the cross-entropy of the next token? No cross-entropy is below 0."""
    loss, others = _beside(trace)
    if len(loss) < 3:
        return False
    return bool(np.median(np.abs(loss + others[:, NEXT]) / np.maximum(others[:, NEXT], SMALL)) <= CLOSE)


def sees_the_future(trace: xr.Dataset) -> bool | None:
    """Did the logits ever depend on later tokens? None where the model was not asked."""
    effect = values(trace, "future_effect")
    return None if effect is None or np.isnan(effect).all() else bool(np.nanmax(effect) > LEAKS)


def rows_meet(trace: xr.Dataset) -> bool:
    """Did the logits of a row of the call ever depend on the others? Then they are no rows of a batch, or should be."""
    effect = values(trace, "row_effect")
    return effect is not None and bool((effect > LEAKS).any())


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
        _after_leak(heads=bool(meta.get("layers", True))),
        "the definition of a causal model; a causal one changes by 0, the edge is ours",
    )  # fmt: skip


def _after_leak(heads: bool) -> Advice:
    """`heads`: some were recorded, so that their patterns can be looked at."""
    mixes = "a norm or a convolution over them"
    if not heads:
        return Advice("", (f"something that mixes positions: {mixes} that is not causal", "a recurrence that runs "
                           "backwards too", "attention, which was not seen, without a causal mask"),
                      "compare the logits of a row with those of its first half alone: they have to be equal; then "
                      "compare what leaves each layer in the same way: the first that differs is the one")  # fmt: skip
    return Advice("", ("attention without a causal mask", "a mask that is one place off (tril with diagonal=1), or of "
                       "the wrong sign", f"something else that mixes positions: {mixes}"),
                  "compare the logits of a row with those of its first half alone: they have to be equal; then look at "
                  "the patterns on Heads, where nothing may stand right of the diagonal")  # fmt: skip


def rows_mixed(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A model that is trained on the next token of each row, and looks at other rows."""
    effect = trace["row_effect"].values
    if target(meta, trace) != NEXT or not rows_meet(trace):
        return
    row = int(np.flatnonzero(effect > LEAKS)[0])
    yield Finding(
        "rows", "bad", "Rows of a batch see each other", int(trace["step"].values[row]), (),
        f"with another row beside it, the logits of a row change by {np.nanmax(effect):.0%} of their spread; the loss "
        "is that of the next token of the same row",
        Advice("", ("attention over the batch axis: unless batch_first=True, nn.MultiheadAttention and nn.Transformer "
                    "take [pos, batch, d_model]", "a view or a transpose that mixes the axes of heads, positions and "
                    "rows", "experts with room for so many tokens of a batch, on purpose"),
               "compare the logits of a row with those of the same row in a batch of its own: they have to be equal"),
        "rows of a batch are read apart from each other: the change is 0; the edge is ours",
    )  # fmt: skip


def targets(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A causal model that is trained to predict something else than the next token, or by a loss of something else than
    its logits."""
    if rows_meet(trace):
        return
    if twice(trace):
        yield _twice(trace)
        return
    if upside_down(trace):
        yield _upside_down(trace)
        return
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


def _twice(trace: xr.Dataset) -> Finding:
    trace = finite_rows(finite_rows(trace, "shifted_loss"), "train_loss")
    loss, others = trace["train_loss"].values[-1], trace["shifted_loss"].values[-1]
    return Finding(
        "targets", "bad", "Softmax is taken twice", int(trace["step"].values[0]), (),
        f"the loss, {number(float(loss))} nats, is that of probabilities taken for logits "
        f"({number(float(others[TWICE]))}); the model's own on the next token is {number(float(others[NEXT]))}",
        Advice("give the loss logits: F.cross_entropy takes the softmax itself, and on probabilities it "
               "cannot fall below about ln(d_vocab) - 1"),
        "the cross-entropy of the same logits, once and twice through softmax; the two distances are ours",
    )  # fmt: skip


def _upside_down(trace: xr.Dataset) -> Finding:
    trace = finite_rows(finite_rows(trace, "shifted_loss"), "train_loss")
    loss, right = float(trace["train_loss"].values[-1]), float(trace["shifted_loss"].values[-1, NEXT])
    return Finding(
        "targets", "bad", "The sign of the loss is wrong: the model learns to be wrong", int(trace["step"].values[0]),
        (), f"the loss, {number(loss)}, is minus the cross-entropy of the next token, which is {number(right)} nats",
        Advice("put a minus in front of the mean log-probability, or use F.cross_entropy"),
        "the cross-entropy of the same logits, which is never below 0; that both agree to a twentieth is ours",
    )  # fmt: skip


def silent(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Rows of the batches from which nothing is learned."""
    trace = finite_rows(trace, "silent_rows")
    share = trace["silent_rows"].values
    usual = float(np.median(share))
    if usual < SILENT:
        return
    yield Finding(
        "silent", "watch", "Most rows of a batch teach nothing", int(trace["step"].values[int(since(share >= SILENT))]),
        (), f"in {usual:.0%} of the rows of a batch, the median of {len(share)} records, no logit gets a gradient",
        Advice("", ("a loss that is taken of a part of the batch, or detached from it", "rows in which every target is "
                    "left out (-100, padding)", "weights of rows that are 0"),
               "print the loss of each row of a batch before it is averaged, and logits.grad after backward"),
        "a gradient of exactly 0; the share of rows is ours",
    )  # fmt: skip


def one_token(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """One token that is most of what is read and predicted: padding that counts, or a tokenizer that does not fit."""
    trace = finite_rows(trace, "common_token")
    share = float(np.median(trace["common_token"].values))
    if share < COMMON or int(meta["d_vocab"]) < KINDS or target(meta, trace) != NEXT:
        return
    loss = finite_rows(trace, "train_loss")["train_loss"].values[-1]
    yield Finding(
        "one-token", "watch", "One token is most of the text", int(trace["step"].values[0]), (),
        f"{share:.0%} of the tokens of a batch are one and the same, and the loss, {number(float(loss))} nats, counts "
        "them: it is small where they are predicted, whatever is known of the others",
        Advice("", ("padding that counts in the loss (labels without ignore_index=-100)", "a tokenizer whose "
                    "vocabulary does not fit the text, so that most of it is <unk>", "data that are like this"),
               "print torch.bincount(ids.flatten()) of a batch and what its largest entry says; then take the loss of "
               "the other tokens alone"),
        "the tokens of each batch, counted; the share is ours",
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
