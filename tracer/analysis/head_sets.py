"""Sets of heads worth switching off together, from their scores [layer head]."""

from __future__ import annotations

import numpy as np

from tracer.measures.aliases import Head

THRESHOLD = 0.4
"""A head above this score is called an induction head, as in `tracer demo`."""
SMALL = 0.5
"""Nats: of a smaller effect REDUNDANCY is said."""
REDUNDANCY = (
    "A small effect of one head does not mean that it is unused: others may do the same work, and step in when it is "
    "off. Switch off sets as well."
)


def induction_heads(scores: np.ndarray) -> tuple[Head, ...]:
    """Every head whose induction score is above the threshold."""
    return tuple((int(layer), int(head)) for layer, head in np.argwhere(np.nan_to_num(scores) > THRESHOLD))


def previous_token_head(scores: np.ndarray) -> tuple[Head, ...]:
    """The head that looks most at the token before."""
    layer, head = np.unravel_index(int(np.nan_to_num(scores, nan=-1).argmax()), scores.shape)
    return ((int(layer), int(head)),)


def random_control(off: tuple[Head, ...], there: np.ndarray) -> tuple[Head, ...]:
    """As many heads of the same layers that are on, drawn at random, the same each time; () where too few are.

    `there` [layer head]: which heads exist.
    """
    rng, chosen = np.random.default_rng(0), list[Head]()
    for layer in sorted({layer for layer, _ in off}):
        taken = {head for at, head in off if at == layer}
        free = [h for h in np.flatnonzero(there[layer]).tolist() if h not in taken]
        if len(free) < len(taken):
            return ()
        chosen += [(layer, int(h)) for h in rng.choice(free, len(taken), replace=False)]
    return tuple(sorted(chosen))
