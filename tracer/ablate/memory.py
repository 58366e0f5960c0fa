"""How much work fits into a budget of bytes: sequences, sets of heads and rows of logits at once."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.config import ModelConfig

BUDGET = 256 * 2**20
"""Bytes: a quarter for the clean run, half for the sets, a quarter for logits."""


@dataclass(frozen=True)
class Split:
    """What is done at once."""

    sequences: int
    variants: int
    """Sets, each with one draw of its replacements."""
    rows: int
    """Positions of all of these that are unembedded."""


def split(config: ModelConfig, pos: int, *, batch: int, draws: int, frozen: bool, itemsize: int, budget: int) -> Split:
    """The largest pieces that fit; ValueError with what it takes if one set on one sequence does not.

    Each sequence needs those of the reference batch that replace it in each of the `draws`.
    """
    heads, hidden = config.n_heads * config.head_width, max(config.mlp_hidden, default=0)
    kept = config.n_layers * pos * (2 * config.d_model + (1 + draws) * heads)
    pattern = 4 * config.n_heads * pos**2 if frozen else 0
    state = pos * (3 * config.d_model + max(6 * heads + config.d_model, 2 * config.d_model + 3 * hidden))
    row = 2 * (config.d_vocab or 0) + 3 * max(config.unembed_hidden, default=0)
    sequence, variant, logits = (itemsize * n for n in (kept + pattern, state, row))
    least = max(4 * sequence, 2 * variant, 4 * logits)
    if budget < least:
        raise ValueError(
            f"budget={budget} bytes is too small: one set of heads on one sequence of {pos} tokens needs {least} "
            f"({least / 2**20:.0f} MiB); give a larger budget or shorter sequences"
        )
    sequences = min(batch, budget // 4 // sequence, budget // 2 // variant)
    return Split(sequences, budget // 2 // (variant * sequences), budget // 4 // logits)
