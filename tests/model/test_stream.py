"""The residual stream of our own models, in float64: parts sum to it, and what heads read gives the patterns."""

from typing import Any

import pytest
import torch

from tests.models import as_trained
from tracer.config import ModelConfig
from tracer.interventions.edits import recording

IDS = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(0))
SIZES: dict[str, Any] = {"n_layers": 2, "n_heads": 3, "d_model": 24, "n_ctx": 12, "d_vocab": 40}


@pytest.mark.parametrize(
    "options",
    [
        {}, {"norm": "layer"}, {"norm": "rms", "norm_gain": False}, {"norm": "none"},
        {"norm": "rms", "final_norm": False},
        {"positions": "rotary"}, {"positions": "sinusoidal"}, {"positions": "shortformer"}, {"positions": "none"},
        {"mlp_hidden": ()}, {"mlp_hidden": (8, 8)}, {"tie_embeddings": True}, {"attn_scale": "none"},
        {"qk_norm": True}, {"qk_norm": True, "positions": "rotary", "norm_gain": False},
        {"attn_out": False}, {"attn_out_bias": True, "norm": "layer"},
        {"smear": "keys", "positions": "rotary", "qk_norm": True}, {"smear": "queries", "positions": "shortformer"},
        {"attn_softcap": 0.5}, {"attn_gate": True, "attn_out_bias": True}, {"attn_gate": True, "attn_out": False},
        {"attention": "sigmoid"},
    ],
    ids=str,
)  # fmt: skip
def test_it_is_the_sum_of_its_parts_and_what_heads_read(options: dict[str, Any]) -> None:
    model = as_trained(ModelConfig(**SIZES | options), torch.float64)
    stream = model.residual_stream(IDS)
    with recording("hook_pattern", "hook_resid_pre") as seen:
        logits = model(IDS)
    torch.testing.assert_close(stream.end(stream.parts().sum(0)), logits)
    for i, layer in enumerate(stream.layers):
        torch.testing.assert_close(stream.parts(i).sum(0), seen[f"blocks.{i}.hook_resid_pre"])
        for head in range(model.n_heads):
            pattern = seen[f"blocks.{i}.attn.hook_pattern"][:, head]
            scores = layer.seen_scores(layer.scores(head), head).masked_fill(pattern == 0, -torch.inf)
            least = layer.weights.sigmoid
            made = scores.softmax(-1) if least is None else (scores + least).sigmoid()
            torch.testing.assert_close(made, pattern, atol=1e-7, rtol=1e-6)
            torch.testing.assert_close(pattern @ layer.whole("v", head), layer.z[:, :, head], atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"residual": False}, "residual=False: each sublayer replaces the stream"),
        ({"norm": "layer", "norm_position": "post"}, "norm_position=post: each norm rescales the stream"),
    ],
)
def test_what_is_no_sum_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        as_trained(ModelConfig(**SIZES | options)).residual_stream(IDS)
