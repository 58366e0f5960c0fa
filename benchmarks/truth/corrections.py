"""Attacks on corrected p-values: sweeps in which no head has an effect, by values of kinds that are made here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.truth.attack import Attack
from tracer.ablate import holm
from tracer.ablate.estimates import p_value, too_few

FAMILIES = 2000
SEQUENCES, HEADS = (2, 3, 8, 10, 13, 16, 32), (8, 16, 144)
MARGIN = 3 * math.sqrt(0.05 * 0.95 / FAMILIES)
"""Three standard errors of a share of 5 % of so many families."""
Kind = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
HELD: dict[str, Kind] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
    "heavy tails (Student's t, 3 degrees of freedom)": lambda rng, size: rng.standard_t(3, size),
    "two values, as likely": lambda rng, size: rng.choice([-1.0, 1.0], size),
    "skewed by 0.5 (gamma)": lambda rng, size: rng.gamma(16, size=size) - 16,
    "normal, heads alike (correlation 0.5)": lambda rng, size: (
        rng.standard_normal(size) + rng.standard_normal((*size[:-2], 1, size[-1]))
    ),
}
NOT_HELD: dict[str, Kind] = {
    "skewed by 1 (gamma)": lambda rng, size: rng.gamma(4, size=size) - 4,
    "skewed by 2 (exponential)": lambda rng, size: rng.exponential(size=size) - 1,
}


def attacks() -> Iterator[Attack]:
    for kind, draw in HELD.items():
        found = _errors(draw)
        worst = max(found, key=lambda at: found[at])
        yield Attack(
            "With no effect anywhere a sweep leaves no head after correction, 95 times in 100",
            "Ablate, every head; tracer.ablate.sweep, p_holm",
            f"{FAMILIES} sweeps without an effect for each of {_listed(SEQUENCES)} sequences and {_listed(HEADS)} "
            f"heads; values of a sequence: {kind}",
            f"at most {found[worst]:.1%} ({worst[0]} sequences, {worst[1]} heads); with 32 sequences "
            f"{', '.join(f'{found[32, heads]:.1%}' for heads in HEADS)}", found[worst] <= 0.05 + MARGIN,
        )  # fmt: skip
    for kind, draw in NOT_HELD.items():
        found = _errors(draw)
        worst = max(found, key=lambda at: found[at])
        yield Attack(
            "For values more skewed than that it is not claimed", "tracer.ablate.estimates.p_value",
            f"the same; values of a sequence: {kind}",
            f"up to {found[worst]:.1%} ({worst[0]} sequences, {worst[1]} heads); with 32 sequences "
            f"{', '.join(f'{found[32, heads]:.1%}' for heads in HEADS)}: more than 5 %, as `p_value` says", True,
        )  # fmt: skip
    yield _said()


def _errors(draw: Kind) -> dict[tuple[int, int], float]:
    """The share of families in which some head is left, by (sequences, heads)."""
    rng, found = np.random.default_rng(0), {}
    for n in SEQUENCES:
        for heads in HEADS:
            left = 0
            for part in np.array_split(np.zeros((FAMILIES, 0)), FAMILIES // 100):
                p = p_value(draw(rng, (len(part), heads, n)))
                left += sum(bool((holm(one) < 0.05).any()) for one in p)
            found[n, heads] = left / FAMILIES
    return found


def _said() -> Attack:
    """By brute force over signs: the clearest effect there can be, one head among others that have none."""
    wrong, needed = [], {}
    for heads in HEADS:
        for n in range(2, 17):
            clearest = np.concatenate([np.full((1, n), 1.0), np.zeros((heads - 1, n))])
            left = bool(holm(p_value(clearest))[0] < 0.05)
            if left:
                needed.setdefault(heads, n)
            if left == bool(too_few(n, heads)):
                wrong.append((n, heads))
    return Attack(
        "Where no head can be left after correction, it says so, and how many sequences it takes",
        "Ablate, every head; attrs of p_holm",
        f"one head with the same effect in every sequence, for 2 to 16 sequences and {_listed(HEADS)} heads",
        f"wrong in {len(wrong)} of {15 * len(HEADS)}; it takes "
        f"{', '.join(f'{n} sequences for {heads} heads' for heads, n in needed.items())}", not wrong,
    )  # fmt: skip


def _listed(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
