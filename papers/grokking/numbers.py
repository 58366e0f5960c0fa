"""What a model makes of all pairs: its logits and attention as images, and what it loses without some of its parts."""

import numpy as np
import torch

import tracer

from .sums import PLACE, P, Shuffled, Sums, row_of, trained_on
from .waves import key_frequencies, shares

PATTERN, POST = "blocks.0.attn.hook_pattern", "blocks.0.mlp.hook_post"
A, B = np.divmod(np.arange(P * P), P)
LABELS = {
    "right_train": "Right answers, trained pairs", "right_test": "Right answers, held-out pairs",
    "loss_train": "Loss, trained pairs", "loss_test": "Loss, held-out pairs",
    "size_of_weights": "Norm of all weights", "n_key": "Key frequencies of the logits",
    "one_wave": "Attention from = to a: share that its best frequency explains",
    "which_wave": "Attention from = to a: its best frequency",
}  # fmt: skip
UNITS = {"size_of_weights": "", "n_key": "frequencies", "which_wave": "frequency"}


def answers(source):
    """The answers of a source, [P, P]."""
    return source.answers(A, B).reshape(P, P)


def read(model):
    """The tokens a, b and "=" of all pairs, [P * P, 3]."""
    return torch.from_numpy(row_of(A, B, A)[:, : PLACE + 1]).to(next(model.parameters()).device)


@torch.no_grad()
def logits_of(model, hooks=()):
    """Logits of all pairs without that of "=", [P, P, answer], in float64."""
    logits = model.run_with_hooks(read(model), fwd_hooks=list(hooks))[:, PLACE, :P]
    return logits.double().cpu().numpy().reshape(P, P, P)


@torch.no_grad()
def attention(model):
    """The attention of each head from "=" to a, as images [head, P, P]."""
    _, cached = model.run_with_cache(read(model))
    return cached["pattern", 0][:, :, PLACE, 0].T.double().cpu().numpy().reshape(-1, P, P)


@torch.no_grad()
def neurons(model):
    """What the MLP's neurons give at "=", as images [neuron, P, P]."""
    _, cached = model.run_with_cache(read(model))
    return cached[POST][:, PLACE].T.double().cpu().numpy().reshape(-1, P, P)


def loss_of(logits, wanted):
    """The loss of each pair's wanted answer in nats, [P, P], of logits [P, P, answer]."""
    logits = logits - logits.max(-1, keepdims=True)
    return np.log(np.exp(logits).sum(-1)) - of_answers(logits, wanted)


def of_answers(logits, wanted):
    """The logit of each pair's wanted answer, [P, P], of logits [P, P, answer]."""
    return np.take_along_axis(logits, wanted[..., None], -1)[..., 0]


def right(logits, wanted, where):
    """The share of pairs whose wanted answer has the largest logit."""
    return float((logits.argmax(-1) == wanted)[where].mean())


def of_pairs(model, source):
    """{name: number} of a model at a record, as LABELS says."""
    logits, images, wanted, train = logits_of(model), attention(model), answers(source), trained_on()
    waves, losses = shares(images), loss_of(logits, wanted)
    found = {
        "right_train": right(logits, wanted, train), "right_test": right(logits, wanted, ~train),
        "loss_train": losses[train].mean(), "loss_test": losses[~train].mean(),
        "size_of_weights": torch.stack([one.square().sum() for one in model.parameters()]).sum().sqrt(),
        "n_key": len(key_frequencies(logits)),
        "one_wave": waves.max(-1)[None], "which_wave": 1.0 + np.nan_to_num(waves).argmax(-1)[None],
    }  # fmt: skip
    return {
        name: tracer.scalar(
            value, label=LABELS[name], unit=UNITS.get(name, "nats" if name.startswith("loss") else "share")
        )
        for name, value in found.items()
    }


def of_sums(model, step):
    return of_pairs(model, Sums)


def of_shuffled(model, step):
    return of_pairs(model, Shuffled)


def headless(model, heads):
    """The mean loss of all pairs with these heads writing nothing, in nats."""
    rows = torch.from_numpy(row_of(A, B, answers(Sums).ravel())[:, : PLACE + 2])
    return float(tracer.ablate.losses(model, rows, [heads], "zero")[0, :, PLACE].mean())


def silent(which):
    """A hook that has these neurons give nothing."""

    def hook(post, hook):
        post = post.clone()
        post[..., which] = 0
        return post

    return [(POST, hook)]


def alike(pattern, hook):
    """A hook that has every head attend from "=" to its three tokens alike."""
    pattern = pattern.clone()
    pattern[:, :, PLACE] = 1 / (PLACE + 1)
    return pattern


def right_alike(model):
    """The share of held-out pairs that are right where heads attend so."""
    return right(logits_of(model, [(PATTERN, alike)]), answers(Sums), ~trained_on())


def right_without(model, which):
    """The share of held-out pairs that are right without these neurons."""
    return right(logits_of(model, silent(which)), answers(Sums), ~trained_on())


def structured(model, least=0.85):
    """The neurons that one frequency explains by `least`, the best explained first."""
    explained = np.nan_to_num(shares(neurons(model)).max(-1))
    order = np.argsort(-explained)
    return order[explained[order] >= least]
