"""Curves of a run as arrays, the dates at which they leave a band for good, and Zhai's bound by hand."""

import numpy as np
import torch

PASSAGE = """def mean(values, start=0):
    total = start
    for value in values:
        total += value
    return total / len(values)
"""
"""Read by every model for the bound, from its start on."""


def known(run, name):
    """Steps and values of a number of the trace at the records that have it, [step] and [step, ...]."""
    values = run.trace[name].values
    have = ~np.isnan(values).reshape(len(values), -1).all(1)
    return run.trace["step"].values[have], values[have]


def largest(run):
    """Steps, and the largest logit of any head there."""
    steps, values = known(run, "max_logit")
    return steps, np.nanmax(values.reshape(len(values), -1), 1)


def end(run):
    """The mean of the last three held-out losses, in nats; infinite where one is not finite, or the run diverged."""
    losses = known(run, "val_loss")[1][-3:]
    return float(losses.mean()) if run.status == "finished" and np.isfinite(losses).all() else np.inf


def entropy(run):
    """Normalised entropy at the last record, a mean over heads: 1 for rows that look everywhere alike."""
    return float(np.nanmean(known(run, "entropy_normalised")[1][-1]))


def left(steps, outside):
    """The first record from which on a curve is outside to the end; nan where it ends inside."""
    inside = np.flatnonzero(~np.asarray(outside))
    first = inside[-1] + 1 if len(inside) else 0
    return float(steps[first]) if first < len(steps) else np.nan


@torch.no_grad()
def zhai(model, text=PASSAGE):
    """The least entropy in nats that rows of each head could have by Zhai et al. 2023, theorem 3.1, [layer, head].

    sigma = scale ||W_Q W_K^T|| ||X X^T|| bounds how far scores of a row stand from their mean, X what the head reads.
    A row of T keys then has at least ln(1 + (T-1) b) + sigma sqrt(T (T-1)) b / (1 + (T-1) b) with
    b = exp(-sigma sqrt(T / (T-1))); the mean of that over T = 2 .. T.
    """
    tokens = model.to_tokens(text)[:, : model.n_ctx]
    keys = torch.arange(2, tokens.shape[1] + 1).double()
    found = []
    _, cache = model.run_with_cache(tokens)
    for layer, block in enumerate(model.blocks):
        read = block.attn_in(cache["resid_pre", layer])[0].double()
        product = block.attn.W_Q.double() @ block.attn.W_K.double().mT
        size = model.config.scale * torch.linalg.matrix_norm(product, 2) * torch.linalg.matrix_norm(read, 2) ** 2
        others = (keys - 1) * torch.exp(-size[:, None] * (keys / (keys - 1)).sqrt())
        gap = size[:, None] * (keys / (keys - 1)).sqrt()
        found.append((others.log1p() + gap * others / (1 + others)).mean(-1))
    return torch.stack(found)


def same(one, other):
    """The largest difference of any weight of two models; 0 where they are equal to the bit."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)
