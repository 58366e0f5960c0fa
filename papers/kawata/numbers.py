"""What a model makes of copies: how many of their tokens it predicts, and what it predicts instead."""

import numpy as np
import torch

import tracer

from .copies import looked_back, tests, wanted

ROWS = tests()
LABELS = {
    "near": "Copies at distance 20", "shifted": "Copies at distance 20, behind filler",
    "new": "Copies at distances 41 to 53", "broken": "The same places, nothing repeats",
}  # fmt: skip


@torch.no_grad()
def predicted(model, rows, begins):
    """The likeliest token at each place of the second copy but the first, [n, BLOCK - 1]."""
    logits = model(torch.from_numpy(rows[:, :-1]))
    return np.take_along_axis(logits.argmax(-1).numpy(), wanted(begins) - 1, 1)


def accuracy(model, name):
    """The share of right predictions in a test."""
    rows, begins = ROWS[name]
    return float((predicted(model, rows, begins) == np.take_along_axis(rows, wanted(begins), 1)).mean())


def accuracies(model, step):
    return {
        f"copied_{name}": tracer.scalar(accuracy(model, name), label=label, unit="share", range=(0, 1))
        for name, label in LABELS.items()
    }


def modes(model, distances, name="new"):
    """What is predicted on the rows of a test, as shares of all predictions that sum to 1.

    right: the token that is copied. back: a token that stands at one of `distances` back, as a shortcut would say.
    row: another token of the row so far. elsewhere: a token that the row has not had.
    """
    rows, begins = ROWS[name]
    said, at = predicted(model, rows, begins), wanted(begins)
    right = said == np.take_along_axis(rows, at, 1)
    back = np.any([said == looked_back(rows, begins, one) for one in distances], 0) & ~right
    before = np.arange(rows.shape[1]) < at[..., None]
    row = ((rows[:, None] == said[..., None]) & before).any(-1) & ~right & ~back
    shares = {"right": right, "back": back, "row": row, "elsewhere": ~(right | back | row)}
    return {which: float(share.mean()) for which, share in shares.items()}


@torch.no_grad()
def token_before(model, first, last):
    """The most that a head of layer 0 attends to the token before, on mean over queries at first to last."""
    _, cache = model.run_with_cache(torch.from_numpy(ROWS["near"][0][:, :-1]))
    before = cache["pattern", 0].diagonal(-1, 2, 3)  # [batch head pos], from query 1 on
    return float(before[..., first - 1 : last].mean((0, 2)).max())
