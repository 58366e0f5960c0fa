"""The weights of each head of other people's models: they make the very q, k and v that the heads were seen to use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tracer
from tracer.huggingface.attention_weights import norm_of
from tracer.interventions.edits import recording

IDS = torch.randint(2, 50, (3, 9), generator=torch.Generator().manual_seed(0))


def inputs(model: Any, names: list[str]) -> dict[str, torch.Tensor]:
    """What enters each attention, by the path of its module."""
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen[name] = args[0] if args else kwargs["hidden_states"]

        return hook

    handles = [model.get_submodule(name).register_forward_pre_hook(keep(name), with_kwargs=True) for name in names]
    with torch.no_grad():
        model(IDS)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize(
    ("name", "turned"), [("gpt2", False), ("llama", True), ("mistral", True), ("qwen2", True), ("neox", True)]
)
def test_weights_are_those_of_the_heads(name: str, turned: bool, build: Callable[..., Any]) -> None:
    theirs = build(name, "sdpa").requires_grad_(False)
    for parameter, value in theirs.named_parameters():
        if parameter.endswith("bias"):
            value.zero_()
    model = tracer.load_hf(theirs)
    found = model.head_weights()
    read = inputs(theirs, [layer.name for layer in model.layers])
    with recording("hook_q", "hook_k", "hook_v") as seen:
        model(IDS)
    for i, layer in enumerate(model.layers):
        for kind, weights in zip("qkv", found[:3], strict=True):
            wanted = torch.einsum("bpd,hde->bphe", read[layer.name], weights[i])
            made = seen[f"blocks.{i}.attn.hook_{kind}"]
            made = made.repeat_interleave(layer.n_heads // made.shape[2], 2)  # queries that share keys and values
            where = slice(0, 1) if turned and kind != "v" else slice(None)  # the first position is turned by nothing
            torch.testing.assert_close(made[:, where], wanted[:, where], rtol=1e-4, atol=1e-5)


def test_what_heads_write_adds_up(build: Callable[..., Any]) -> None:
    theirs = build("llama", "sdpa").requires_grad_(False)
    model = tracer.load_hf(theirs)
    W_O, written = model.head_weights().W_O, {}
    name = model.layers[1].name
    handle = theirs.get_submodule(name).register_forward_hook(lambda _m, _a, out: written.update(out=out[0]))
    with recording("hook_z") as seen:
        model(IDS)
    handle.remove()
    torch.testing.assert_close(torch.einsum("bphe,hed->bpd", seen["blocks.1.attn.hook_z"], W_O[1]), written["out"])


def test_both_ends(build: Callable[..., Any]) -> None:
    theirs = build("llama", "sdpa")
    found = tracer.load_hf(theirs).head_weights()
    assert found.W_U is not None and found.W_E.equal(theirs.model.embed_tokens.weight)
    assert found.W_U.T.equal(theirs.lm_head.weight)
    assert found.W_Q.shape == (2, 6, 48, 8) and found.W_K.shape == (2, 6, 48, 8)


@pytest.mark.parametrize(
    ("norm", "dtype"),
    [
        (nn.RMSNorm(12), torch.float32), (nn.RMSNorm(12), torch.float64), (nn.RMSNorm(12), torch.bfloat16),
        (nn.RMSNorm(12, elementwise_affine=False), torch.float32), (nn.RMSNorm(12, eps=1e-3), torch.float32),
    ],
)  # fmt: skip
def test_a_norm_without_an_eps_takes_the_machine_epsilon(norm: nn.RMSNorm, dtype: torch.dtype) -> None:
    norm = norm.to(dtype)
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0)).to(dtype) / 100  # of which eps is a part
    found = norm_of(norm, "norm")(x.to(torch.promote_types(dtype, torch.float32)))
    torch.testing.assert_close(found.to(dtype), norm(x), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
