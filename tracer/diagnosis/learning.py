"""What is not learned: weights that never move while others do, and a loss that is no better than counting tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer.diagnosis.causes import free
from tracer.diagnosis.findings import Advice, Finding, finite_rows, number, since, values
from tracer.diagnosis.generalising import GAIN, WORSE, chance, guessing, trained_below
from tracer.diagnosis.objective import NEXT, SMALL, target
from tracer.diagnosis.still import LOW, blocks
from tracer.measures.aliases import Head

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 3
"""Records, at least, through which a weight does not move."""
ENOUGH = 9
"""Records of a loss from which it is judged: fewer are a beginning."""
ROUNDING = 1e-6
"""Where all updates are smaller, those of weights near 1 round to 0 in float32, and that says nothing."""
PAIRS = 0.05
"""Share of the loss of counting that counting pairs or copying gains, from which there is something to learn."""
ALIKE = 0.15
"""Share by which the training loss may differ from that of the next token at all places, where it is about all of them.
Shuffled targets are as frequent as the right ones; padding that is left out is not."""
NEAR = 1.1
"""Of the loss of counting: above, not even the frequencies were learned, which any data has."""
LEARNED_NOTHING = "Learned nothing but how frequent tokens are"
AT_LEVEL = Advice(
    "", (
        "data whose context tells nothing about the next token", "inputs that are not those of the targets (a shift, a "
        "shuffle, a detached embedding)", "a plateau before something is learned", "steps that are too large or too "
        "small",
    ),
    "train a model of the same size on a corpus that is known to work: if it learns there, it is the data; else train "
    "on for a few times as long, then with a third and three times the learning rate",
)  # fmt: skip
ABOVE = Advice(
    "", ("steps that are too large", "steps that are too small or too few", "logits that do not depend on what is "
         "learned (a detached output, targets of another tokenizer)"),
    "not even frequencies were learned: train on with a third and with three times the learning rate, and print the "
    "gradient of W_U",
)  # fmt: skip


def frozen(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Blocks that ask for no gradient; tensors, or parts of them that belong to a head, whose update is exactly 0 while
    others move."""
    yield from blocks(meta, trace)
    trace = trace.isel(step=(trace["update_ratio"].values > ROUNDING).any(axis=1))
    ratios, by_head = trace["update_ratio"].values, values(trace, "head_update_ratio")
    last, names = len(ratios) - SHOWN, [str(name) for name in trace["param"].values]
    if last < 0:
        return
    first = since(ratios == 0)
    still = {name: int(row) for name, row in zip(names, first, strict=True) if row <= last}
    if meta.get("dtype") in LOW:  # what rounds away there is another finding, and a gain of 1 in bfloat16 is none
        still = {
            name: row for name, row in still.items() if not trace["grad_norm"].values[-SHOWN:, names.index(name)].any()
        }
    parts: dict[Head, int] = {}
    if by_head is not None:
        known = _excused(meta, trace)
        rows = since((by_head == 0).any(axis=-1))
        parts = {(i, j): int(rows[i, j]) for i, j in np.ndindex(*rows.shape) if rows[i, j] <= last and not known[i, j]}
        quiet = [f"blocks.{i}.{part}." for i in np.flatnonzero(known.all(axis=1)) for part in ("attn", "ln1")]
        still = {name: row for name, row in still.items() if not name.startswith(tuple(quiet))}
    if not still and not parts:
        return
    grads = trace["grad_norm"].values[-SHOWN:, [names.index(name) for name in still]]
    what = ", ".join([*still][:4]) + (f" and {len(still) - 4} more" if len(still) > 4 else "")
    yield Finding(
        "frozen", "watch", "Weights that never move",
        int(trace["step"].values[min([*still.values(), *parts.values()])]), tuple(parts),
        f"the update of {what or 'a matrix of each of these heads'} is exactly 0 at every record since then, while "
        "other weights move" + (f"; the gradient is {'not ' if grads.any() else ''}0" if still else ""),
        _why_frozen(bool(grads.any()) if still else None), "an update of exactly 0; no threshold",
    )  # fmt: skip


def _excused(meta: dict[str, Any], trace: xr.Dataset) -> np.ndarray:
    """Heads [layer head] whose stillness is explained: a clamp holds them, or they write nothing."""
    norms = trace["head_weight_norm"].values[-1]
    return (norms[..., 2:] == 0).any(-1) | ~free(meta, np.ones(norms.shape[:2], bool))


