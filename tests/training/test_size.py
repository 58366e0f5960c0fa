"""The count of parameters against the models themselves, and the work of a step by hand."""

from dataclasses import replace

import pytest
import torch

from tracer.config import ModelConfig
from tracer.model import Transformer
from tracer.presets import PRESETS
from tracer.training.size import n_params, step_flops

CONFIGS = {name: replace(one.config.model, d_vocab=300) for name, one in PRESETS.items()}
CONFIGS |= {
    "tied": ModelConfig(d_vocab=40, tie_embeddings=True, positions="rotary", mlp_hidden=(16, 8)),
    "bare": ModelConfig(d_vocab=40, norm="layer", norm_gain=False, positions="none", attn_out=False, mlp_hidden=(9,)),
    "normed q and k": ModelConfig(d_vocab=40, qk_norm=True, d_head=12, norm="layer"),
    "sink": ModelConfig(d_vocab=40, sink="learned", attn_softcap=30, attn_gate=True),
    "smeared": ModelConfig(d_vocab=40, smear="queries"),
    "shortformer": ModelConfig(d_vocab=40, positions="shortformer", d_head=128, final_norm=False, unembed_hidden=(7,)),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_the_model(name: str) -> None:
    with torch.device("meta"):
        model = Transformer(CONFIGS[name])
    assert n_params(CONFIGS[name]) == sum(p.numel() for p in model.parameters())


def test_the_work_of_a_step_by_hand() -> None:
    # one head of width 2 on 3 tokens: W_Q, W_K, W_V, W_O of 4 each, W_U of 2 x 5; scores 2 x 2 x 3
    config = ModelConfig(n_layers=1, n_heads=1, d_model=2, n_ctx=3, d_vocab=5, norm="none", positions="none")
    assert step_flops(config, batch_size=4) == 6 * 4 * 3 * (16 + 10 + 12)
    assert step_flops(replace(config, n_layers=3), batch_size=4) == 6 * 4 * 3 * (3 * 16 + 10 + 3 * 12)
