"""Looking at one prompt: measures and pictures equal those of explicit patterns, whoever wrote the model."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tracer
from tracer.analysis import prompt_attention
from tracer.config import InitConfig, ModelConfig
from tracer.heads import definitions
from tracer.interventions.edits import recording
from tracer.model import Transformer

N = 40
IDS = torch.randint(2, 12, (1, N), generator=torch.Generator().manual_seed(0))


def ours() -> Any:
    config = ModelConfig(n_layers=2, n_heads=4, d_model=16, n_ctx=N, d_vocab=12, init=InitConfig(attn=0.5))
    return Transformer(config, seed=1).eval().requires_grad_(False)


def theirs(kernel: str) -> Any:
    config = LlamaConfig(
        vocab_size=12, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=N,
    )  # fmt: skip
    config._attn_implementation = kernel
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.3)
    return tracer.load_hf(model.requires_grad_(False))


MODELS: dict[str, Callable[[], Any]] = {
    "ours": ours, "fused": lambda: theirs("sdpa"), "by hand": lambda: theirs("eager"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_look_is_that_of_explicit_patterns(name: str) -> None:
    model = MODELS[name]()
    look = prompt_attention.look(model, IDS, thumbs=8)
    with recording("hook_pattern") as seen:
        logits = model(IDS)
    patterns = torch.stack([seen[f"blocks.{i}.attn.hook_pattern"][0] for i in range(2)])
    exact = patterns.double()
    assert (
        look.n == N and look.causal == [True, True] and (torch.from_numpy(look.logits) - logits[0]).abs().max() < 1e-5
    )
    by_row = {
        "entropy": definitions.entropy(exact), "current_token": definitions.current_token(exact),
        "previous_token": definitions.previous_token(exact), "first_token": definitions.first_token(exact),
        "attended_distance": definitions.attended_distance(exact),
        "duplicate_token": definitions.duplicate_token(exact, IDS.expand(2, N)),
        "induction": definitions.induction(exact, IDS.expand(2, N)),
    }  # fmt: skip
    for measure, rows in by_row.items():
        np.testing.assert_allclose(look.measures[measure], rows[..., 1:].mean(-1), atol=5e-6, err_msg=measure)
    blocks = patterns.unflatten(2, (8, 5)).unflatten(4, (8, 5))
    np.testing.assert_allclose(look.thumbs, blocks.amax((3, 5)), atol=5e-6)
    for layer, head in ((0, 0), (1, 3)):
        one = patterns[layer, head].numpy()
        np.testing.assert_allclose(look.pattern(layer, head), one, atol=5e-6)
        window = look.window(layer, head, slice(17, 31), slice(3, 29))
        np.testing.assert_allclose(window, one[17:31, 3:29], atol=5e-6)
        np.testing.assert_allclose(look.overview(layer, head, 8), blocks[layer, head].amax((1, 3)), atol=5e-6)
        np.testing.assert_allclose(look.overview(layer, head, 8, "mean"), blocks[layer, head].mean((1, 3)), atol=5e-6)
    assert torch.allclose(prompt_attention.next_token(model, IDS, 5), logits[0, 5].softmax(-1))


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Tutorial(torch.nn.Module):
    """A layer as a list of single heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(12, 12), torch.nn.Linear(12, 12)
        self.layers = torch.nn.ModuleList(torch.nn.ModuleList(Head() for _ in range(3)) for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        layers: Any = self.layers
        for heads in layers:
            x = x + torch.cat([head(x) for head in heads], -1)
        return self.out(x)


def test_heads_that_run_one_by_one_stand_in_their_layer() -> None:
    from tracer.huggingface.wrapped import WrappedModel

    torch.manual_seed(0)
    model = WrappedModel(Tutorial().eval().requires_grad_(False), n_ctx=N, d_vocab=12)
    seen = prompt_attention.look(model, IDS)
    assert seen.measures["entropy"].shape == (2, 3) and seen.thumbs.shape[:2] == (2, 3)
    theirs: Any = model.model
    alone = theirs.layers[0][2].qkv(theirs.embed(IDS))
    q, k, _ = alone.unsqueeze(2).chunk(3, -1)
    exact = definitions.pattern(q, k, scale=0.5)[0, 0].numpy()
    np.testing.assert_allclose(seen.pattern(0, 2), exact, atol=1e-6)
    scores = prompt_attention.induction(model, IDS, slice(1, None))
    np.testing.assert_allclose(scores.numpy(), seen.measures["induction"], atol=1e-6)


def test_heads_that_see_what_comes_later_are_pictured_whole() -> None:
    """As an encoder's layer is: no mask, and no order."""
    seen = prompt_attention.look(ours(), IDS)
    call = replace(seen.calls[0], causal=False, mask=None)
    assert call.q is not None and call.k is not None
    scores = torch.einsum("qhd,khd->hqk", call.q[0].double(), call.k[0].double()) * call.scale
    both = replace(seen, calls=(call,), lse=(scores.logsumexp(-1).float(),))
    exact = scores.softmax(-1)[2].numpy()
    assert np.triu(exact, 1).max() > 0.05 and both.causal == [False]
    np.testing.assert_allclose(both.pattern(0, 2), exact, atol=5e-6)
    np.testing.assert_allclose(both.overview(0, 2, 8), exact.reshape(8, 5, 8, 5).max((1, 3)), atol=5e-6)
