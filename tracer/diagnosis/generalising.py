"""Losses that say that something else was learned than was meant: by heart, other data, or nothing but confidence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.attention_faults import CHANGES
from tracer.diagnosis.findings import Advice, Finding, finite_rows, number, since, values
from tracer.diagnosis.objective import NEXT, target, targets

if TYPE_CHECKING:
    import xarray as xr

RECORDS = 8
"""Of both losses, from which they are judged."""
RISE = 0.1
"""Of the best held-out loss, and of all that was gained on held-out text: what has to be lost again."""
MUCH = 0.5
"""Of what was gained: a loss of so much is bad."""
LEARNED, KEPT = 0.1, 0.2
"""Share of the training loss that has to be gained, and of that what the held-out loss gains at least where both are of
one kind. A model that only learns how frequent tokens are gains the same on both."""
ROSE = 1.2
"""Of the first loss, which is that of one batch and differs from others by chance."""
FALLS = 0.01
"""Share of a loss by which it falls from its second third to its last, where it still falls."""
GAIN = 0.01
"""Share of the loss of counting that has to be gained. A model that can only count ends within it: two estimates of the
frequencies from n tokens differ by about V / n nats."""
FAR = 3.0
"""Of the loss of a guess: a first loss that is larger comes of weights that start too large, and is a fault where the
whole training is spent on undoing it."""
FLAT = 0.03
"""Share of ln(classes) by which a loss has to fall that begins within EVEN of it."""
EVEN = 0.25
"""Labels that are not equally frequent have a smaller entropy, and a first guess that is not even has a larger loss."""
STEPS = 150
"""Updates before a loss is said not to fall."""
WORSE = 1.05
"""Of ln(d_vocab), the loss of a guess among all tokens."""


def _ends(loss: np.ndarray) -> tuple[float, float, float]:
    """The medians of the first, the second and the last third."""
    first, middle, last = np.array_split(loss, 3)
    return float(np.median(first)), float(np.median(middle)), float(np.median(last))


def _both(trace: xr.Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, training loss and held-out loss of the records that have both."""
    train, held = trace["train_loss"].values.astype(float), trace["val_loss"].values.astype(float)
    rows = np.isfinite(train) & np.isfinite(held)
    return trace["step"].values[rows], train[rows], held[rows]


