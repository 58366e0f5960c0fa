"""How far each part of the circuit is, on 256 fixed rows; what heads of layer 1 give together and alone."""

import numpy as np
import torch

import tracer

from .clamps import match, plain, right
from .exemplars import L1, L2, QUERY, X1, X2

ROWS = 256
LABELS = {
    "previous_item": "A: attention from a label to its item",
    "match": "B: attention on the right label, of that on both",
    "copied": "C: chance of the right label where all heads of layer 1 look at it",
    "said_loss": "Loss with what is held",
}


def fixed(source, **which):
    """The same rows at every call, [ROWS, 6]."""
    return torch.from_numpy(source(QUERY + 1, 0).drawn(np.random.default_rng((2404, 7129, 2)), ROWS, **which))


def numbers(model, source, loss):
    """{name: number, or array of [layer, head]}; `loss` is what the run is trained on."""
    rows = fixed(source)
    tokens = rows[:, :-1]
    logits, cache = model.run_with_cache(tokens)
    layers = [cache["pattern", one] for one in range(2)]
    asked = torch.stack([one[:, :, QUERY, [L1, L2]] for one in layers])  # [layer row head 2]
    on_right = asked.gather(3, right(tokens)[None, :, None, None].expand(*asked.shape[:3], 1))[..., 0]
    batch = tracer.LossBatch(tokens, rows[:, 1:], torch.arange(QUERY + 1) == QUERY, 0, model)
    copied = at_query(model, rows, [("blocks.1.attn.hook_pattern", held_at_right(tokens))]).softmax(-1)
    found = {
        "previous_item": torch.stack([one[:, :, [L1, L2], [X1, X2]].mean((0, 2)) for one in layers]),
        "match": (on_right / asked.sum(-1)).mean(1),
        "copied": copied.gather(1, rows[:, -1:]).mean(),
        "said_loss": loss(logits, batch)[:, QUERY].mean(),
    }  # fmt: skip
    return {name: tracer.scalar(value, label=LABELS[name], unit="nats" if name == "said_loss" else "share")
            for name, value in found.items()}  # fmt: skip


def on(source, loss=None):
    """These numbers, of this source's rows and with this loss; None: that of the model's own output."""

    def parts(model, step):
        return numbers(model, source, loss or plain)

    return parts


@torch.no_grad()
def at_query(model, rows, hooks=()):
    """Logits at the query, [row d_vocab]."""
    return model.run_with_hooks(rows[:, :-1], fwd_hooks=hooks)[:, QUERY]


def held_at_right(tokens):
    """B held in every head of layer 1, as a hook."""

    def held(pattern, hook):
        heads = [tracer.ClampedHead(1, head, tokens, pattern[:, head], pattern) for head in range(pattern.shape[1])]
        return torch.stack([match(one) for one in heads], 1)

    return held


def right_share(model, rows):
    """The share of rows whose right label is the likeliest token."""
    return float((at_query(model, rows).argmax(-1) == rows[:, -1]).float().mean())


def with_heads(model, rows, heads):
    """With these heads of layer 1 alone: how far the right label's logit is above the other's, on mean; share right."""

    def off(z, hook):
        z[:, :, [head for head in range(z.shape[2]) if head not in heads]] = 0

    logits = at_query(model, rows, [("blocks.1.attn.hook_z", off)])
    two = logits.gather(1, rows[:, [L1, L2]])
    which = right(rows[:, :-1])[:, None]
    lead = two.gather(1, which) - two.gather(1, 1 - which)
    return float(lead.mean()), float((logits.argmax(-1) == rows[:, -1]).float().mean())


def one_by_one(model, rows):
    """What `with_heads` says of the layer with its heads switched off one after another, the best alone first, from all
    on to all off; and the leads of each alone, the best first."""
    alone = {head: with_heads(model, rows, [head])[0] for head in range(model.n_heads)}
    order = sorted(alone, key=lambda head: -alone[head])
    return [with_heads(model, rows, order[off:]) for off in range(len(order) + 1)], [alone[head] for head in order]
