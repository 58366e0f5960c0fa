"""Attributions sum to the logit, agree with transformer-lens, and are refused where no sum exists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import tracer
from tests.causal_families import CAUSAL, QUICK, causal
from tests.tiers import quick
from tracer.analysis.logit_attribution import logit_attribution, logit_lens
from tracer.config import InitConfig, ModelConfig
from tracer.hooks.inputs import logits_of
from tracer.model import Transformer

hf: Any = transformers
INIT = InitConfig(embed=1.0, pos=0.7, attn=0.3, mlp=0.2, unembed=0.5)
BASE = ModelConfig(n_layers=3, n_heads=2, d_model=16, n_ctx=12, d_vocab=11, norm="rms", init=INIT)
TOKENS = torch.tensor([[0, 3, 5, 7, 3, 5, 1, 2], [4, 4, 9, 10, 8, 0, 6, 1]])
TARGETS = TOKENS.roll(-1, 1)
OTHERS = (TARGETS + 3) % 11


def total(found: Any) -> torch.Tensor:
    return torch.tensor(
        (found.embed + found.heads.sum(("layer", "head")) + found.mlps.sum("layer") + found.biases).values
    )


def built(config: ModelConfig) -> Transformer:
    """In float64, with biases and gains that are not their initial 0 and 1."""
    model = Transformer(config, seed=3).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".w", ".b", "b_O", "b_in", "b_out")):
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator).double()
    return model


CONFIGS = {
    "rms": BASE,
    "layer norm, MLP, b_O": replace(BASE, norm="layer", mlp_hidden=(24,), attn_out_bias=True),
    "no norm": replace(BASE, norm="none", mlp_hidden=(24, 24)),
    "no last norm": replace(BASE, final_norm=False),
    "shortformer": replace(BASE, positions="shortformer"),
    "rotary, tied": replace(BASE, positions="rotary", tie_embeddings=True),
    "q and k normed": replace(BASE, qk_norm=True),
    "sink": replace(BASE, sink="learned"),
    "sigmoids": replace(BASE, attention="sigmoid"),
    "soft cap, gate": replace(BASE, attn_softcap=0.5, attn_gate=True),
    "no W_O": replace(BASE, attn_out=False),
    "sinusoidal": replace(BASE, positions="sinusoidal"),
}


@pytest.mark.parametrize("against", [None, OTHERS], ids=["mean", "another token"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_everything_sums_to_the_logit(config: ModelConfig, against: torch.Tensor | None) -> None:
    model = built(config)
    found = logit_attribution(model, TOKENS, TARGETS, against=against)
    with torch.no_grad():
        logits = model(TOKENS)
    base = logits.mean(-1) if against is None else logits.gather(-1, against[..., None])[..., 0]
    wanted = logits.gather(-1, TARGETS[..., None])[..., 0] - base
    torch.testing.assert_close(total(found), wanted, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.tensor(found.logit.values), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", quick(CAUSAL, QUICK))
def test_so_it_does_in_every_family(name: str) -> None:
    """Also of a model as transformers gives it; at the end the token that is likeliest stands for the next."""
    model = causal(name)
    found = tracer.logit_attribution(model, TOKENS)
    logits = logits_of(model(TOKENS, TOKENS) if name == "nanoGPT" else model(TOKENS), TOKENS)
    assert logits is not None
    targets = torch.cat([TOKENS[:, 1:], logits[:, -1:].argmax(-1)], 1)
    assert (found.target.values == targets.numpy()).all() and dict(found.sizes)["head"] == 4
    if name == "Gemma 2":  # tanh is undone: attributions are of the logit before the cap
        logits = 2 * (logits / 2).atanh()
    wanted = logits.gather(-1, targets[..., None])[..., 0] - logits.mean(-1)
    torch.testing.assert_close(total(found), wanted, rtol=0, atol=1e-5)
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


@pytest.mark.parametrize("name", quick(CAUSAL, QUICK))
def test_the_lens_ends_with_what_every_family_says(name: str) -> None:
    model = tracer.load_hf(causal(name))
    found, says = tracer.logit_lens(model, TOKENS), model(TOKENS).log_softmax(-1)
    log_p = says.gather(-1, torch.tensor(found.target.values)[..., None])[..., 0]
    torch.testing.assert_close(torch.tensor(found.log_p[-1].values), log_p, rtol=0, atol=5e-6)
    assert (found.top[-1].values == says.argmax(-1).numpy()).all()
    assert found.log_p.dims == ("layer", "batch", "pos") and len(found.layer) == 4


def test_what_cannot_be_asked_is_said() -> None:
    config = hf.FalconConfig(vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=4)
    falcon, known = hf.FalconForCausalLM(config).eval(), causal("GPT-2")
    for ask in (tracer.logit_attribution, tracer.logit_lens):
        with pytest.raises(ValueError, match="model_type='falcon'.* is not known"):
            ask(falcon, TOKENS)
        with pytest.raises(ValueError, match=r"call model.eval\(\)"):
            ask(known.train(), TOKENS)


def test_heads_are_those_of_transformer_lens() -> None:
    model = Transformer(replace(BASE, norm="layer"), seed=1).eval()
    _, cache = model.run_with_cache(TOKENS)
    stack = cache.stack_head_results(layer=-1)
    directions = model.W_U.T[TARGETS] - model.W_U.mean(1)
    scaled = cache.apply_ln_to_stack(stack, layer=-1)
    wanted = (scaled * directions).sum(-1)
    found = torch.tensor(logit_attribution(model, TOKENS, TARGETS).heads.values).flatten(0, 1)
    torch.testing.assert_close(found, wanted[: len(found)], rtol=0, atol=2e-5)


def test_a_head_that_writes_nothing_adds_nothing() -> None:
    model = built(BASE)
    with torch.no_grad():
        weight = model.blocks[1].attn.W_O
        assert weight is not None
        weight[0] = 0
    found = logit_attribution(model, TOKENS, TARGETS)
    assert (found.heads[1, 0] == 0).all() and (found.heads[1, 1] != 0).all()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (replace(BASE, residual=False), "residual=False"),
        (replace(BASE, norm_position="post"), "norm_position=post"),
        (replace(BASE, unembed_hidden=(8,)), "unembed_hidden"),
    ],
)
def test_what_is_no_sum_is_refused(config: ModelConfig, named: str) -> None:
    with pytest.raises(ValueError, match="not (the|a) sum") as refused:
        logit_attribution(built(config), TOKENS, TARGETS)
    assert named in str(refused.value)


def test_the_lens_ends_with_what_the_model_says() -> None:
    model = built(CONFIGS["layer norm, MLP, b_O"])
    found = logit_lens(model, TOKENS, TARGETS)
    log_p, ranks = torch.tensor(found.log_p.values), torch.tensor(found["rank"].values)
    with torch.no_grad():
        final = model(TOKENS).log_softmax(-1)
    assert log_p.shape == ranks.shape == (4, *TOKENS.shape)
    torch.testing.assert_close(log_p[-1], final.gather(-1, TARGETS[..., None])[..., 0])
    order = final.argsort(-1, descending=True)
    assert (order.gather(-1, ranks[-1][..., None])[..., 0] == TARGETS).all()


def test_the_lens_at_some_positions_is_that_of_all() -> None:
    model = built(CONFIGS["layer norm, MLP, b_O"])
    whole, some = logit_lens(model, TOKENS), logit_lens(model, TOKENS, positions=[3, 0])
    assert some["pos"].values.tolist() == [3, 0]
    for name in ("log_p", "rank", "top", "target"):
        np.testing.assert_allclose(some[name], whole[name].sel(pos=[3, 0]), rtol=1e-6)


@pytest.mark.parametrize("no_sum", [replace(BASE, norm_position="post"), replace(BASE, residual=False)], ids=str)
def test_the_lens_needs_no_sum(no_sum: ModelConfig) -> None:
    model = built(no_sum)
    with torch.no_grad():
        wanted = model(TOKENS).log_softmax(-1).gather(-1, TARGETS[..., None])[..., 0]
    torch.testing.assert_close(torch.tensor(logit_lens(model, TOKENS, TARGETS).log_p.values[-1]), wanted)


@pytest.mark.parametrize("ask", [logit_attribution, logit_lens])
@pytest.mark.parametrize("targets", [TARGETS + 11, TARGETS - 11])
def test_targets_that_are_none_are_refused(ask: Any, targets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary: 0 to 10"):
        ask(built(BASE), TOKENS, targets)


def test_the_lens_before_the_first_layer_is_the_embedding_alone() -> None:
    model = built(replace(BASE, positions="none", norm="none"))
    log_p = torch.tensor(logit_lens(model, TOKENS, TARGETS).log_p.values)
    with torch.no_grad():
        direct = (model.embed.W_E[TOKENS] @ model.W_U).log_softmax(-1)
    torch.testing.assert_close(log_p[0], direct.gather(-1, TARGETS[..., None])[..., 0])
