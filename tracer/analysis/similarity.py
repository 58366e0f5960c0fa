"""Two models beside each other: how far two patterns are apart, and which of the other's heads behaves most alike."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def total_variation(
    one: Float[np.ndarray, "*batch query_pos key_pos"], other: Float[np.ndarray, "*batch query_pos key_pos"]
) -> Float[np.ndarray, "*batch query_pos"]:
    """Half the sum over keys of |p - q|: the share of its attention that a query would have to move.

    Total variation distance. 0 when two rows are equal, 1 when they share no key; in float64.
    """
    return np.abs(one.astype(np.float64) - other.astype(np.float64)).sum(-1) / 2


def distances(
    one: Float[np.ndarray, "head measure"], other: Float[np.ndarray, "other_head measure"]
) -> Float[np.ndarray, "head other_head"]:
    """How differently two heads behave: the root mean square over measures of their difference in standard deviations.

    Standardised Euclidean distance over sqrt(measures). The deviations are those of the heads of both models together,
    so 0 is the same numbers, and two heads drawn by chance are sqrt(2) apart. A head that does not exist is a row of
    nan, and nan away from all; a measure counts where every other head has it, and where heads differ in it.
    """
    both = np.concatenate([one, other]).astype(np.float64)
    there = np.asarray(np.isfinite(both).any(axis=1))
    if not there.any():
        return np.full((len(one), len(other)), np.nan)
    spread = both[there].std(0)
    differs = spread > 1e-9  # and not nan: some head lacks that measure
    scaled = np.where(there[:, None], both[:, differs] / spread[differs], np.nan)
    squares = np.square(scaled[: len(one), None] - scaled[None, len(one) :])
    unlike = np.sqrt(squares.sum(-1) / max(1, differs.sum()))
    return np.where(there[: len(one), None] & there[None, len(one) :], unlike, np.nan)
