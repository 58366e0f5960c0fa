"""A model that computes its heads one after the other, as tutorials do: each layer is as many calls of attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tracer.ablate import head_outcomes
from tracer.ablate.induction_tests import copying_by_behaviour
from tracer.ablate.repeats import Repeats
from tracer.config import InitConfig, ModelConfig
from tracer.data import probes
from tracer.huggingface.wrapped import WrappedModel
from tracer.model import Transformer

CONFIG = ModelConfig(
    n_layers=2, n_heads=3, d_model=24, n_ctx=24, d_vocab=17, norm="none", init=InitConfig(attn=0.4)
)  # fmt: skip
Models = tuple[Transformer, WrappedModel]


class OneHead(nn.Module):
    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.w = nn.ParameterDict({name: nn.Parameter(x) for name, x in weights.items()})

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (x @ self.w[name] for name in ("W_Q", "W_K", "W_V"))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True) @ self.w["W_O"]


class HeadByHead(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        weights = model.state_dict()
        self.tokens, self.positions = nn.Parameter(weights["embed.W_E"]), nn.Parameter(weights["pos_embed.W_pos"])
        self.unembed = nn.Parameter(weights["unembed.W_U"])
        self.layers = nn.ModuleList(
            nn.ModuleList(
                OneHead({w: weights[f"blocks.{layer}.attn.{w}"][head] for w in ("W_Q", "W_K", "W_V", "W_O")})
                for head in range(3)
            )
            for layer in range(2)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens[ids] + self.positions[: ids.shape[1]]
        for heads in self.layers:
            x = x + sum(head(x) for head in heads)  # pyrefly: ignore[not-iterable]
        return x @ self.unembed


@pytest.fixture(scope="module")
def models() -> Models:
    ours = Transformer(CONFIG, seed=1).double().eval().requires_grad_(False)
    theirs = HeadByHead(ours).eval().requires_grad_(False)
    return ours, WrappedModel(theirs, n_ctx=24, d_vocab=17).eval()


def test_it_is_the_same_model(models: Models) -> None:
    ours, theirs = models
    ids = torch.randint(0, 17, (4, 13), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(theirs(ids), ours(ids))
    assert theirs.heads_of_layers == ours.heads_of_layers


@pytest.mark.parametrize("head", [(0, 1), (1, 0), (1, 1), (1, 2)])
def test_copying_is_asked_of_the_head_in_its_call(models: Models, head: tuple[int, int]) -> None:
    rows = Repeats(probes.repeated(17, 24, batch=8).tokens)
    ours, theirs = (copying_by_behaviour(model, rows, head) for model in models)
    assert (theirs.value, theirs.low, theirs.high) == pytest.approx((ours.value, ours.low, ours.high), abs=1e-9)


def test_measures_of_heads_stand_in_their_places(models: Models) -> None:
    probe = probes.repeated(17, 24, batch=4)
    ours, theirs = (head_outcomes(model, [(0, 1)], repeat=probe, text=probe.tokens) for model in models)
    for name in ("entropy", "previous_token", "induction"):
        assert np.isfinite(theirs[name]).all()
        np.testing.assert_allclose(theirs[name], ours[name], atol=1e-6, err_msg=name)
