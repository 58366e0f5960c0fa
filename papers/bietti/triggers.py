"""Rows of a chain of bigrams that is the same for all, but after a trigger comes the trigger's output of this row."""

import numpy as np
import torch

V, N_CTX, TRIGGERS = 40, 64, (1, 2, 3, 4, 5)
ORDINARY = np.array([t for t in range(V) if t not in TRIGGERS])

_dice = np.random.default_rng(230600802)
_weights = np.exp(2.2 * _dice.standard_normal((V, V)))
_weights[:, list(TRIGGERS)] = 0
TABLE = 0.55 * _weights / _weights.sum(1, keepdims=True)  # [token next]
TABLE[:, list(TRIGGERS)] = 0.09
_CUMULATED = TABLE.cumsum(1)
FIXED = _dice.choice(ORDINARY, len(TRIGGERS), replace=False)


class Redrawn:
    """Each row draws an output for each trigger."""

    d_vocab = V
    entropy = float(-(TABLE * np.log(TABLE.clip(1e-12))).sum(1)[ORDINARY].mean())
    references = {"uniform": float(np.log(V)), "bigrams": entropy}

    def __init__(self, n_ctx, seed):
        self.n_ctx, self.seed = n_ctx, seed

    def outputs(self, rng, n):
        return rng.choice(ORDINARY, (n, len(TRIGGERS)))

    def rows(self, rng, n):
        outputs = self.outputs(rng, n)
        dice = rng.random((n, self.n_ctx))
        rows = np.empty((n, self.n_ctx + 1), dtype=np.int64)
        rows[:, 0] = rng.choice(ORDINARY, n)
        for j in range(self.n_ctx):
            now = rows[:, j]
            rows[:, j + 1] = np.minimum((dice[:, j, None] > _CUMULATED[now]).sum(1), V - 1)
            for i, trigger in enumerate(TRIGGERS):
                rows[now == trigger, j + 1] = outputs[now == trigger, i]
        return rows

    def held_out(self, n):
        return self.rows(np.random.default_rng(10**6), n)


class Fixed(Redrawn):
    """All rows have the same outputs."""

    def outputs(self, rng, n):
        return np.tile(FIXED, (n, 1))


def kinds(rows):
    """Which targets are which, [batch n_ctx] each: after no trigger, a trigger's first output, one that was there."""
    now = rows[:, :-1]
    after = np.isin(now, TRIGGERS)
    before = np.stack([[(row[:j] == row[j]).any() for j in range(len(row))] for row in now])
    return {"bigram": ~after, "first": after & ~before, "again": after & before}


def sample(source, n=48):
    """The same rows at every call."""
    return source(N_CTX, 0).rows(np.random.default_rng(7), n)


def targets(rows):
    """What a head may find, as (sequence, query, key)."""
    found = {"output": [], "previous": [], "other": []}
    for s, row in enumerate(rows[:, :-1]):
        for q in range(1, len(row)):
            if row[q - 1] in TRIGGERS:
                found["previous"].append((s, q, q - 1))
            if row[q] in TRIGGERS:
                same = [k + 1 for k in range(q) if row[k] == row[q]]
                others = [k + 1 for k in range(q) if row[k] in TRIGGERS and row[k] != row[q]]
                if same and others:  # both, so that the two are of the same queries
                    found["output"] += [(s, q, k) for k in same]
                    found["other"] += [(s, q, k) for k in others if k not in same]
    return found


def losses_on(source):
    """A number of each kind of targets, on fixed rows: their mean loss in nats."""
    rows = sample(source)
    tokens = torch.from_numpy(rows)
    masks = {name: torch.from_numpy(mask) for name, mask in kinds(rows).items()}

    def losses(model, step):
        logits = model(tokens[:, :-1].to(model.embed.W_E.device)).cpu()
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        right = (logits.argmax(-1) == tokens[:, 1:]).float()
        found = {f"loss_{name}": loss[mask].mean() for name, mask in masks.items()}
        return found | {"accuracy_again": right[masks["again"]].mean()}

    return losses
