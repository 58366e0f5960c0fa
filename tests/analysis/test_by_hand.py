"""Attribution, lens, patching, why and survey of a GPT-2 in float64, against numpy that knows nothing of ours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import tracer
from tests.causal_families import causal
from tracer.analysis import survey as surveying

TOKENS, OTHER = (torch.randint(2, 50, (2, 7), generator=torch.Generator().manual_seed(i)) for i in (0, 1))
HEADS, D = 4, 8
MODEL: Any = causal("GPT-2")
W = {name.removeprefix("transformer."): x.numpy() for name, x in MODEL.state_dict().items()}


class Layer(NamedTuple):
    pre: np.ndarray
    pattern: np.ndarray
    z: np.ndarray
    heads: np.ndarray
    """[head batch pos d_model]"""
    mlp: np.ndarray


def norm(x: np.ndarray, name: str) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / deviation(x) * W[f"{name}.weight"] + W[f"{name}.bias"]


def deviation(x: np.ndarray) -> np.ndarray:
    return np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def qkv(layer: int) -> Any:
    """Weights [d_model 3 head d] and biases."""
    return (W[f"h.{layer}.attn.c_attn.{kind}"].reshape(*shape, 3, HEADS, D)
            for kind, shape in (("weight", (32,)), ("bias", ())))  # fmt: skip


def forward(tokens: torch.Tensor, instead: dict[tuple[int, int], np.ndarray] | None = None) -> tuple[list[Layer], Any]:
    """Every layer, and what leaves the last; `instead`: z [batch pos d] of a (layer, head)."""
    x = W["wte.weight"][tokens] + W["wpe.weight"][: tokens.shape[1]]
    layers = []
    for i in range(3):
        weight, bias = qkv(i)
        q, k, v = (
            np.einsum("bpd,dhe->bhpe", norm(x, f"h.{i}.ln_1"), weight[:, j]) + bias[j][:, None] for j in range(3)
        )
        scores = np.where(np.tri(tokens.shape[1], dtype=bool), q @ k.swapaxes(-1, -2) / D**0.5, -np.inf)
        pattern = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        z = pattern @ v
        for (layer, head), other in (instead or {}).items():
            if layer == i:
                z[:, head] = other
        heads = np.einsum("bhpe,hed->hbpd", z, W[f"h.{i}.attn.c_proj.weight"].reshape(HEADS, D, 32))
        mid = x + heads.sum(0) + W[f"h.{i}.attn.c_proj.bias"]
        inside = norm(mid, f"h.{i}.ln_2") @ W[f"h.{i}.mlp.c_fc.weight"] + W[f"h.{i}.mlp.c_fc.bias"]
        gelu = inside / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (inside + 0.044715 * inside**3)))
        mlp = gelu @ W[f"h.{i}.mlp.c_proj.weight"] + W[f"h.{i}.mlp.c_proj.bias"]
        layers.append(Layer(x, pattern, z, heads, mlp))
        x = mid + mlp
    return layers, x


def log_p(final: np.ndarray) -> np.ndarray:
    logits = norm(final, "ln_f") @ W["wte.weight"].T
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_attribution_and_lens() -> None:
    layers, final = forward(TOKENS)
    targets = torch.cat([TOKENS[:, 1:], OTHER[:, :1]], 1)
    direction = W["wte.weight"][targets] - W["wte.weight"].mean(0)

    def share(x: np.ndarray) -> np.ndarray:
        """Of the logit: the held norm, one part at a time."""
        return (((x - x.mean(-1, keepdims=True)) / deviation(final) * W["ln_f.weight"]) * direction).sum(-1)

    found = tracer.logit_attribution(MODEL, TOKENS, targets)
    np.testing.assert_allclose(found.heads, [share(one.heads) for one in layers], atol=1e-12)
    np.testing.assert_allclose(found.mlps, [share(one.mlp) for one in layers], atol=1e-12)
    np.testing.assert_allclose(found.embed, share(layers[0].pre), atol=1e-12)
    biases = sum(share(W[f"h.{i}.attn.c_proj.bias"][None, None]) for i in range(3)) + direction @ W["ln_f.bias"]
    np.testing.assert_allclose(found.biases, biases, atol=1e-12)

    lens, streams = tracer.logit_lens(MODEL, TOKENS, targets), [*(one.pre for one in layers), final]
    wanted = np.array([np.take_along_axis(log_p(x), targets[..., None].numpy(), -1)[..., 0] for x in streams])
    np.testing.assert_allclose(lens.log_p, wanted, atol=1e-12)
    np.testing.assert_array_equal(lens.top, [log_p(x).argmax(-1) for x in streams])
    np.testing.assert_array_equal(
        lens["rank"], [(log_p(x) > y[..., None]).sum(-1) for x, y in zip(streams, wanted, strict=True)]
    )


@pytest.mark.parametrize("into", ["corrupted", "clean"])
def test_patching(into: str) -> None:
    given, other = (OTHER, TOKENS) if into == "corrupted" else (TOKENS, OTHER)
    theirs, clean = forward(other)[0], log_p(forward(TOKENS)[1])[:, -1]
    found = tracer.patch(MODEL, TOKENS, OTHER, into=into, rows=True)
    for layer, head in np.ndindex(3, HEADS):
        after = log_p(forward(given, {(layer, head): theirs[layer].z[:, head]})[1])[:, -1]
        np.testing.assert_allclose(found[layer, head], (np.exp(clean) * (clean - after)).sum(-1), atol=1e-12)


def test_each_pair_of_sources_of_a_score() -> None:
    layers, _ = forward(TOKENS[:1])
    layer, head, query, key = 1, 2, 6, 3
    weight, bias = qkv(layer)
    parts = [W["wte.weight"][TOKENS[0]], W["wpe.weight"][:7], *layers[0].heads[:, 0], W["h.0.attn.c_proj.bias"][None],
             layers[0].mlp[0]]  # fmt: skip

    def sides(into: int, at: int) -> np.ndarray:
        """[source d]: each through the held norm, and what is constant."""
        held = deviation(layers[layer].pre[0, at])
        read = [(x[min(at, len(x) - 1)] - x[min(at, len(x) - 1)].mean()) / held * W["h.1.ln_1.weight"] for x in parts]
        return np.array([*read, W["h.1.ln_1.bias"]]) @ weight[:, into, head] + np.eye(9)[8][:, None] * bias[into, head]

    found = tracer.why(MODEL, TOKENS[:1], layer, head, query, key)
    names = ["token", "position", "L0H0", "L0H1", "L0H2", "L0H3", "bias 0", "MLP 0", "own biases"]
    assert found.query_source.values.tolist() == found.key_source.values.tolist() == names
    keys = np.array([sides(1, at) for at in range(query + 1)])
    scores = np.einsum("id,kjd->kij", sides(0, query), keys) / D**0.5
    np.testing.assert_allclose(found, scores[key], atol=1e-12)
    np.testing.assert_allclose(found.above, scores[key] - np.delete(scores, key, 0).mean(0), atol=1e-12)


def test_what_a_survey_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "SAMPLE", 1)
    found, rows = tracer.survey(MODEL, TOKENS), np.array([one.pattern for one in forward(TOKENS)[0]])[..., 1:, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_allclose(found.entropy, -np.nansum(rows * np.log(rows), -1).mean((1, 3)), atol=1e-6)
    np.testing.assert_allclose(found.sink, rows[..., 0].mean((1, 3)), atol=1e-6)
    back = np.arange(1, 7)[:, None] - np.arange(7)
    for name, near, far in (("0", 0, 0), ("1", 1, 1), ("2", 2, 2), ("3-4", 3, 4), ("5-8", 5, 8)):
        mass = (rows * ((back >= near) & (back <= far))).sum(-1).mean((1, 3))
        np.testing.assert_allclose(found.mass.sel(distance=name), mass, atol=1e-6)
