"""The model against two others that share no code with it: transformer-lens's native bridge, and plain numpy loops."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.sources import boot_native
from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

from tests.models import as_trained
from tracer.config import InitConfig, ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer

WIDTHS: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 24, "n_ctx": 12, "d_vocab": 17}
TOKENS = torch.randint(0, 17, (3, 11), generator=torch.Generator().manual_seed(1))


def changes(**fields: Any) -> ModelConfig:
    return ModelConfig(**WIDTHS | {"init": InitConfig(embed=1.0, pos=0.7, attn=0.3)} | fields)


NATIVE = {
    "none": changes(norm="none"),
    "LN": changes(norm="layer"),
    "LNPre": changes(norm="layer", norm_gain=False),
    "RMS": changes(norm="rms"),
    "RMSPre": changes(norm="rms", norm_gain=False),
    "one hidden layer": changes(mlp_hidden=(40,)),
    "GELU": changes(mlp_hidden=(40,), activation="gelu", norm="layer"),
    "full-rank heads": changes(d_head=24),
    "narrow heads": changes(d_head=3, attn_out_bias=True),
    "no scale": changes(attn_scale="none"),
    "d_model scale": changes(attn_scale="d_model"),
    "one head": changes(n_heads=1),
    "eps": changes(norm_eps=0.1, norm_gain=False),
}


def native(model: Transformer) -> TransformerBridge:
    """The same function as a bridge: its scale is always 1/sqrt(d_head), so ours is folded into W_Q."""
    c = model.config
    kind = {"none": None, "layer": "LN", "rms": "RMS"}[c.norm]
    config = TransformerBridgeConfig(
        n_layers=c.n_layers, n_heads=c.n_heads, d_model=c.d_model, d_head=c.head_width, n_ctx=c.n_ctx,
        d_vocab=c.d_vocab or 0, d_mlp=c.mlp_hidden[0] if c.mlp_hidden else None, attn_only=not c.mlp_hidden,
        act_fn=c.activation, normalization_type=kind if c.norm_gain or not kind else kind + "Pre", eps=c.norm_eps,
        dtype=torch.float64,
    )  # fmt: skip
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for layer in range(c.n_layers):
        attn = f"blocks.{layer}.attn."
        weights[attn + "W_Q"] *= {"d_head": 1, "none": c.head_width**0.5, "d_model": (c.head_width / c.d_model) ** 0.5}[
            c.attn_scale
        ]
        for letter in "QKV":
            weights[attn + f"b_{letter}"] = torch.zeros(c.n_heads, c.head_width, dtype=torch.float64)
        weights.setdefault(attn + "b_O", torch.zeros(c.d_model, dtype=torch.float64))
    bridge = boot_native(config, dtype=torch.float64).eval()
    b_U = torch.zeros(c.d_vocab or 0, dtype=torch.float64)
    bridge.load_state_dict(convert_tl_checkpoint(weights, config) | {"unembed.bias": b_U}, strict=True)
    return bridge


@pytest.mark.parametrize("name", NATIVE)
def test_transformer_lens_agrees(name: str) -> None:
    model = as_trained(NATIVE[name], torch.float64)
    bridge = native(model)
    close = 2e-5 if model.config.norm == "rms" and model.config.norm_gain else 1e-11  # weighted RMS is float32 there
    with torch.no_grad(), recording("hook_pattern", "hook_z") as seen:
        logits = model(TOKENS)
    with torch.no_grad():
        theirs, cache = bridge.run_with_cache(TOKENS)
        assert (bridge(TOKENS) - model(TOKENS)).abs().max() < close  # the fused path
    assert (theirs - logits).abs().max() < close
    for layer in range(model.config.n_layers):
        pattern = f"blocks.{layer}.attn.hook_pattern"
        assert (cache[pattern] - seen[pattern]).abs().max() < close
        z = seen[f"blocks.{layer}.attn.hook_z"]
        assert (cache[f"blocks.{layer}.attn.hook_z"].reshape(z.shape) - z).abs().max() < close


def test_the_oracle_can_tell_a_difference() -> None:
    model = as_trained(NATIVE["LN"], torch.float64)
    bridge = native(model)
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0, 0] += 1e-3
        assert (bridge(TOKENS) - model(TOKENS)).abs().max() > 1e-7


def reference(c: ModelConfig, w: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """Logits [pos d_vocab] of one sequence, one head and one row at a time."""
    n, width = len(tokens), c.d_head or c.d_model // c.n_heads
    root = {"d_head": width**0.5, "d_model": c.d_model**0.5, "none": 1.0}[c.attn_scale]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        if c.norm == "none":
            return x
        x = x - x.mean(1, keepdims=True) if c.norm == "layer" else x
        x = x / np.sqrt((x**2).mean(1, keepdims=True) + c.norm_eps)
        return x * w.get(f"{name}.w", 1.0) + w.get(f"{name}.b", 0.0)

    def mlp(x: np.ndarray, name: str, n_hidden: int) -> np.ndarray:
        for layer in ["in", *range(1, n_hidden)]:
            x = x @ w[f"{name}.W_{layer}"] + w[f"{name}.b_{layer}"]
            x = np.maximum(x, 0) if c.activation == "relu" else x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2
        return x @ w[f"{name}.W_out"] + w[f"{name}.b_out"]

    def turn(x: np.ndarray) -> np.ndarray:
        frequency = 10000.0 ** (-2 * np.arange(width // 2) / width)
        z = (x[:, : width // 2] + 1j * x[:, width // 2 :]) * np.exp(1j * np.outer(np.arange(n), frequency))
        return np.concatenate([z.real, z.imag], 1)

    def attention(x: np.ndarray, name: str) -> np.ndarray:
        x_qk, results = x + w["pos_embed.W_pos"][:n] if c.positions == "shortformer" else x, []
        for head in range(c.n_heads):
            q, k, v = x_qk @ w[f"{name}.W_Q"][head], x_qk @ w[f"{name}.W_K"][head], x @ w[f"{name}.W_V"][head]
            if c.qk_norm:
                q, k = (
                    x / np.sqrt((x**2).mean(1, keepdims=True) + c.norm_eps) * w.get(f"{name}.{letter}_norm.w", 1.0)
                    for x, letter in ((q, "q"), (k, "k"))
                )
            if c.smear != "none":
                share = 1 / (1 + math.exp(-w[f"{name}.a_smear"][head]))
                mixed = k if c.smear == "keys" else q
                mixed[1:] = share * mixed[1:] + (1 - share) * mixed[:-1].copy()
            q, k = (turn(q), turn(k)) if c.positions == "rotary" else (q, k)
            scores = [k[: i + 1] @ q[i] / root for i in range(n)]
            weights = [
                np.exp(s if c.attn_softcap is None else c.attn_softcap * np.tanh(s / c.attn_softcap)) for s in scores
            ]
            nothing = {"none": 0.0, "zero": 1.0}.get(c.sink) or np.exp(
                w.get(f"{name}.b_sink", np.full(99, -np.inf))[head]
            )
            if c.attention == "sigmoid":
                z = np.stack([e / (e + c.n_ctx) @ v[: i + 1] for i, e in enumerate(weights)])
            else:
                z = np.stack([e @ v[: i + 1] / (e.sum() + nothing) for i, e in enumerate(weights)])
            z = z / (1 + np.exp(-x @ w[f"{name}.W_gate"][head])) if c.attn_gate else z
            results.append(z @ w[f"{name}.W_O"][head] if c.attn_out else z)
        return np.sum(results, 0) + w.get(f"{name}.b_O", 0.0) if c.attn_out else np.concatenate(results, 1)

    def sublayer(x: np.ndarray, out: Any, ln: str) -> np.ndarray:
        pre = c.norm_position == "pre"
        y = out(norm(x, ln) if pre else x)
        y = x + y if c.residual else y
        return y if pre else norm(y, ln)

    x = w["embed.W_E"][tokens]
    if c.positions == "learned":
        x = x + w["pos_embed.W_pos"][:n]
    if c.positions == "sinusoidal":
        angle = [[i / 10000 ** (2 * (j // 2) / c.d_model) for j in range(c.d_model)] for i in range(n)]
        x = x + np.where(np.arange(c.d_model) % 2, np.cos(angle), np.sin(angle))
    for layer in range(c.n_layers):
        block = f"blocks.{layer}"
        x = sublayer(x, lambda y, block=block: attention(y, f"{block}.attn"), f"{block}.ln1")
        if c.mlp_hidden:
            x = sublayer(x, lambda y, block=block: mlp(y, f"{block}.mlp", len(c.mlp_hidden)), f"{block}.ln2")
    x = norm(x, "ln_final") if c.final_norm else x
    if c.unembed_hidden:
        return mlp(x, "unembed", len(c.unembed_hidden))
    return x @ (w["embed.W_E"].T if c.tie_embeddings else w["unembed.W_U"])


EVERYTHING = {
    **NATIVE,
    **{
        f"{norm}, {'gain' if gain else 'no gain'}, {position}": changes(
            norm=norm, norm_gain=gain, norm_position=position, mlp_hidden=(40,)
        )
        for norm, gain, position in product(("rms", "layer"), (True, False), ("pre", "post"))
    },
    "post-norm, attention only, no final norm": changes(norm="layer", norm_position="post", final_norm=False),
    "no residual": changes(residual=False, norm="none"),
    "no residual, MLP, norm": changes(residual=False, mlp_hidden=(40,)),
    "no residual, post-norm": changes(residual=False, norm_position="post", mlp_hidden=(40,)),
    "no W_O": changes(attn_out=False),
    "three hidden layers": changes(mlp_hidden=(40, 8, 16)),
    "unembedding is an MLP": changes(unembed_hidden=(20, 30), residual=False, attn_out=False, norm="none"),
    "no final norm": changes(final_norm=False),
    "rotary": changes(positions="rotary"),
    "rotary, full rank, d_model scale": changes(positions="rotary", d_head=24, attn_scale="d_model"),
    "sinusoidal": changes(positions="sinusoidal"),
    "shortformer": changes(positions="shortformer"),
    "shortformer, post-norm": changes(positions="shortformer", norm_position="post"),
    "no positions": changes(positions="none"),
    "softmax1": changes(sink="zero"),
    "a learned sink": changes(sink="learned", positions="rotary"),
    "a learned sink, unscaled": changes(sink="learned", attn_scale="none", attn_out=False),
    "a soft cap": changes(attn_softcap=0.5),
    "a soft cap beside a sink, turned": changes(attn_softcap=2, sink="learned", positions="rotary", attn_scale="none"),
    "q and k normed": changes(qk_norm=True, norm="layer"),
    "q and k normed, no gain, shortformer": changes(qk_norm=True, norm_gain=False, positions="shortformer"),
    "q and k normed, then turned": changes(qk_norm=True, positions="rotary", norm="none"),
    "sigmoids": changes(attention="sigmoid"),
    "sigmoids, capped, turned, gated": changes(
        attention="sigmoid", attn_softcap=2, positions="rotary", attn_gate=True, attn_scale="none"
    ),
    "a gate": changes(attn_gate=True, attn_out_bias=True),
    "a gate, shortformer, post-norm": changes(attn_gate=True, positions="shortformer", norm_position="post"),
    "a gate beside a sink, no W_O": changes(attn_gate=True, sink="learned", attn_out=False),
    "smeared keys": changes(smear="keys"),
    "smeared keys, normed, then turned": changes(smear="keys", qk_norm=True, positions="rotary"),
    "smeared queries": changes(smear="queries", sink="learned", positions="shortformer"),
    "tied": changes(tie_embeddings=True),
    "dropout is off in eval": changes(dropout=0.5, mlp_hidden=(40,)),
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_plain_loops_agree(name: str) -> None:
    model = as_trained(EVERYTHING[name], torch.float64)
    weights = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    # the tables of sines are float32 in the model
    close = 2e-5 if model.config.positions in ("rotary", "sinusoidal") else 1e-10
    with torch.no_grad():
        ours = model(TOKENS).numpy()
    theirs = np.stack([reference(model.config, weights, row) for row in TOKENS.tolist()])
    assert np.abs(theirs).max() > 0.1
    assert np.abs(ours - theirs).max() < close


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_future_is_unseen(name: str) -> None:
    model = as_trained(EVERYTHING[name], torch.float64)
    for watched in ((), ("hook_pattern",)):
        with torch.no_grad(), recording(*watched):
            before = model(TOKENS)
            for cut in (1, 6, 10):
                changed = torch.cat([TOKENS[:, :cut], (TOKENS[:, cut:] + 5) % 17], 1)
                after = model(changed)
                assert (after[:, :cut] - before[:, :cut]).abs().max() < 1e-12
                assert (after[:, cut] - before[:, cut]).abs().max() > 1e-6


def explicit(model: Transformer, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    with recording("hook_pattern") as seen:
        return model(tokens), seen


@given(
    n_heads=st.integers(1, 4),
    d_head=st.integers(1, 4).map(lambda half: 2 * half),
    n_layers=st.integers(1, 2),
    norm=st.sampled_from(["none", "rms", "layer"]),
    norm_position=st.sampled_from(["pre", "post"]),
    attn_scale=st.sampled_from(["d_head", "d_model", "none"]),
    residual=st.booleans(),
    positions=st.sampled_from(["learned", "sinusoidal", "rotary", "shortformer", "none"]),
    mlp_hidden=st.sampled_from([(), (9,), (5, 7)]),
    dropout=st.sampled_from([0.0, 0.3]),
    std=st.sampled_from([0.1, 1.0]),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9)),
)
def test_fused_equals_explicit(std: float, shape: tuple[int, int], **fields: Any) -> None:
    config = ModelConfig(d_model=12, n_ctx=9, d_vocab=7, init=InitConfig(attn=std), **fields)
    model = Transformer(config, seed=5).double().eval()
    tokens = torch.randint(0, 7, shape, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        fused, (logits, seen) = model(tokens), explicit(model, tokens)
    assert (fused - logits).abs().max() <= 1e-9 * max(1.0, float(fused.abs().max()))
    for pattern in seen.values():
        assert pattern.shape == (shape[0], config.n_heads, shape[1], shape[1])
        assert (pattern.sum(-1) - 1).abs().max() < 1e-12 and not pattern.triu(1).any()


def test_fused_and_explicit_have_the_same_gradients() -> None:
    model = as_trained(changes(mlp_hidden=(40,), positions="rotary"), torch.float64).requires_grad_()
    gradients = []
    for watched in ((), ("hook_attn_scores",)):
        with recording(*watched):
            loss = model(TOKENS).logsumexp(-1).sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    for fused, written_out in zip(*gradients, strict=True):
        assert (fused - written_out).abs().max() < 1e-9 * (1 + fused.abs().max())
