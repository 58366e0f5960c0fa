"""Sums of two numbers modulo a prime as rows of tokens, two fifths of them to be trained on; and the loss of answers.

A row is a, b, "=", their sum, "=". The answer alone counts, and it is predicted at the first "=", which sees a, b and
itself. What stands behind is there because a record needs four tokens at least.
"""

import numpy as np
import torch.nn.functional as F

P = 47
"""The modulus: numbers are the tokens 0 to P - 1, and P is "="."""
PLACE = 2
"""The place at which the answer is predicted."""
SPLIT = (2301, 5217)
N_TRAIN = P * P * 2 // 5
"""Two fifths of all pairs; the split is the same for every seed, so that seeds differ in their first weights alone."""


def pairs():
    """All pairs in an order of their own, a and b [P * P]: the first N_TRAIN are trained on."""
    return np.divmod(np.random.default_rng(SPLIT).permutation(P * P), P)


def trained_on():
    """Which pairs are trained on, [P, P] by a and b."""
    found = np.zeros((P, P), bool)
    a, b = pairs()
    found[a[:N_TRAIN], b[:N_TRAIN]] = True
    return found


class Sums:
    """Every batch is the whole training set, in one order."""

    d_vocab, n_train_rows, references = P + 1, N_TRAIN, {"uniform": float(np.log(P))}

    def __init__(self, n_ctx, seed):
        a, b = pairs()
        self.train, self.test = np.split(row_of(a, b, self.answers(a, b)), [N_TRAIN])

    @staticmethod
    def answers(a, b):
        return (a + b) % P

    def rows(self, rng, n):
        return np.resize(self.train, (n, 5))

    def held_out(self, n):
        return np.resize(self.test, (n, 5))

    def loss_mask(self, rows):
        return np.tile(np.arange(4) == PLACE, (len(rows), 1))


class Shuffled(Sums):
    """The same answers, given to other pairs: there is nothing to find."""

    @staticmethod
    def answers(a, b):
        every = Sums.answers(*np.divmod(np.arange(P * P), P))
        return np.random.default_rng((*SPLIT, 1)).permutation(every)[a * P + b]


def row_of(a, b, c):
    """Rows of tokens, [n, 5]."""
    sign = np.full_like(a, P)
    return np.stack([a, b, sign, c, sign], 1)


def exactly(logits, batch):
    """The loss of the answers in float64, in which a probability of nearly 1 still has a loss."""
    return F.cross_entropy(logits.double().transpose(1, 2), batch.targets, reduction="none")
