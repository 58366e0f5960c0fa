"""Attention that people wrote by hand, in many words: the eye sees its patterns and edits its heads."""

from collections.abc import Callable

import einops
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

import tracer
from tests.hooks.by_hand import BATCH, ByHand, T, einsum_bhqk
from tracer.ablate import plan
from tracer.interventions.edits import Edit, applied, recording


def einsum_values_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bkhd,bhqk->bqhd", v, F.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / 2, -1))


def einsum_bqhk(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bqhk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bqhk", q, k) / 2).softmax(-1), v)


def einsum_heads_last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in labml's annotated transformer: scores [query key batch head], softmax over axis 1."""
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    scores = torch.einsum("ibhd,jbhd->ijbh", q, k) / 2
    return torch.einsum("ijbh,jbhd->ibhd", nn.Softmax(dim=1)(scores), v).transpose(0, 1)


def einsum_ellipsis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return torch.einsum("...ij,...jd->...id", (torch.einsum("...id,...jd->...ij", q, k) / 2).softmax(-1), v).transpose(
        1, 2
    )


def einops_head_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = einops.einsum(q, k, "batch q head d, batch k head d -> head batch q k") / 2
    return einops.einsum(scores.softmax(-1), v, "head batch q k, batch k head d -> batch q head d")


def matmul_cast(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    weights = torch.softmax(torch.matmul(q, k.transpose(2, 3)) / 2, dim=-1, dtype=torch.float64).type_as(q)
    return torch.matmul(F.dropout(weights, 0.5, training=False), v).transpose(1, 2)


def folded_bmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in Bloom: softmax with an axis of heads, product without."""
    b, t, h, _ = q.shape
    q, k, v = (rearrange(x, "b t h d -> (b h) t d") for x in (q, k, v))
    weights = (torch.bmm(q, k.mT) / 2).view(b, h, t, t).softmax(-1).view(b * h, t, t)
    return rearrange(torch.bmm(weights, v), "(b h) t d -> b t h d", h=h)


def unfolded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    b, t, h, _ = q.shape
    q, k = (rearrange(x, "b t h d -> (b h) t d") for x in (q, k))
    weights = torch.baddbmm(torch.zeros(1), q, k.mT, alpha=0.5).softmax(-1).view(b, h, t, t)
    return (weights @ v.transpose(1, 2)).transpose(1, 2)


def named_axis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """In NumPy's word for it."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return (torch.softmax(q @ k.mT / 2, axis=-1) @ v).transpose(1, 2)  # pyrefly: ignore[missing-argument, unexpected-keyword]


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(query=q, key=k, value=v, scale=0.5).transpose(1, 2)


HANDS = (
    einsum_bhqk, einsum_values_first, einsum_bqhk, einsum_heads_last, einsum_ellipsis, einops_head_first, matmul_cast,
    folded_bmm, unfolded, named_axis, fused,
)  # fmt: skip


@pytest.mark.parametrize("how", HANDS)
def test_attention_by_hand(how: Callable[..., Tensor]) -> None:
    """The pattern, and that switching a head off is zeroing its z before the output map."""
    model = ByHand(how).eval()
    x = torch.randn(BATCH, T, 16)
    q, k, v = model.parts(x)
    exact = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()).mul(0.5).softmax(-1)
    z = torch.einsum("bhqk,bkhd->bqhd", exact, v.double())
    z[:, :, 2] = 0
    with torch.no_grad(), tracer.watch(model, keep=BATCH) as watcher:
        plain = model(x)
        assert [(one.n_heads, one.causal, one.kind) for one in watcher.layers] == [(4, False, "self")]
        for head in range(4):
            for i in range(BATCH):
                assert (watcher.pattern(0, head, sequence=i) - exact[i, head]).abs().max() < 1e-6
        with watcher.ablate({(0, 2)}), recording("hook_pattern", "hook_z") as seen:
            off = model(x)
    assert (off - model.out(z.flatten(2).float())).abs().max() < 2e-6 < 1e-3 < (off - plain).abs().max()
    assert (seen["blocks.0.attn.hook_pattern"] - exact).abs().max() < 1e-6
    assert (seen["blocks.0.attn.hook_z"] - z).abs().max() < 2e-6


class Head(nn.Module):
    def __init__(self, flash: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.flash = *(nn.Linear(16, 4, bias=False) for _ in range(3)), flash

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        if self.flash:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        weights = (q @ k.transpose(-2, -1) * 0.5).masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
        return F.softmax(weights, dim=-1) @ v


class Tutorial(nn.Module):
    """A layer is a list of single heads."""

    def __init__(self, flash: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"heads": nn.ModuleList(Head(flash) for _ in range(4)), "proj": nn.Linear(16, 16)})
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            x = x + layer["proj"](torch.cat([head(x) for head in layer["heads"]], -1))  # pyrefly: ignore[not-iterable]
        return x


@pytest.mark.parametrize("flash", [True, False])
def test_single_heads_in_a_list_are_one_layer(flash: bool) -> None:
    model, x = Tutorial(flash).eval(), torch.randn(BATCH, T, 16)
    taps = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_pattern")
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model, keep=BATCH) as watcher:
            assert (model(x) - plain).abs().max() < 1e-6
            with recording(*taps) as seen:
                model(x)
            with applied([Edit("blocks.1.attn.hook_v", (3,)), *plan({(0, 1), (0, 2)}, "zero")]):
                off = model(x)
            for i, head in ((0, 1), (0, 2), (1, 3)):
                model.layers[i]["proj"].weight[:, 4 * head : 4 * head + 4] = 0  # pyrefly: ignore[bad-index]
        assert (off - model(x)).abs().max() < 2e-6
    assert [(one.name, one.n_heads, one.causal) for one in watcher.layers] == [
        ("layers.0.heads", 4, True), ("layers.1.heads", 4, True),
    ]  # fmt: skip
    kept = taps if flash else taps[2:]
    assert {name: tuple(t.shape) for name, t in seen.items()} == {
        f"blocks.{i}.attn.{tap}": (BATCH, 4, T, T) if tap == "hook_pattern" else (BATCH, T, 4, 4)
        for i in range(2)
        for tap in kept
    }
    v = torch.stack([head.value(x) for head in model.layers[0]["heads"]], 2)  # pyrefly: ignore[bad-index]
    assert torch.equal(seen["blocks.0.attn.hook_v"], v)


