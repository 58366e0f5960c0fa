"""Keys that are no positions: a learned one, one of zeros, a sink that has no value."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

import tracer
from tests.causal_families import gpt_oss
from tests.hooks.by_hand import ByHand
from tracer.interventions.edits import recording

BATCH, T, HEADS, D = 3, 7, 4, 16
SEEN = torch.ones(T, T, dtype=torch.bool).tril()
hf: Any = transformers


class Torch(nn.Module):
    """nn.MultiheadAttention, fused or with its weights asked for."""

    def __init__(self, bias: bool, zero: bool, fused: bool, causal: bool, batch_first: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mha = nn.MultiheadAttention(
            D, HEADS, add_bias_kv=bias, add_zero_attn=zero, batch_first=batch_first, bias=True
        )
        self.fused, self.mask = fused, ~SEEN if causal else None

    def forward(self, x: Tensor) -> Tensor:
        x = 3 * (x if self.mha.batch_first else x.transpose(0, 1))
        out = self.mha(x, x, x, attn_mask=self.mask, need_weights=not self.fused)[0]
        return out if self.mha.batch_first else out.transpose(0, 1)


def expected(pattern: Tensor, causal: bool) -> dict[str, Tensor]:
    """Entropies over all keys, what asks for positions over these, from a pattern in float64; rows from the second."""
    own, n = pattern[..., :T], torch.arange(T)
    extra = pattern.shape[-1] - T
    entropy = torch.special.entr(pattern).sum(-1)
    keys = n + 1 + extra if causal else torch.full((T,), T + extra)
    rows = {
        "entropy": entropy, "entropy_normalised": entropy / keys.log(), "confidence": pattern.amax(-1),
        "first_token": own[..., 0], "current_token": own.diagonal(dim1=-2, dim2=-1),
        "attended_distance": (own * (n[:, None] - n).abs()).sum(-1),
    }  # fmt: skip
    means = {name: row[:, :, 1:].mean((0, 2)) for name, row in rows.items()}
    return {**means, "previous_token": own.diagonal(-1, -2, -1).mean((0, 2))}


def compare(found: Any, want: dict[str, Tensor]) -> None:
    for name, value in want.items():
        np.testing.assert_allclose(found[name].values[0], value, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(("bias", "zero"), [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_learned_and_zero_keys(bias: bool, zero: bool, fused: bool, causal: bool) -> None:
    model, x = Torch(bias, zero, fused, causal).eval(), torch.randn(BATCH, T, D)
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model, keep=BATCH) as watcher:
            torch.testing.assert_close(model(x), plain)  # torch has a kernel of its own for what nobody watches
            with recording("hook_pattern") as seen:
                model(x)
            with watcher.ablate({(0, 1)}):
                off = model(x)
        mha, wide = model.mha.double(), 3 * x.double()
        pattern = mha(wide, wide, wide, attn_mask=model.mask, average_attn_weights=False)[1]
        compare(watcher.read(), expected(pattern, causal))
        mha.out_proj.weight[:, 4:8] = 0
        assert (off - mha(wide, wide, wide, attn_mask=model.mask)[0]).abs().max() < 1e-5
    names = ("bias_k",) * bias + ("zero",) * zero
    assert [(one.kind, one.causal, one.extra) for one in watcher.layers] == [("self", causal, names)]
    assert watcher.read()["extra_keys"].values.tolist() == [" ".join(names)]
    assert pattern.shape[-1] == T + bias + zero == watcher.pattern(0, 0).shape[1]
    for head in range(HEADS):
        assert (watcher.pattern(0, head, sequence=2) - pattern[2, head]).abs().max() < 1e-6
    assert (seen["blocks.0.attn.hook_pattern"] - pattern).abs().max() < 1e-6


def test_the_batch_may_come_second() -> None:
    model = Torch(True, False, True, True, batch_first=False).eval()
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(torch.randn(BATCH, T, D))
    assert [(one.kind, one.causal, one.extra) for one in watcher.layers] == [("self", True, ("bias_k",))]


SINKS = torch.tensor([2.0, -1.0, 0.0, 0.5])


def attention_with_sink(where: str, dropout: bool = False) -> Any:
    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.mT / 2).masked_fill(~SEEN, -math.inf)
        sink = SINKS.view(1, -1, 1, 1).expand(len(q), -1, T, 1)
        parts = [scores, sink] if where == "last" else [sink, scores]
        weights = torch.cat(parts, -1).softmax(-1)
        weights = weights[..., :-1] if where == "last" else weights.narrow(-1, 1, T)
        return (nn.functional.dropout(weights, 0.1, training=dropout) @ v).transpose(1, 2)

    return how


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("dropout", [False, True])
def test_a_sink_is_a_key_without_a_value(where: str, dropout: bool) -> None:
    model, x = ByHand(attention_with_sink(where, dropout)), torch.randn(BATCH, T, D)
    q, k, v = (t.detach().double().transpose(1, 2) for t in model.parts(x))
    scores = (q @ k.mT / 2).masked_fill(~SEEN, -math.inf)
    weights = scores.exp()
    total = weights.sum(-1, keepdim=True) + SINKS.double().exp().view(1, -1, 1, 1)
    pattern = torch.cat([weights, SINKS.double().exp().view(1, -1, 1, 1).expand_as(weights[..., :1])], -1) / total
    with torch.no_grad(), tracer.watch(model, keep=BATCH) as watcher:
        model(x)
        with watcher.ablate({(0, 2)}):
            off = model(x)
    z = (pattern[..., :T] @ v).transpose(1, 2)
    z[:, :, 2] = 0
    assert dropout or (off - model.out(z.flatten(2).float())).abs().max() < 2e-6
    assert [(one.causal, one.extra) for one in watcher.layers] == [(True, ("sink",))]
    compare(watcher.read(), expected(pattern, True))
    for head in range(HEADS):
        assert (watcher.pattern(0, head, sequence=1) - pattern[1, head]).abs().max() < 1e-6


def test_gpt_oss_against_its_own_pattern() -> None:
    """Learned sinks, grouped heads, a sliding window: the weights that the model gives back lack the sink's."""
    model, ids = gpt_oss(), torch.randint(2, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plain = model(ids).logits
        own = model.double()(ids, output_attentions=True).attentions
        model.float()
        with tracer.watch(model, keep=2) as watcher:
            assert torch.equal(model(ids).logits, plain)
    assert [(one.kind, one.causal, one.extra) for one in watcher.layers] == [("self", True, ("sink",))] * 2
    found = watcher.read()
    for layer, weights in enumerate(own):
        sink = 1 - weights.sum(-1, keepdim=True)
        assert sink.max() > 0.5  # some heads rest on it
        whole = torch.cat([weights, sink], -1)
        for head in range(4):
            assert (watcher.pattern(layer, head, sequence=1) - whole[1, head]).abs().max() < 2e-6
        entropy = torch.special.entr(whole).sum(-1)[:, :, 1:].mean((0, 2))
        np.testing.assert_allclose(found["entropy"].values[layer], entropy, atol=1e-5)
        np.testing.assert_allclose(found["first_token"].values[layer], weights[:, :, 1:, 0].mean((0, 2)), atol=1e-5)
        assert np.isnan(found["max_logit"].values[layer]).all()  # the model subtracts each row's largest before
