"""In how many seeds one change comes before another, how sure that share is, and what so few seeds can show.

Each run is a pair: both dates are of one seed. Runs whose order is not known count for neither side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

from tracer.analysis.training_curves import Curve, may_feed, order
from tracer.config.field_docs import fields_in_help

PAIR = ("previous_token", "induction")
LINKS = (
    PAIR,
    ("previous_token", "composition"),
    ("composition", "induction"),
    ("induction", "repeat_loss"),
)
"""The orders of an induction circuit that are compared."""
LEVEL = 0.05


@fields_in_help
@dataclass(frozen=True)
class Precedence:
    """How often one change came before another."""

    before: int
    """Runs in which the first change came before the second."""
    after: int
    """Runs in which it came after it."""
    unknown: int
    """Runs that have both changes, in an order that is not known."""
    no_circuit: int = 0
    """Runs that have both, of heads that are no circuit, since neither reads the other: they are left out."""

    @property
    def known(self) -> int:
        return self.before + self.after

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of the share `before` of all seeds whose order is known: Clopper and Pearson 1934."""
        return share_interval(self.before, self.known)

    def p(self, tried: int = 1) -> float:
        """If either order were as likely: how likely a majority as large is, either way, times the orders tried.

        Source: the exact sign test, two-sided; Bonferroni.
        """
        tail = sum(comb(self.known, i) for i in range(max(self.before, self.after), self.known + 1))
        return min(1.0, tried * 2 * tail / 2**self.known)


def precedence(one: str, other: str, runs: Sequence[Sequence[Curve]]) -> Precedence:
    """Of the curves of each run: how often the change of `one` came before that of `other`.

    Runs whose two heads are no circuit, as the one is not in a layer before the other, are left out.
    """
    named = [{curve.name: curve for curve in curves} for curves in runs]
    named = [run for run in named if one in run and other in run]
    held = [run for run in named if {one, other} != {*PAIR} or may_feed(*(run[name] for name in PAIR))]
    orders, every = ([order(run[one], run[other]) for run in those] for those in (held, named))
    known = orders.count("before"), orders.count("after")
    both, all_both = (sum(found != "" for found in those) for those in (orders, every))
    return Precedence(*known, both - sum(known), all_both - both)


def least_p(seeds: int, tried: int = 1) -> float:
    """The smallest p that so many seeds can have: all of them agree."""
    return min(1.0, tried * 2.0 ** (1 - seeds))


def seeds_needed(tried: int = 1) -> int:
    """Seeds that show an order if all of them agree."""
    return next(seeds for seeds in range(1, 64) if least_p(seeds, tried) <= LEVEL)


def share_interval(hits: int, of: int) -> tuple[float, float]:
    """The shares for which so many hits, or more, and so many or fewer, each have a chance of 2.5 %.

    Source: Clopper and Pearson 1934. (0, 1) of no tries.
    """

    def at_least(share: float, count: int) -> float:
        return sum(comb(of, i) * share**i * (1 - share) ** (of - i) for i in range(count, of + 1))

    low = _root(lambda share: at_least(share, hits) - LEVEL / 2) if hits else 0.0
    high = _root(lambda share: at_least(share, hits + 1) - 1 + LEVEL / 2) if hits < of else 1.0
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises from 0 to 1 is 0, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
