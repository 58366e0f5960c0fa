"""Intervals of effects against the effect on very many sequences: they hold it 95 times in 100."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tracer.ablate import MODES, losses
from tracer.ablate.estimates import estimate
from tracer.config import InitConfig, ModelConfig
from tracer.model import Transformer

VOCAB, CTX, LARGE = 13, 10, 4096
HEADS = [(layer, head) for layer in range(2) for head in range(3)]


@pytest.fixture(scope="module")
def model() -> Transformer:
    init = InitConfig(attn=0.5, embed=1.0)
    config = ModelConfig(n_layers=2, n_heads=3, d_model=12, n_ctx=CTX, d_vocab=VOCAB, norm="rms", init=init)
    return Transformer(config, seed=2).eval().requires_grad_(False)


def rows(n: int, seed: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (n, CTX), generator=torch.Generator().manual_seed(seed))


def changes(model: Transformer, tokens: torch.Tensor, mode: str, **how) -> np.ndarray:
    """[head batch]"""
    found = losses(model, tokens, [[], *([head] for head in HEADS)], mode, **how).double().mean(-1)
    return (found[1:] - found[0]).numpy()


@pytest.mark.parametrize(("mode", "frozen"), [*((mode, False) for mode in MODES), ("zero", True)])
def test_intervals_hold_the_truth_95_times_in_100(mode: str, frozen: bool, model: Transformer) -> None:
    """At 16 sequences, and for means 8 times as many; over all heads of 80 batches."""
    truth, held = changes(model, rows(LARGE, 1), mode, frozen=frozen).mean(1), []
    for batch in range(80):
        reference = rows(128, 10**6 + batch) if mode == "mean" else None
        found = changes(model, rows(16, 1000 + batch), mode, frozen=frozen, reference=reference, seed=batch)
        held += [one.low <= true <= one.high for one, true in zip(map(estimate, found), truth, strict=True)]
    assert 0.92 <= np.mean(held) <= 0.98
