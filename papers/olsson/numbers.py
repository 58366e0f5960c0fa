"""What a model makes of tokens that come again: how much later ones gain by their context, and how many it copies."""

import numpy as np
import torch

import tracer

SYMBOLS, LENGTH, ROWS = 64, 64, 512
EARLY, LATE = slice(2, 6), slice(56, 64)
"""Of the losses of a row: of tokens 3 to 6, which stand in the first block, and of the last 8, which never do."""
SHORTEST, LONGEST = 8, 30
"""Tokens of a block."""


def repeated(repeat=True):
    """ROWS fixed rows [row, LENGTH + 1], and where the second copy stands but for its first token, as booleans.

    Behind the start token, 0, a block of different symbols comes again and again; lengths are spread evenly over the
    rows. Without `repeat` no symbol stands twice in a row.
    """
    rng = np.random.default_rng((2209, 11895))
    blocks = rng.permuted(np.tile(np.arange(1, SYMBOLS + 1), (ROWS, 1)), axis=1)
    lengths = SHORTEST + np.arange(ROWS)[:, None] % (LONGEST - SHORTEST + 1)
    at = np.arange(LENGTH)
    rows = np.zeros((ROWS, LENGTH + 1), np.int64)
    rows[:, 1:] = np.take_along_axis(blocks, at % lengths if repeat else np.tile(at, (ROWS, 1)), 1)
    return rows, (at > lengths) & (at < 2 * lengths)


AGAIN, SECOND = repeated()
NEW, _ = repeated(False)


def icl(losses):
    """The in-context learning score of losses [..., row, LENGTH] in nats, [...]: below 0, context helps."""
    return losses[..., LATE].mean((-2, -1)) - losses[..., EARLY].mean((-2, -1))


@torch.no_grad()
def copied(model, rows=AGAIN):
    """The share of the second copy that is predicted; of NEW, how many tokens at the same places are."""
    said = model(torch.from_numpy(rows[:, :-1])).argmax(-1).numpy()
    return float((said == rows[:, 1:])[SECOND].mean())


def scores(model, sets=(), frozen=False, rows=AGAIN):
    """The in-context learning score, whole and with each set of heads writing nothing, float64 [1 + set].

    `frozen`: all patterns stay what they are in the whole model (the paper's pattern-preserving ablation).
    """
    return icl(tracer.ablate.losses(model, torch.from_numpy(rows), [[], *sets], "zero", frozen=frozen)).double().numpy()


def left(model, sets, frozen):
    """For each set of heads, the share of the score that is there without them."""
    found = scores(model, sets, frozen)
    return found[1:] / found[0]
