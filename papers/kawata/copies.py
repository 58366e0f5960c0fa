"""Rows in which a stretch of random tokens comes again, for training and for tests, and what a fixed look back copies.

Tokens are 0, which every row begins with, and the symbols 1 to 64. The distance of a copy is how many tokens before it
the same stretch stands.
"""

import numpy as np

SYMBOLS, LENGTH, BLOCK = 64, 64, 10
"""Symbols; tokens of a row behind the first; tokens of the stretch in rows for tests."""
BETWEEN = (31, 33, 37, 43)
"""Tokens between the two copies: at distance 41, 43, 47 and 53 no stretch stands in any row that is trained on but
those of a single symbol, as these are primes and every length but 1 is at most 37."""
FRONT = (21, 22, 23, 24)
"""Tokens in front of the first copy, in the test of shifted rows."""
HELD_OUT, TESTS = (0x6D616E79, 2512, 18634, 1), (2512, 18634, 2)


class Repeats:
    """Rows of a block of random tokens over and over, as the preset's; a subclass says of what lengths."""

    d_vocab, bos = SYMBOLS + 1, 0
    chances: dict[int, int] = {}
    """How likely each length of the block is beside the others."""
    front = 0
    """At most so many random tokens stand in front of the first block, every number as likely."""

    def __init__(self, n_ctx, seed):
        self.n_ctx = n_ctx

    def rows(self, rng, n):
        chances = np.array(list(self.chances.values()))
        periods = rng.choice(list(self.chances), size=(n, 1), p=chances / chances.sum())
        at = np.arange(self.n_ctx) - rng.integers(0, self.front + 1, (n, 1))
        blocks = rng.integers(1, SYMBOLS + 1, (n, max(self.chances)))
        rows = np.zeros((n, self.n_ctx + 1), np.int64)
        repeats = np.take_along_axis(blocks, at % periods, axis=1)
        rows[:, 1:] = np.where(at < 0, rng.integers(1, SYMBOLS + 1, at.shape), repeats)
        return rows

    def held_out(self, n):
        return self.rows(np.random.default_rng(HELD_OUT), n)


class Linear(Repeats):
    """Lengths of 6 to 24, as likely as they are long; the mean is 17, as of lengths drawn evenly from 6 to 28."""

    chances = {length: length for length in range(6, 25)}


class Even(Repeats):
    """Lengths of 1 to 37, each as likely; the mean is 19, as of lengths drawn evenly from 8 to 30."""

    chances = {length: 1 for length in range(1, 38)}


class OneAnywhere(Repeats):
    """Length 20, behind 0 to 24 random tokens."""

    chances, front = {20: 1}, 24


class ManyAnywhere(Repeats):
    """Lengths of 8 to 30, each as likely, behind 0 to 24 random tokens."""

    chances, front = {length: 1 for length in range(8, 31)}, 24


def copied(rng, front, between, repeat=True):
    """Rows [n, LENGTH + 1] for tests, and where the second copy begins, [n].

    Behind the start token: `front` tokens, BLOCK tokens, `between` tokens, the same BLOCK tokens, and more; [n] each.
    No symbol stands twice outside of the second copy, so that what matches is not ambiguous. Without `repeat` the
    second copy is of other symbols, and none stands twice in the row.
    """
    front, between = np.broadcast_arrays(front, between)
    n, begins = len(front), 1 + front + BLOCK + between
    rows = np.zeros((n, LENGTH + 1), np.int64)
    rows[:, 1:] = 1 + rng.permuted(np.tile(np.arange(SYMBOLS), (n, 1)), axis=1)
    if repeat:
        to = begins[:, None] + np.arange(BLOCK)
        np.put_along_axis(rows, to, np.take_along_axis(rows, to - (BLOCK + between)[:, None], 1), 1)
    return rows, begins


def tests(n=120):
    """The rows of the four tests, by name: (rows, where the second copy begins). n is a multiple of 4."""
    near, new, none, front = (np.resize(one, n) for one in (20 - BLOCK, BETWEEN, 0, FRONT))
    kinds = {"near": (none, near), "shifted": (front, near), "new": (none, new), "broken": (none, new)}
    return {
        name: copied(np.random.default_rng((*TESTS, i)), *kind, repeat=name != "broken")
        for i, (name, kind) in enumerate(kinds.items())
    }


def wanted(begins):
    """The positions of the tokens to predict, [n, BLOCK - 1]: the second copy but its first token."""
    return begins[:, None] + np.arange(1, BLOCK)


def looked_back(rows, begins, distance):
    """What a head that looks `distance` tokens back from the token to predict copies there; 0 where the row begins."""
    at = wanted(begins) - distance
    return np.where(at > 0, np.take_along_axis(rows, np.maximum(at, 0), 1), 0)


def max_sum_ratio(chances):
    """max q_l / l over sum q_l / l of {length: q_l}: the ratio of the paper's theorem, of our lengths."""
    terms = [q / length for length, q in chances.items()]
    return max(terms) / sum(terms)