def overfit(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A held-out loss that rises again while the training loss goes on falling."""
    if any(targets(meta, trace)):  # of which it is the consequence
        return
    steps, train, held = _both(trace)
    if len(held) < RECORDS:
        return
    last, best = max(3, round(len(held) * 0.1)), int(held.argmin())
    lowest, gained = float(held[best]), float(held[0] - held.min())
    worse = float(held[-last:].min()) - lowest
    if worse <= max(CHANGES * float(np.median(np.abs(np.diff(held)))), RISE * max(lowest, gained)):
        return
    then, now = float(np.median(train[max(0, best - 1) : best + 2])), float(np.median(train[-last:]))
    if now >= then:
        return
    row = int(since(held > lowest + RISE * max(lowest, gained)))
    yield Finding(
        "overfit", "bad" if worse > MUCH * gained else "watch", "Overfitting", int(steps[row]), (),
        f"the held-out loss was {number(lowest)} at step {int(steps[best]):,} and ends at {number(float(held[-1]))}, "
        f"while the training loss fell from {number(then)} to {number(now)}",
        Advice("", (f"too little data for so many steps (stop at step {int(steps[best]):,}, or take more data)", "too "
                    "little regularisation (dropout, weight decay, a smaller model)", "held-out rows that are unlike "
                    "those of training: another order, another tokenizer"),
               "take the snapshot of the best step; train with twice the data: if the rise begins later, it was the "
               "data; if nothing was gained before, compare a row of both sets as text"),
        "standard; the edge, a tenth of the best loss and of what was gained, is ours",
    )  # fmt: skip


def mismatch(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A training loss that falls while the held-out loss never does."""
    if any(targets(meta, trace)) or any(overfit(meta, trace)):
        return
    steps, train, held = _both(trace)
    if len(held) < RECORDS:
        return
    began, _, ends = _ends(train)
    began = max(began, float(train[0]))
    learned, kept = began - ends, float(held[0] - held.min())
    if learned < LEARNED * began or kept >= KEPT * learned or held[0] < ends:
        return
    yield Finding(
        "mismatch", "watch", "What is learned does not help on held-out text", int(steps[0]), (),
        f"the training loss fell by {number(learned)} to {number(ends)}, the held-out loss by {number(kept)} at most: "
        f"from {number(float(held[0]))} to {number(float(held[-1]))}",
        Advice("", ("training rows that are unlike the held-out ones (reversed, shuffled, another tokenizer)",
                    "a few rows that are learned by heart", "a model that sees the answer in training only"),
               "print a row of each set as text; then measure the held-out loss on rows of the training set"),
        "ours: where both are of one kind, frequencies alone help on both",
    )  # fmt: skip


def in_nats(meta: dict[str, Any], trace: xr.Dataset) -> bool:
    """Is what is trained on known to be a cross-entropy of tokens? That of a watched loop, or a loss of somebody's own,
    may be anything."""
    return not meta.get("loss") and ("config" in meta or "built_with" in meta or target(meta, trace) == NEXT)


def guessing(meta: dict[str, Any]) -> float:
    """The loss of a guess among all tokens, or among those that can come where the source of the data says so."""
    return meta.get("references", {}).get("uniform") or math.log(int(meta["d_vocab"]))


def chance(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A loss that ends above that of a guess among all tokens."""
    trace = finite_rows(trace, "train_loss")
    loss, guess = trace["train_loss"].values.astype(float), guessing(meta)
    if len(loss) < RECORDS:
        return
    _, middle, ends = _ends(loss)
    rose = ends > ROSE * loss[0]
    fell = loss[0] > WORSE * ends and middle - ends <= FALLS * ends  # and does so no more
    far = loss[0] > FAR * guess and loss.min() > guess
    if ends <= WORSE * guess or not (rose or fell or far):  # a loss that stays where it began is another finding
        return
    row = int(since(loss > guess))
    if row > len(loss) - 3:
        row = len(loss) - 1 - len(loss) // 3
    falls = far and not rose and not fell
    yield Finding(
        "chance", "watch" if falls else "bad", "Still worse than guessing" if falls else "Worse than guessing",
        int(trace["step"].values[row]), (),
        f"the training loss began at {number(loss[0])} and ends at {number(ends)} nats; a guess among all "
        f"{int(meta['d_vocab']):,} tokens has ln {int(meta['d_vocab']):,} = {guess:.2f}",
        Advice("", ("steps that are too large, so that the model is sure of wrong tokens", "logits that start too "
                    "large", "targets that have nothing to do with the inputs"),
               "train on with a tenth of the learning rate: if the loss falls below ln(d_vocab), it was the steps; "
               "then print the largest logit at step 0"),
        "ln(d_vocab) is the loss of a uniform guess; the 5 % above it is ours",
    )  # fmt: skip


def flat(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A classifier's loss that stays at that of a guess among its classes."""
    trace = finite_rows(trace, "train_loss")
    loss, steps, guess = trace["train_loss"].values.astype(float), trace["step"].values, math.log(meta["classes"])
    if len(loss) < RECORDS or steps[-1] < STEPS or float(np.abs(loss - guess).max()) > EVEN * guess:
        return
    first, _, last = _ends(loss)
    if max(first, float(loss[0])) - last > FLAT * guess:
        return
    yield Finding(
        "flat", "watch", "Learned nothing: no better than guessing the class", int(steps[0]), (),
        f"the training loss was {number(first)} nats in the first third of the records and is {number(last)} in the "
        f"last; a guess among {meta['classes']} classes has ln {meta['classes']} = {guess:.2f}",
        Advice("", ("labels that do not belong to the inputs (shuffled, read from another file or order)", "steps that "
                    "are too small or too large", "inputs that do not tell the class"),
               "print a few inputs with their labels; then train on ten examples alone: a model that cannot learn "
               "those by heart is not connected to its loss"),
        "ln(classes) is the loss of a uniform guess; both shares are ours",
    )  # fmt: skip


def trained_below(trace: xr.Dataset, level: float) -> bool:
    """Did the training loss end clearly below this level, whatever the held-out loss did?"""
    train = values(trace, "train_loss")
    if train is None or len(train := train[np.isfinite(train)]) < 3:
        return False
    return _ends(train)[2] < level
