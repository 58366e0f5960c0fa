"""Which head is the strongest induction head: the one whose score is farthest above its own control.

The control is the score of the same keys in rows without a repeat. A head that looks a fixed distance back, or anywhere
by position, has both alike: its score says nothing of induction, however high it is.
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
from jaxtyping import Float

from tracer.measures.aliases import Head

Scores = Float[np.ndarray, "layer head"]


def above_control(scores: Scores, control: Scores | None) -> Scores:
    """Induction scores minus their controls; the scores themselves where no control was recorded."""
    return scores - control if _is_known(control) else scores


def induction_head(scores: Scores, control: Scores | None) -> Head | None:
    """The head whose score is farthest above its control; None where none stands out: no score is above its control.

    Derived here. Scores of heads that do not exist, or that were not measured, are nan. Without a control the head of
    the highest score: then nobody can say that it does not stand out.
    """
    above = above_control(scores, control)
    known = np.where(np.isfinite(above), above, -np.inf)
    layer, head = np.unravel_index(int(known.argmax()), known.shape)
    return (int(layer), int(head)) if known[layer, head] > (0 if _is_known(control) else -np.inf) else None


def _is_known(control: Scores | None) -> TypeGuard[Scores]:
    return control is not None and bool(np.isfinite(control).any())