def _why_frozen(has_gradient: bool | None) -> Advice:
    without = (
        "requires_grad that is off, on purpose or not",
        "a way to the loss that is cut (detach, no_grad, a factor of 0)",
    )
    withheld = (
        "an optimiser that was not given them, or a learning rate of 0",
        "updates that round to 0 in low precision", "something that puts the old values back",
    )  # fmt: skip
    causes = {False: without, True: withheld, None: without + withheld}[has_gradient]
    return Advice("", causes, (
        "print `p.requires_grad`, `p.grad` and `p.dtype` of them, and look for them in `optimizer.param_groups`"
    ))  # fmt: skip


def unigram(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """A loss that ends no better than the frequencies of the tokens alone would do, and falls no more.

    The held-out one of our runs, and the training loss of watched ones beside that of counting on the same batches.
    """
    level = meta.get("references", {}).get("unigram")
    if not level:
        yield from _counting(meta, trace)
        return
    if trained_below(trace, (1 - GAIN) * level):  # more than that was learned, by heart
        return
    trace = finite_rows(trace, "val_loss")
    loss = trace["val_loss"].values
    if len(loss) < ENOUGH or loss[len(loss) // 2] - loss[-1] > GAIN * level:  # it still falls
        return
    first = since(loss > (1 - GAIN) * level)
    if first > len(loss) - max(2, len(loss) // 4):
        return
    yield Finding(
        "unigram", "watch", LEARNED_NOTHING, int(trace["step"].values[first]), (),
        f"the held-out loss ends at {number(loss[-1])} nats and falls no more; whoever knows only how frequent each "
        f"token is gets {number(level)}",
        AT_LEVEL if loss[-1] < NEAR * level else ABOVE,
        "the cross-entropy of token frequencies in the training rows on the held-out ones; the share is ours",
    )  # fmt: skip


def _known(trace: xr.Dataset, name: str, rows: np.ndarray) -> np.ndarray:
    found = values(trace, name)
    return np.zeros(0) if found is None else found[rows][np.isfinite(found[rows])]


def _counting(meta: dict[str, Any], trace: xr.Dataset) -> Iterator[Finding]:
    """Of a watched loop, batch by batch, so that what differs between batches is in both losses."""
    rows = np.isfinite(trace["train_loss"].values) & np.isfinite(trace["unigram_loss"].values)
    steps, loss, count = (trace[name].values[rows] for name in ("step", "train_loss", "unigram_loss"))
    if len(loss) < ENOUGH or target(meta, trace) not in (None, NEXT):
        return
    level = float(count.mean())
    seen = trace["shifted_loss"].values[rows, NEXT] if "shifted_loss" in trace else np.full(len(loss), np.nan)
    away = (np.abs(seen - loss) / np.maximum(np.abs(loss), SMALL))[np.isfinite(seen)]
    if not len(away) or float(np.median(away)) >= ALIKE:  # it is about some of the tokens: not the padding
        return
    high = meta.get("d_vocab") and float(np.median(loss[-3:])) > WORSE * guessing(meta)
    if high and (target(meta, trace) is None or any(chance(meta, trace))):  # no mean over tokens, or said already
        return
    known = {"bigram_loss": "counting pairs of tokens", "copy_loss": "repeating what followed the token before"}
    others = {name: float(np.mean(x)) for name in known if (x := _known(trace, name, rows)).size}
    best = min(others, key=lambda name: others[name], default=None)
    if best is None or others[best] > (1 - PAIRS) * level:  # nothing simple to learn, or all there is
        return
    above = loss - count
    middle, last = above[len(above) // 3 : 2 * len(above) // 3], above[2 * len(above) // 3 :]
    unsure = 2 * float(last.std(ddof=1)) / len(last) ** 0.5
    if float(last.mean()) - unsure <= -GAIN * level or float(middle.mean() - last.mean()) > GAIN * level:
        return
    first = min(int(since(above > -GAIN * level)), 2 * len(above) // 3)
    ends = float(loss[-len(last) :].mean())
    yield Finding(
        "unigram", "watch", LEARNED_NOTHING, int(steps[first]), (),
        f"the training loss ends at {number(ends)} nats and falls no more; whoever knows only how frequent each token "
        f"is gets {number(level)} on the same batches; {known[best]} gets {number(others[best])}",
        AT_LEVEL if ends < NEAR * level else ABOVE,
        "the cross-entropy of each batch under the frequencies in those before it; the share is ours",
    )  # fmt: skip
