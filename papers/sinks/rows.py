"""Rows of a random chain of symbols in which three triggers repeat the symbol before them, and what they cost exactly.

Tokens are 0, which every row begins with, the symbols 1 to 60, and the triggers 61 to 63.
"""

import numpy as np

SYMBOLS, TRIGGERS, LENGTH = 60, 3, 64
"""LENGTH: tokens that a model reads, the start token included."""
CHANCE = 0.15
"""How often a trigger follows a symbol; which of the three is as likely."""
HELD_OUT = (0x6D616E79, 2410, 13835, 1)


def chain():
    """How likely each symbol follows each, [symbol, symbol]: rows sum to 1, and are the same in every run."""
    return np.random.default_rng((2410, 13835)).dirichlet(np.full(SYMBOLS, 0.1), SYMBOLS)


class Backcopy:
    """Behind a symbol stands a trigger by CHANCE, else the next symbol of the chain; behind a trigger, the symbol that
    stood before it: the only token that asks for a look back."""

    d_vocab, bos, chance = 1 + SYMBOLS + TRIGGERS, 0, CHANCE

    def __init__(self, n_ctx, seed):
        self.n_ctx, self.chain = n_ctx, chain()
        costs = expected(self.chain, self.chance, n_ctx)
        self.references = {name: float(cost.mean()) for name, cost in costs.items()}

    def rows(self, rng, n):
        rows = np.zeros((n, self.n_ctx + 1), np.int64)
        sums, draws = self.chain.cumsum(1), rng.random((n, self.n_ctx, 3))
        rows[:, 1] = 1 + (draws[:, 0, 0] * SYMBOLS).astype(int)
        for at in range(2, self.n_ctx + 1):
            last, (turn, which, where) = rows[:, at - 1], draws[:, at - 1].T
            after = (where[:, None] > sums[np.minimum(last, SYMBOLS) - 1]).sum(1).clip(max=SYMBOLS - 1) + 1
            trigger = 1 + SYMBOLS + (which * TRIGGERS).astype(int)
            rows[:, at] = np.where(is_trigger(last), rows[:, at - 2], np.where(turn < self.chance, trigger, after))
        return rows

    def held_out(self, n):
        return self.rows(np.random.default_rng(HELD_OUT), n)


class Plain(Backcopy):
    """The chain alone: no token asks for a look back."""

    chance = 0.0


def is_trigger(tokens):
    return tokens > SYMBOLS


def expected(chain, chance, n_ctx):
    """The least expected loss in nats of each target, [n_ctx], by what is read: {"best": all tokens, "last token":
    that one and where it stands}. Exact: the law of the token, and of the symbol before a trigger, place by place."""
    p = chain[chain > 0]
    entropy = -np.bincount(np.nonzero(chain > 0)[0], p * np.log(p), len(chain))
    after = (1 - chance) * entropy
    if chance:
        after = after - chance * np.log(chance / TRIGGERS) - (1 - chance) * np.log(1 - chance)
    symbol, trigger = np.full(len(chain), 1 / len(chain)), np.zeros(len(chain))
    costs = {"best": [np.log(len(chain))], "last token": [np.log(len(chain))]}
    for _ in range(n_ctx - 1):
        known = trigger[trigger > 0]
        costs["best"].append(symbol @ after)
        costs["last token"].append(symbol @ after - known @ np.log(known / known.sum()))
        symbol, trigger = (1 - chance) * symbol @ chain + trigger, chance * symbol
    return {name: np.array(cost) for name, cost in costs.items()}
