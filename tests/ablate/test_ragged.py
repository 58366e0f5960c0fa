"""A model whose layers have different numbers of heads: those that do not exist are nan, and are never switched off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tracer.ablate import (
    attribution,
    build_up,
    effect,
    holm,
    integrated_gradients,
    knock_down,
    null,
    pairs,
    patch,
    random_sets,
    sweep,
)
from tracer.ablate.estimates import p_value
from tracer.huggingface.wrapped import WrappedModel

TOKENS = torch.randint(2, 50, (5, 9), generator=torch.Generator().manual_seed(0))
HEADS = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


class Attention(nn.Module):
    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.qkv, self.out = n_heads, nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Ragged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers, self.unembed = (
            nn.Embedding(50, 16), nn.ModuleList([Attention(4), Attention(2)]), nn.Linear(16, 50)
        )  # fmt: skip

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.unembed(x)


@pytest.fixture(scope="module")
def model() -> WrappedModel:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return WrappedModel(Ragged().double().eval().requires_grad_(False), n_ctx=64, d_vocab=50)


def test_a_sweep_is_each_head_that_exists(model: WrappedModel) -> None:
    found = sweep(model, TOKENS, interval=True)
    assert list(zip(*np.nonzero(found["effect"].notnull().values), strict=True)) == HEADS
    for layer, head in HEADS:
        expected = effect(model, TOKENS, [(layer, head)])
        assert float(found["effect"][layer, head]) == pytest.approx(expected.mean, abs=1e-9)
    p = p_value(np.stack([effect(model, TOKENS, [head]).delta.mean(1).numpy() for head in HEADS]))
    np.testing.assert_allclose(found["p_holm"].values[tuple(zip(*HEADS, strict=True))], holm(p), atol=1e-9)
    np.testing.assert_array_equal(sweep(model, TOKENS, layers=[1]), found["effect"][1:])


def test_sets_are_of_heads_that_exist(model: WrappedModel) -> None:
    assert pairs(model, TOKENS)["head_a"].values.tolist() == [f"L{layer}H{head}" for layer, head in HEADS]
    assert random_sets(model, [(1, 0)]) == [((1, 1),)]
    assert set(random_sets(model, [(0, 0), (1, 0)], n=5)) < {((0, head), (1, n)) for head in range(4) for n in (0, 1)}
    assert len(null(model, TOKENS, [(1, 0)]).others) == 1
    with pytest.raises(ValueError, match=r"L1H2 does not exist: .* layers 0 to 1 and heads 0 to 1 in layer 1"):
        effect(model, TOKENS, [(1, 2)])
    with pytest.raises(ValueError, match=r"L5H0 does not exist: .* layers 0 to 1 and heads 0 to 3$"):
        effect(model, TOKENS, [(5, 0)])
    with pytest.raises(ValueError, match="all 6 heads are off"):
        effect(model, TOKENS, HEADS)


@pytest.mark.parametrize("estimated", [attribution, integrated_gradients])
def test_estimates_are_of_heads_that_exist(estimated, model: WrappedModel) -> None:
    found = estimated(model, TOKENS, verify=8)
    assert found.attrs["n_verified"] == 6
    np.testing.assert_array_equal(found["estimate"].isnull(), sweep(model, TOKENS).isnull())
    np.testing.assert_allclose(found["exact"], sweep(model, TOKENS), atol=1e-9)


@pytest.mark.parametrize("search", [build_up, knock_down])
def test_a_search_ends_at_the_heads_that_exist(search, model: WrappedModel) -> None:
    """Nothing keeps more than all of the behaviour, so all heads are tried."""
    found = search(model, TOKENS, behaviour=lambda loss: loss.mean((-1, -2)), target=0.999)
    assert set(found.heads) <= set(HEADS)


def test_patching_is_done_with_the_last_head_that_exists(model: WrappedModel) -> None:
    heard: list[tuple[int, int]] = []
    found = patch(model, TOKENS, TOKENS.flip(0), progress=lambda done, of: heard.append((done, of)))
    assert list(zip(*np.nonzero(found.notnull().values), strict=True)) == HEADS
    assert heard[-1] == (6, 6)
