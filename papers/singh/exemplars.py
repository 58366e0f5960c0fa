"""Rows of two exemplars with labels and a query, of which only the row itself says what label is right.

Tokens are labels, from 0 on, then items, then NEW items that no run is trained on. The vocabulary is the same for all
runs, however many of it they use, so that all begin from the same weights.
"""

import numpy as np

HELD_OUT = (0x6D616E79, 2404, 7129, 1)
LABELS, ITEMS, NEW = 15, 200, 20
"""The most of each that a run has; of the last, none."""
X1, L1, X2, L2, QUERY = range(5)
"""Where a row has its items, their labels and the query; the label behind the query is what is asked."""


class FewShot:
    """Rows [x1 l1 x2 l2 x?] and the label that stands behind x? in the row; a subclass says how many of each."""

    labels, items = 5, 50
    d_vocab = LABELS + ITEMS + NEW

    def __init__(self, n_ctx, seed):
        self.n_ctx = n_ctx
        self.references = {"uniform": np.log(self.labels), "either label of the row": np.log(2)}

    def rows(self, rng, n):
        return self.drawn(rng, n)

    def held_out(self, n):
        return self.drawn(np.random.default_rng(HELD_OUT), n, held=True)

    def loss_mask(self, rows):
        return np.tile(np.arange(self.n_ctx) == QUERY, (len(rows), 1))

    def drawn(self, rng, n, held=False, new=False):
        """n rows; `held`: of pairs of labels that are not trained on; `new`: of items that are not."""
        pairs = self.pairs(held)
        items = LABELS + ITEMS * new + two_of(rng, NEW if new else self.items, n)
        labels = rng.permuted(pairs[rng.integers(len(pairs), size=n)], axis=1)
        asked = rng.integers(2, size=(n, 1))
        both = np.stack([items, labels], 2).reshape(n, 4)
        return np.concatenate([both, *(np.take_along_axis(one, asked, 1) for one in (items, labels))], 1)

    def pairs(self, held):
        """Pairs of labels [pair, 2]: a fifth is held out, as many as the authors have: sums that 5 divides."""
        two = np.array([(a, b) for a in range(self.labels) for b in range(a)])
        return two[(two.sum(1) % 5 == 0) == held]


def two_of(rng, n_items, n):
    """Two different numbers below n_items in each row, [n, 2]."""
    one, step = rng.integers(n_items, size=n), rng.integers(1, n_items, size=n)
    return np.stack([one, (one + step) % n_items], 1)


class Items100(FewShot):
    items = 100


class Items200(FewShot):
    items = 200


class Labels10(FewShot):
    labels = 10


class Labels15(FewShot):
    labels = 15
