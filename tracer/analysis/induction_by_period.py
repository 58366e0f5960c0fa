"""The induction score by period: does a head follow the repeat, or look at one distance?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
from jaxtyping import Float, Int
from torch import nn

from tracer.analysis.prompt_attention import induction
from tracer.config.field_docs import fields_in_help
from tracer.data.probes import repeated
from tracer.model.protocol import HeadModel, device_of

LONGEST = 40
"""Periods that are tried where nobody names any: 2 up to this."""
ROWS = 8


@fields_in_help
@dataclass(frozen=True)
class ByPeriod:
    """The induction score of every head at each period, and its control: the same keys in rows that do not repeat."""

    periods: Int[np.ndarray, " period"]
    """Tokens from one copy to the next."""
    score: Float[np.ndarray, "period layer head"]
    """Mean attention to the token after the earlier copy."""
    control: Float[np.ndarray, "period layer head"]
    """To the same places of rows that do not repeat."""
    uniform: Float[np.ndarray, " period"]
    """Of a head that attends evenly."""


def induction_by_period(
    model: HeadModel, periods: Iterable[int] | None = None, bos: int = 0, rows: int = ROWS
) -> ByPeriod:
    """Two copies of a random block, one right after the other, for each length of it; default: 2 to 40, where they fit.

    Source: prefix matching of Olsson et al. 2022 at each period; the curve and its control are ours. Errors: ValueError
    for a period of which two do not fit the context and the vocabulary.
    """
    longest = min(LONGEST, (min(model.n_ctx, model.d_vocab) - 1) // 2)
    chosen = list(range(2, longest + 1) if periods is None else periods)
    score, control, uniform = [], [], []
    for period in chosen:
        probe = repeated(model.d_vocab, model.n_ctx, bos, batch=rows, at=period)
        where = range(*probe.second_copy.indices(probe.tokens.shape[1]))
        there, without = (tokens.to(device_of(cast("nn.Module", model))) for tokens in (probe.tokens, probe.control))
        for tokens, into in ((there, score), (without, control)):
            into.append(induction(model, tokens, probe.second_copy, repeats=there).cpu().numpy())
        uniform.append(np.mean([1 / (q + 1) for q in where]))
    shape = (len(chosen), model.n_layers, model.n_heads)
    return ByPeriod(np.array(chosen, int), np.reshape(score, shape), np.reshape(control, shape), np.array(uniform))
