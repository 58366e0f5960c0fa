"""The keys that one query of a head sees: by the mask, by causality, by weights; what is no position is left out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tracer.analysis.why import visible
from tracer.heads.call import AttentionCall

V = torch.zeros(1, 4, 1, 2)
Q = torch.zeros(1, 4, 1, 2)
MASK = torch.tensor([True, False, True, True])[None, None, None]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize(
    ("mask", "causal", "expected"),
    [
        (None, False, [True, True, True, True]),
        (None, True, [True, True, True, False]),
        (MASK, False, [True, False, True, True]),
        (MASK, True, [True, False, True, False]),
        (torch.where(MASK, 0.5, -torch.inf), True, [True, False, True, False]),
    ],
)
def test_of_scores(mask: Tensor | None, causal: bool, expected: list[bool], extra: int) -> None:
    call = AttentionCall(0, V, Q, Q, causal=causal, mask=mask, extra=("zero",) * extra)
    assert visible(call, 2).tolist() == expected[: 4 - extra]


def test_of_weights() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 0.25, 0.0, 0.25]]).expand(1, 1, 2, 4)
    call = AttentionCall(0, V, weights=weights, extra=("sink",))
    assert visible(call, 1).tolist() == [True, True, False]