def test_a_bias_for_each_head_is_no_batch_of_masks() -> None:
    """A mask [head query key] beside q [batch head query d], as many sequences as heads."""
    bias = torch.randn(4, T, T)

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)

    model, x = ByHand(how).eval(), torch.randn(4, T, 16)
    with torch.no_grad(), tracer.watch(model, keep=4) as watcher:
        model(x)
        q, k, _ = model.parts(x)
    exact = (torch.einsum("bqhd,bkhd->bhqk", q, k) / 2 + bias).softmax(-1)
    for i in range(4):
        assert max(float((watcher.pattern(0, h, sequence=i) - exact[i, h]).abs().max()) for h in range(4)) < 1e-6


class Vision(nn.Module):
    """As in timm: qkv in one map, fused or by hand, all patches see each other."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.proj, self.attn_drop, self.fused = nn.Linear(16, 48), nn.Linear(16, 16), nn.Dropout(0.1), fused

    def forward(self, x: Tensor) -> Tensor:
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            x = self.attn_drop((q * 0.5 @ k.transpose(-2, -1)).softmax(dim=-1)) @ v
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


def test_patches_see_each_other() -> None:
    x, found = torch.randn(BATCH, 9, 16), []
    for kind in (True, False):
        model = Vision(kind).eval()
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(x)
        assert not watcher.layers[0].causal and watcher.read()["induction"].isnull().all()
        found.append(torch.stack([watcher.pattern(0, h) for h in range(4)]))
    assert (found[0] - found[1]).abs().max() < 1e-6 and (found[0].sum(-1) - 1).abs().max() < 1e-6
