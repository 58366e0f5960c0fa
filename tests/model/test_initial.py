"""The weights that a model starts from."""

from typing import Any

import pytest
import torch

from tests.small import SMALL, changes
from tracer.config import InitConfig, ModelConfig
from tracer.model import Norm, Transformer


def stds(config: ModelConfig, seed: int = 0) -> dict[str, float]:
    model = Transformer(config, seed=seed)
    return {name: weight.std().item() if weight.any() else 0.0 for name, weight in model.named_parameters()}


WIDE = ModelConfig(n_layers=1, n_heads=4, d_model=64, d_head=32, n_ctx=60, d_vocab=70, norm="none")


@pytest.mark.parametrize(
    ("init", "fields", "expected"),
    [
        (
            InitConfig(),
            {"mlp_hidden": (128, 96)},
            {
                "embed.W_E": 1.0,
                "pos_embed.W_pos": 1.0,
                "blocks.0.attn.W_Q": 64**-0.5,
                "blocks.0.attn.W_K": 64**-0.5,
                "blocks.0.attn.W_V": 64**-0.5,
                "blocks.0.attn.W_O": 128**-0.5,  # fan-in n_heads * d_head
                "blocks.0.mlp.W_in": (3 * 64) ** -0.5,  # uniform(-a, a) has std a / sqrt(3)
                "blocks.0.mlp.b_in": (3 * 64) ** -0.5,
                "blocks.0.mlp.W_1": (3 * 128) ** -0.5,
                "blocks.0.mlp.b_1": (3 * 128) ** -0.5,
                "blocks.0.mlp.W_out": (3 * 96) ** -0.5,
                "blocks.0.mlp.b_out": (3 * 96) ** -0.5,
                "unembed.W_U": 64**-0.5,
            },
        ),
        (
            InitConfig(embed=0.02, pos=0.2, attn=1.0, mlp=0.3, unembed="linear"),
            {"mlp_hidden": (128,), "attn_out_bias": True},
            {
                "embed.W_E": 0.02,
                "pos_embed.W_pos": 0.2,
                "blocks.0.attn.W_Q": 1.0,
                "blocks.0.attn.W_K": 1.0,
                "blocks.0.attn.W_V": 1.0,
                "blocks.0.attn.W_O": 1.0,
                "blocks.0.attn.b_O": 0.0,
                "blocks.0.mlp.W_in": 0.3,
                "blocks.0.mlp.b_in": 0.0,
                "blocks.0.mlp.W_out": 0.3,
                "blocks.0.mlp.b_out": 0.0,
                "unembed.W_U": (3 * 64) ** -0.5,
            },
        ),
        (
            InitConfig(attn="linear", mlp="fan_in"),
            {"unembed_hidden": (128,), "positions": "rotary"},
            {
                "embed.W_E": 1.0,
                "blocks.0.attn.W_Q": (3 * 64) ** -0.5,
                "blocks.0.attn.W_K": (3 * 64) ** -0.5,
                "blocks.0.attn.W_V": (3 * 64) ** -0.5,
                "blocks.0.attn.W_O": (3 * 128) ** -0.5,
                "unembed.W_in": 64**-0.5,
                "unembed.b_in": 0.0,
                "unembed.W_out": 128**-0.5,
                "unembed.b_out": 0.0,
            },
        ),
        (
            InitConfig(embed=0.5),
            {"tie_embeddings": True, "positions": "shortformer", "attn_out": False, "d_head": 16},
            {
                "embed.W_E": 0.5,
                "pos_embed.W_pos": 1.0,
                "blocks.0.attn.W_Q": 64**-0.5,
                "blocks.0.attn.W_K": 64**-0.5,
                "blocks.0.attn.W_V": 64**-0.5,
            },
        ),
    ],
)
def test_the_initial_standard_deviations(init: InitConfig, fields: dict[str, Any], expected: dict[str, float]) -> None:
    measured = stds(changes(WIDE, init=init, **fields))
    assert list(measured) == list(expected)
    for name, std in expected.items():
        assert measured[name] == pytest.approx(std, rel=0.2 if ".b_" in name else 0.04), name


def test_a_uniform_init_stays_within_its_bound_and_gains_start_at_one() -> None:
    model = Transformer(changes(WIDE, norm="layer", init=InitConfig(attn="linear")))
    assert 0.99 / 8 < model.blocks[0].attn.W_Q.abs().max() <= 1 / 8
    for norm in (model.blocks[0].ln1, model.ln_final):
        assert isinstance(norm, Norm) and norm.w is not None and norm.b is not None
        assert torch.equal(norm.w, torch.ones(64)) and torch.equal(norm.b, torch.zeros(64))


def test_a_seed_means_its_weights() -> None:
    torch.manual_seed(1)
    one = Transformer(SMALL, seed=5).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    same, other = Transformer(SMALL, seed=5).state_dict(), Transformer(SMALL, seed=6).state_dict()
    assert torch.equal(torch.get_rng_state(), state)  # nothing of the caller's randomness is used
    for name, weight in one.items():
        assert torch.equal(weight, same[name])
        assert torch.equal(weight, other[name]) == name.endswith((".w", "b_O")), name
