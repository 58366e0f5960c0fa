"""How long the vectors are that a head brings: by hand, and against a loop in float64."""

import math

import pytest
import torch

from tracer.heads.weighting import read_norms


def test_by_hand() -> None:
    v = torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]], [[1.0, 0.0]]])
    out = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]])
    assert read_norms(v).tolist() == [[5, 0, 1]]
    torch.testing.assert_close(read_norms(v, out), torch.tensor([[math.sqrt(73), 0.0, 1.0]]))
    assert read_norms(v, n_heads=2).tolist() == [[5, 0, 1], [5, 0, 1]]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("writes", [True, False])
def test_against_a_loop(heads: int, kv_heads: int, writes: bool) -> None:
    draw = torch.Generator().manual_seed(heads)
    v = torch.randn(7, kv_heads, 5, generator=draw)
    W_O = torch.randn(heads, 5, 11, generator=draw) if writes else None
    expected = torch.zeros(heads, 7, dtype=torch.float64)
    for head in range(heads):
        for key in range(7):
            vector = v[key, head // (heads // kv_heads)].double()
            if W_O is not None:
                vector = sum((vector[d] * W_O[head, d].double() for d in range(5)), torch.zeros(11).double())
            expected[head, key] = (vector * vector).sum().sqrt()
    torch.testing.assert_close(read_norms(v, W_O, n_heads=heads).double(), expected, rtol=1e-6, atol=1e-7)


def test_heads_that_cannot_share() -> None:
    with pytest.raises(ValueError, match="3 query heads cannot share 2 key heads"):
        read_norms(torch.zeros(4, 2, 5), torch.zeros(3, 5, 8))
