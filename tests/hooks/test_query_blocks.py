"""Attention in blocks of queries is one attention, and what only looks like it is none."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tests.hooks.by_hand import ByHand
from tracer.hooks.refusals import CannotWatch
from tracer.interventions.edits import Edit, applied, recording

BATCH, T, SIZE = 3, 10, 4
SEEN = torch.ones(T, T, dtype=torch.bool).tril()


def in_blocks(fused: bool, causal: bool, trimmed: bool = False, window: bool = False) -> Callable[..., Tensor]:
    """Attention of three blocks of queries, the last of them short; trimmed: without the keys after the block."""

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        blocks = []
        for start in range(0, T, SIZE):
            end = min(start + SIZE, T)
            keys = slice(start if window else 0, end if trimmed or window else T)
            mask = SEEN[start:end, keys] if causal else None
            if fused:
                blocks.append(F.scaled_dot_product_attention(q[:, :, start:end], k[:, :, keys], v[:, :, keys], mask))
            else:
                scores = q[:, :, start:end] @ k[:, :, keys].mT / 2
                scores = scores if mask is None else scores.masked_fill(~mask, -math.inf)
                blocks.append(scores.softmax(-1) @ v[:, :, keys])
        return torch.cat(blocks, 2).transpose(1, 2)

    return how


def exact(model: ByHand, x: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """The pattern and z of all queries at once, in float64."""
    q, k, v = (t.double() for t in model.parts(x))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2
    pattern = (scores.masked_fill(~SEEN, -math.inf) if causal else scores).softmax(-1)
    return pattern, torch.einsum("bhqk,bkhd->bqhd", pattern, v)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("causal", "trimmed"), [(False, False), (True, False), (True, True)])
def test_blocks_of_queries_are_one_attention(fused: bool, causal: bool, trimmed: bool) -> None:
    model, x = ByHand(in_blocks(fused, causal, trimmed)).eval(), torch.randn(BATCH, T, 16)
    pattern, z = exact(model, x, causal)
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model, keep=BATCH) as watcher:
            assert torch.equal(model(x), plain)
            assert torch.equal(model(x), plain)
            for head in range(4):
                for i in range(BATCH):
                    assert (watcher.pattern(0, head, sequence=i) - pattern[i, head]).abs().max() < 1e-6
            found = watcher.read()
            z[:, :, 2] = 0
            with watcher.ablate({(0, 2)}), recording("hook_pattern", "hook_z") as seen:
                off = model(x)
            z[:, :, 2] = exact(model, x, causal)[1][:, :, 2].mean(0)
            with watcher.ablate({(0, 2)}, "mean", lambda: model(x)):
                mean = model(x)
    assert [(one.kind, one.causal, one.n_heads) for one in watcher.layers] == [("self", causal, 4)]
    entropy = torch.special.entr(pattern).sum(-1)[:, :, 1:]
    assert (torch.from_numpy(found["entropy"].values[0]) - entropy.mean((0, 2))).abs().max() < 1e-6
    keys = torch.arange(1, T + 1) if causal else torch.full((T,), T)
    share = (entropy / keys[1:].log()).mean((0, 2))
    assert (torch.from_numpy(found["entropy_normalised"].values[0]) - share).abs().max() < 1e-6
    before = pattern.diagonal(-1, -2, -1).mean((0, 2))
    assert (torch.from_numpy(found["previous_token"].values[0]) - before).abs().max() < 1e-6
    assert (mean - model.out(z.flatten(2).float())).abs().max() < 2e-6
    z[:, :, 2] = 0
    assert (off - model.out(z.flatten(2).float())).abs().max() < 2e-6
    assert (seen["blocks.0.attn.hook_pattern"] - pattern).abs().max() < 1e-6
    assert (seen["blocks.0.attn.hook_z"] - z).abs().max() < 2e-6


def test_only_z_of_blocks_can_be_changed() -> None:
    model, x = ByHand(in_blocks(False, True)).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad(), tracer.watch(model):
        model(x)
        with pytest.raises(CannotWatch, match="in blocks of queries"), applied([Edit("blocks.0.attn.hook_v", (1,))]):
            model(x)


@pytest.mark.parametrize("fused", [True, False])
def test_blocks_with_keys_of_their_own_are_refused(fused: bool) -> None:
    model, x = ByHand(in_blocks(fused, False, window=True)).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model) as watcher:
            assert torch.equal(model(x), plain)
    with pytest.raises(CannotWatch, match="cannot be known how these make up one attention"):
        watcher.read()


class Looped(nn.Module):
    """nn.MultiheadAttention called with some queries at a time; or one that attends to something else, twice."""

    def __init__(self, other: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mha, self.other = nn.MultiheadAttention(16, 4, batch_first=True), other

    def forward(self, x: Tensor) -> Tensor:
        keys = x.flip(0).repeat(1, 2, 1) if self.other else x
        parts = (x, x) if self.other else x.split(SIZE, 1)
        return torch.cat([self.mha(part, keys, keys, need_weights=False)[0] for part in parts], 1)


def test_multi_head_attention_in_a_loop() -> None:
    model, x = Looped(other=False).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad(), tracer.watch(model, keep=BATCH) as watcher:
        model(x)
        weights = model.mha.double()(x.double(), x.double(), x.double(), average_attn_weights=False)[1]
    assert [(one.kind, one.causal, one.n_heads) for one in watcher.layers] == [("self", False, 4)]
    for head in range(4):
        assert (watcher.pattern(0, head, sequence=1) - weights[1, head]).abs().max() < 1e-6


def test_two_attentions_to_the_same_keys_are_not_joined() -> None:
    """As many queries in all as there are keys, of a module whose weights are shared: still two cross attentions."""
    with torch.no_grad(), tracer.watch(model := Looped(other=True).eval()) as watcher:
        model(torch.randn(BATCH, T, 16))
    assert [(one.name, one.kind) for one in watcher.layers] == [("mha", "cross"), ("mha#1", "cross")]
    assert watcher.pattern(1, 0).shape == (T, 2 * T)


class Latents(nn.Module):
    """A few learned queries read a whole sequence: fewer queries than keys, and no block of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, 2, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        kv = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
        return F.scaled_dot_product_attention(self.latents.transpose(1, 2).expand(len(x), -1, -1, -1), kv, kv).sum(2)


def test_a_few_queries_that_read_a_sequence_are_cross_attention() -> None:
    model, x = nn.Sequential(Latents()).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad(), tracer.watch(model) as watcher:
        for _ in range(2):
            model(x)
    assert [(one.kind, one.causal) for one in watcher.layers] == [("cross", False)]
    assert watcher.pattern(0, 0).shape == (2, T)
