"""Three kinds of chains of two symbols, each row with a chain of its own, and what three strategies say of a row.

Tokens are 0, which every row begins with, and the symbols 1 and 2.
"""

import numpy as np

LENGTH = 100
"""Symbols of a row."""
HELD_OUT = (0x6D616E79, 2402, 11004, 1)


class Chains:
    """Rows of which no two have the same chain; a subclass draws the chains."""

    d_vocab, bos = 3, 0
    lines: dict[str, float] = {}
    """Loss of each strategy in nats, mean over the positions of rows of LENGTH symbols: exact, to four digits."""

    def __init__(self, n_ctx, seed):
        self.n_ctx = n_ctx
        self.references = self.lines if n_ctx == LENGTH else {}

    def chances(self, rng, n):
        """The probability of symbol 2 after 1 and after 2, [n, 2]."""
        raise NotImplementedError

    def rows(self, rng, n):
        return self.with_chances(rng, n)[0]

    def held_out(self, n):
        return self.rows(np.random.default_rng(HELD_OUT), n)

    def with_chances(self, rng, n):
        """Rows [n, n_ctx + 1], and the chances [n, 2] that they were drawn with; the first symbol is stationary."""
        after = self.chances(rng, n)
        draws = rng.random((n, self.n_ctx))
        rows, each = np.zeros((n, self.n_ctx + 1), np.int64), np.arange(n)
        rows[:, 1] = 1 + (draws[:, 0] < after[:, 0] / (1 - after[:, 1] + after[:, 0]))
        for pos in range(1, self.n_ctx):
            rows[:, pos + 1] = 1 + (draws[:, pos] < after[each, rows[:, pos] - 1])
        return rows, after


class Dirichlet(Chains):
    """Both rows of the transition matrix Dirichlet(1, 1), as in the paper."""

    lines = {"uniform": 0.6931, "unigram": 0.5784, "bigram": 0.5126}

    def chances(self, rng, n):
        return rng.random((n, 2))


class DoublyStochastic(Chains):
    """Columns sum to 1 as well, so that both symbols are as frequent: counting symbols says nothing."""

    lines = {"uniform": 0.6931, "unigram": 0.6919, "bigram": 0.5324}

    def chances(self, rng, n):
        stay = rng.random(n)
        return np.stack([1 - stay, stay], 1)


class Iid(Chains):
    """Both rows alike: the symbol before says nothing."""

    lines = {"uniform": 0.6931, "unigram": 0.5190, "bigram": 0.5303}

    def chances(self, rng, n):
        return np.repeat(rng.random((n, 1)), 2, 1)


def strategies(rows):
    """The chance of symbol 2 at each position of rows [n, n_ctx + 1] by each strategy, {name: [n, n_ctx]}.

    unigram counts symbols, bigram what followed the last symbol so far; each begins at one and one.
    """
    n, length = rows.shape[0], rows.shape[1] - 1
    twos = (rows[:, 1:] == 2).astype(float)
    seen = np.concatenate([np.zeros((n, 1)), twos.cumsum(1)[:, :-1]], 1)
    found = {"uniform": np.full((n, length), 0.5), "unigram": (seen + 1) / (np.arange(length) + 2)}
    followed, bigram = np.ones((n, 2, 2)), np.full((n, length), 0.5)
    each = np.arange(n)
    for pos in range(1, length):
        last = rows[:, pos] - 1
        if pos > 1:
            followed[each, rows[:, pos - 1] - 1, last] += 1
        now = followed[each, last]
        bigram[:, pos] = now[:, 1] / now.sum(1)
    return found | {"bigram": bigram}
