"""The loss of a model that knows only how frequent each token is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    from torch import Tensor

    from tracer.data import Data

EACH = 64
"""Tokens counted for every word of the vocabulary: frequencies from n tokens cost V / 2n nats, here 0.008."""
FEWEST, MOST = 20_000, 1_000_000


def unigram_loss(data: Data, val_rows: int) -> float:
    """Mean cross-entropy, in nats, of the held-out rows' next tokens under the frequencies in training rows.

    Every token counts once more than it was seen (Laplace), so that none is impossible.
    """
    held_out = data.val(val_rows)
    wanted = min(MOST, max(FEWEST, EACH * data.d_vocab))
    seen = _targets(data, data.train(0, -(-wanted // (held_out.shape[1] - 1))))
    counts = np.bincount(seen, minlength=data.d_vocab) + 1.0
    return float(-np.log(counts / counts.sum())[_targets(data, held_out)].mean())


def _targets(data: Data, rows: Int[Tensor, "batch pos"]) -> Int[np.ndarray, " target"]:
    """The next tokens that count in a loss."""
    counted = data.counted(rows)
    return (rows[:, 1:] if counted is None else rows[:, 1:][counted]).flatten().numpy()
