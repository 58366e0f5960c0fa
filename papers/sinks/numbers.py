"""Where heads look on 64 fixed rows, at symbols and at triggers apart, and what the start token carries."""

import numpy as np
import torch

import tracer

from .attentions import sigmoids
from .rows import LENGTH, Backcopy, Plain, is_trigger

ROWS, FIRST = 64, 16
"""Rows; the first query that counts, as earlier ones have few keys beside the start token."""
LABELS = {
    "start_symbol": "Attention on the start token, at symbols", "mass_symbol": "Attention on all tokens, at symbols",
    "start_trigger": "Attention on the start token, at triggers", "loss_symbol": "Loss behind symbols",
    "place_symbol": "Attention on place 0 without a start token", "loss_trigger": "Loss behind triggers",
    "start_value": "Value of the start token / others'", "start_stream": "Stream of the start token / others'",
}  # fmt: skip
_kept = {}


def fixed(source):
    """Rows [ROWS, LENGTH + 1] that no training has; made once."""
    if source not in _kept:
        _kept[source] = source(LENGTH, 0).rows(np.random.default_rng((2410, 13835, 2)), ROWS)
    return _kept[source]


def kinds(rows):
    """Which queries are symbols, and which are triggers, [row, LENGTH] each, from FIRST on."""
    trigger = torch.from_numpy(is_trigger(rows[:, :-1]))
    late = torch.arange(LENGTH) >= FIRST
    return ~trigger & late, trigger & late


def numbers(model, source, weights=lambda pattern: pattern, values=slice(None)):
    """Losses in nats, and of each head [layer, head] its attention and values; {name: value}.

    `weights`: what the head multiplies values by, of the pattern that the model has. `values`: which of them.
    """
    rows = fixed(source)
    symbol, trigger = kinds(rows)
    tokens = torch.from_numpy(rows)
    losses, patterns, norms, stream = looked(model, tokens)
    headless = looked(model, tokens[:, 1:])[1]  # every place one earlier, a symbol at place 0
    start, mass = [], []
    for pattern in patterns:
        weight = weights(pattern)
        start.append(weight[..., 0].transpose(0, 1))
        mass.append(weight.sum(-1).transpose(0, 1))
    at_place = [weights(pattern)[..., 0].transpose(0, 1) for pattern in headless]
    lengths = [norm[..., values].norm(dim=-1) for norm in norms]
    found = {
        "loss_symbol": losses[symbol].mean(), "loss_trigger": mean_at(losses, trigger),
        "start_symbol": torch.stack([mean_at(one, symbol) for one in start]),
        "start_trigger": torch.stack([mean_at(one, trigger) for one in start]),
        "mass_symbol": torch.stack([mean_at(one, symbol) for one in mass]),
        "place_symbol": torch.stack([mean_at(one, symbol[:, 1:]) for one in at_place]),
        "start_value": torch.stack([one[:, 0].mean(0) / one[:, 1:].mean((0, 1)) for one in lengths]),
        "start_stream": stream[:, 0].mean() / stream[:, 1:].mean(),
    }  # fmt: skip
    units = {"loss_symbol": "nats", "loss_trigger": "nats", "start_value": "", "start_stream": ""}
    return {
        name: tracer.scalar(value, label=LABELS[name], unit=units.get(name, "share")) for name, value in found.items()
    }


@torch.no_grad()
def looked(model, tokens):
    """Losses [row, pos], and of each layer patterns and values; the length of the stream at the end, [row, pos]."""
    logits, cache = model.run_with_cache(tokens[:, :-1])
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    layers = range(model.n_layers)
    stream = cache["resid_post", model.n_layers - 1].norm(dim=-1)
    return losses, [cache["pattern", one] for one in layers], [cache["v", one] for one in layers], stream


def mean_at(values, where):
    """The mean over the places [row, pos] that are named, of [..., row, pos]; nan of none."""
    return values[..., where].mean(-1) if where.any() else values.new_full(values.shape[:-2], torch.nan)


def on_backcopy(model, step):
    return numbers(model, Backcopy)


def on_plain(model, step):
    return numbers(model, Plain)


def on_sigmoid(model, step):
    return numbers(model, Backcopy, sigmoids)


def on_gate(model, step):
    return numbers(model, Backcopy, values=slice(model.blocks[0].attn.W_V.shape[2] // 2))


def rests(model, layer=0, head=0):
    """What of a head's pattern is at symbols, and at triggers, on the start token or the query's own, and on all
    tokens: ((resting, all) at symbols, the same at triggers)."""
    rows = fixed(Backcopy)
    pattern = looked(model, torch.from_numpy(rows))[1][layer][:, head]
    resting = pattern[..., 0] + pattern.diagonal(dim1=-2, dim2=-1)
    return tuple(
        (float(resting[where].mean()), float(pattern.sum(-1)[where].mean())) for where in kinds(rows)
    )  # fmt: skip


def costs(model, heads):
    """What the loss rises by with these heads writing nothing, at triggers and at symbols, in nats."""
    rows = fixed(Backcopy)
    found = tracer.ablate.losses(model, torch.from_numpy(rows), [[], heads], "zero")
    symbol, trigger = kinds(rows)
    rise = (found[1] - found[0]).cpu()
    return float(rise[trigger].mean()), float(rise[symbol].mean())
