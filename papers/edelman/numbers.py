"""What a model does on 256 fixed rows: how far it is from three strategies, and whether its context's order matters."""

import numpy as np
import torch

import tracer

from .chains import Dirichlet, DoublyStochastic, Iid, strategies

ROWS = 256
_kept = {}


def fixed(chains, n_ctx):
    """Rows of these chains, their chances, and what the strategies say of them; made once."""
    if (chains, n_ctx) not in _kept:
        source = chains(n_ctx, 0)
        rows, after = source.with_chances(np.random.default_rng([2402, 11004, 2]), ROWS)
        _kept[chains, n_ctx] = rows, after, strategies(rows)
    return _kept[chains, n_ctx]


def chance_of_two(model, rows):
    """The model's chance of symbol 2 beside that of symbol 1, at each position; float64."""
    logits = model(torch.from_numpy(rows[:, : model.n_ctx])).double()
    return (logits[..., 2] - logits[..., 1]).sigmoid().numpy()


def divergence(p, q):
    """KL(p || q) in nats, of chances of one of two."""
    p, q = np.clip(p, 1e-12, 1 - 1e-12), np.clip(q, 1e-12, 1 - 1e-12)
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


def cross_entropy(truth, said):
    """Expected loss in nats where the truth is the chain's own row."""
    said = np.clip(said, 1e-12, 1 - 1e-12)
    return -(truth * np.log(said) + (1 - truth) * np.log(1 - said))


def true_chances(rows, after):
    """The chain's own chance of symbol 2 at each position but the first, which follows no symbol."""
    return np.take_along_axis(after, rows[:, 1:-1] - 1, 1)


def shuffled(rows):
    """The same rows with all symbols but the last two in another order: what followed what is lost, counts are not."""
    order = np.random.default_rng(7).permuted(np.tile(np.arange(1, rows.shape[1] - 2), (len(rows), 1)), axis=1)
    mixed = rows.copy()
    mixed[:, 1:-2] = np.take_along_axis(rows, order, 1)
    return mixed


def numbers(model, chains):
    """Mean KL(model || strategy) over rows and positions, and expected losses, in nats."""
    rows, after, by = fixed(chains, model.n_ctx)
    said, truth = chance_of_two(model, rows), true_chances(rows, after)
    found = {f"kl_{name}": divergence(said, chance).mean() for name, chance in by.items()}
    found["excess"] = (cross_entropy(truth, said[:, 1:]) - cross_entropy(truth, by["bigram"][:, 1:])).mean()
    last = cross_entropy(truth[:, -1], chance_of_two(model, shuffled(rows))[:, -1]).mean()
    found["shuffled_rise"] = last - cross_entropy(truth[:, -1], said[:, -1]).mean()
    found["counting_rise"] = (
        cross_entropy(truth[:, -1], by["unigram"][:, -1]) - cross_entropy(truth[:, -1], by["bigram"][:, -1])
    ).mean()
    labels = {
        "kl_uniform": "KL to uniform", "kl_unigram": "KL to counting symbols (unigram)",
        "kl_bigram": "KL to counting what followed (bigram)", "excess": "Loss above the bigram strategy's",
        "shuffled_rise": "Rise of the last loss, context shuffled", "counting_rise": "Unigram above bigram, last loss",
    }  # fmt: skip
    return {name: tracer.scalar(float(value), label=labels[name], unit="nats") for name, value in found.items()}


def on_dirichlet(model, step):
    return numbers(model, Dirichlet)


def on_doubly_stochastic(model, step):
    return numbers(model, DoublyStochastic)


def on_iid(model, step):
    return numbers(model, Iid)
