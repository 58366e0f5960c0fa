"""What the eye sees is what the model does: patterns and means of every head, whoever wrote it and however."""

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import einops
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

import tracer
from tracer.ablate import plan
from tracer.adapters.eye import CannotWatch
from tracer.adapters.watch import Watcher
from tracer.edits import Edit, applied, recording

BATCH, T = 3, 7
IDS = torch.randint(2, 50, (BATCH, T), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [0] * 2 + [1] * 5])


def inputs_of(name: str) -> dict[str, Tensor]:
    if name == "vit":
        return {"pixel_values": torch.rand(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    right = MASK.clone()
    right[2] = 1
    given = {"input_ids": IDS, "attention_mask": MASK if name not in ("bert", "t5", "bart") else right}
    if name in ("t5", "bart"):
        given |= {"decoder_input_ids": IDS.flip(1), "decoder_attention_mask": right.flip(0)}
    return given


def oracle(name: str, model: Any, given: dict[str, Tensor]) -> list[tuple[str, Tensor, Tensor]]:
    """(kind, pattern [batch head query key], real rows [batch query]) of each layer, in the order in which they run."""
    with torch.no_grad():
        out = model(**given, output_attentions=True)
    real = given.get("attention_mask")
    if name not in ("t5", "bart"):
        found = [("self", p) for p in out.attentions]
        return [(kind, p, torch.ones(p.shape[0], p.shape[2]) if real is None else real) for kind, p in found]
    assert real is not None
    layers = [("self", p, real) for p in out.encoder_attentions]
    for mine, cross in zip(out.decoder_attentions, out.cross_attentions, strict=True):
        theirs = given["decoder_attention_mask"]
        layers += [("self", mine, theirs), ("cross", cross, theirs)]
    return layers


def entropies(pattern: Tensor, real: Tensor) -> Tensor:
    """Mean over the real rows but the first of each sequence, in float64."""
    rows = torch.special.entr(pattern.double()).sum(-1)
    weight = (real.bool() & (real.cumsum(1) > 1))[:, None].double()
    return (rows * weight).sum((0, 2)) / weight.sum((0, 2))


KERNELS = [
    (name, kernel)
    for name in ("gpt2", "llama", "neox", "mistral", "qwen2", "bert", "t5", "bart", "vit", "gemma2", "bloom")
    for kernel in ("eager", "sdpa")
    if kernel == "eager" or name not in ("gemma2", "bloom")
]


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_patterns_are_those_of_hugging_face(build: Callable[..., Any], name: str, kernel: str) -> None:
    model, given = build(name, kernel), inputs_of(name)
    expected = oracle(name, build(name, "eager"), given)
    with torch.no_grad():
        plain = model(**given)[0]
        with tracer.watch(model, keep=BATCH) as watcher:
            seen = model(**given)[0]
        real = torch.ones(plain.shape[:2]) if name == "vit" else given.get("decoder_attention_mask", MASK)
        real = given["attention_mask"] if name == "bert" else real
        assert (seen - plain)[real.bool()].abs().max() < 2e-5
    found = watcher.read()
    assert found["kind"].values.tolist() == [kind for kind, *_ in expected]
    decoder = {"self": True, "cross": False} if name not in ("bert", "vit") else {"self": False}
    wanted = [decoder[kind] and not (name in ("t5", "bart") and i < 2) for i, (kind, *_) in enumerate(expected)]
    assert found["causal"].values.tolist() == wanted
    for layer, (_, pattern, rows) in enumerate(expected):
        for head in range(pattern.shape[1]):
            for i in range(BATCH):
                got = watcher.pattern(layer, head, sequence=i)
                assert (got - pattern[i, head])[rows[i].bool()].abs().max() < 4e-6
        torch.testing.assert_close(
            torch.from_numpy(found["entropy"].values[layer]).double(), entropies(pattern, rows), atol=2e-6, rtol=0
        )
    n_keys = expected[-1][1].shape[-1]
    assert (entropies(*expected[-1][1:]) < math.log(n_keys) - 0.05).any()  # heads are far from uniform


def test_same_tokens_of_a_decoder_are_its_own(build: Callable[..., Any]) -> None:
    """Encoder and decoder of one length look up in one table: copies are counted in the right tokens."""
    model = build("t5")
    encoder, decoder = torch.arange(2, 9)[None], torch.tensor([[5, 6, 5, 6, 5, 6, 5]])
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(input_ids=encoder, decoder_input_ids=decoder)
    found = watcher.read()
    duplicate = found["duplicate_token"].values
    assert (duplicate[:2] == 0).all() and (duplicate[[2, 4]] > 0).all()
    for name in ("duplicate_token", "induction", "current_token", "previous_token", "attended_distance"):
        assert found[name][[3, 5]].isnull().all() and not found[name][[0, 2]].isnull().any(), name


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
def test_half_precision_is_measured_from_what_enters_the_softmax(
    build: Callable[..., Any], kernel: str, precision: str
) -> None:
    exact, model = build("llama", "eager"), build("llama", kernel)
    if precision == "bfloat16":
        model = model.to(torch.bfloat16)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        plain = model(IDS).logits
        with tracer.watch(model) as watcher:
            seen = model(IDS).logits
    with torch.no_grad():
        true = exact(IDS).logits
    assert seen.dtype == plain.dtype and (seen - true).abs().max() < 1.5 * (plain - true).abs().max()
    assert all(torch.isfinite(torch.from_numpy(watcher.read()["entropy"].values)).flatten())
    expected = torch.stack(
        [entropies(p, torch.ones(BATCH, T)) for _, p, _ in oracle("llama", exact, {"input_ids": IDS})]
    )
    torch.testing.assert_close(
        torch.from_numpy(watcher.read()["entropy"].values).double(), expected, atol=0.05, rtol=0
    )  # fmt: skip


# nn.MultiheadAttention and what is built on it.


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "causal", "padding", "both", "numbers"])
def test_multihead_attention(need_weights: bool, batch_first: bool, masks: str) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=batch_first, dropout=0.5).eval()
    x = torch.randn(BATCH, T, 16) * 3
    padding = MASK == 0 if masks in ("padding", "both") else None
    if padding is not None:
        padding[2, :2] = False  # a causal row that sees nothing is nan in torch
        padding[2, 4:] = True
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    mask = {"causal": future, "both": future, "numbers": torch.randn(T, T)}.get(masks)
    given = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        options: dict[str, Any] = {"key_padding_mask": padding, "attn_mask": mask}
        plain, expected = layer(given, given, given, **options, average_attn_weights=False)
        with tracer.watch(layer, keep=BATCH) as watcher:
            seen = layer(given, given, given, **options, need_weights=need_weights)[0]
    assert (seen - plain).abs().max() < 1e-6
    assert watcher.layers[0].causal == (masks in ("causal", "both")) and watcher.layers[0].n_heads == 4
    rows = torch.ones(BATCH, T) if padding is None else (~padding).float()
    found = watcher.read()
    for head in range(4):
        for i in range(BATCH):
            got = watcher.pattern(0, head, sequence=i)
            assert (got - expected[i, head]).abs().max() < 1e-6
    torch.testing.assert_close(
        torch.from_numpy(found["entropy"].values[0]).double(), entropies(expected, rows), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_training_with_dropout_is_the_same_to_the_bit(need_weights: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.5).train()
    x = torch.randn(BATCH, T, 16)

    def step() -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        layer.zero_grad()
        out = layer(x, x, x, need_weights=need_weights)[0]
        out.square().sum().backward()
        return out.detach(), *(p.grad.clone() for p in layer.parameters() if p.grad is not None), torch.rand(3)

    plain = step()
    with tracer.watch(layer) as watcher:
        watched = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    with torch.no_grad():
        expected = layer.eval()(x, x, x, average_attn_weights=False)[1]
    assert (watcher.pattern(0, 3) - expected[0, 3]).abs().max() < 1e-6  # without the dropout


def test_torch_encoder_and_decoder() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    source, target = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    options: dict[str, Any] = {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    with torch.no_grad():
        with torch.enable_grad():
            plain = model(source, target, **options)
        with tracer.watch(model, keep=2) as watcher:
            seen = model(source, target, **options)
    assert (seen - plain).abs().max() < 2e-6
    layers = [(one.name, one.kind, one.causal) for one in watcher.layers]
    assert layers == [
        ("encoder.layers.0.self_attn", "self", False), ("decoder.layers.0.self_attn", "self", True),
        ("decoder.layers.0.multihead_attn", "cross", False),
    ]  # fmt: skip
    found = watcher.read()["entropy"]
    for layer, real in ((0, ~padding), (1, torch.ones(2, 5)), (2, torch.ones(2, 5))):  # the decoder has no padding
        pattern = torch.stack([watcher.pattern(layer, 2, sequence=i) for i in range(2)])
        assert float(found[layer, 2]) == pytest.approx(float(entropies(pattern[:, None], real.float())), abs=1e-6)
    assert (watcher.pattern(2, 0, sequence=1)[:, 3:] == 0).all()


# By hand, in many words.


class ByHand(nn.Module):
    """One layer, x [batch pos d] -> z merged; `how` computes z [batch pos head d_head] from q, k, v of that order."""

    def __init__(self, how: Callable[..., Tensor], heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out, self.how, self.heads = nn.Linear(16, 48), nn.Linear(16, 16), how, heads

    def parts(self, x: Tensor) -> list[Tensor]:
        return [rearrange(t, "b t (h d) -> b t h d", h=self.heads) for t in self.qkv(3 * x).chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.how(*self.parts(x)).flatten(2))


def einsum_bhqk(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhqk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bhqk", q, k) / 2).softmax(-1), v)


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


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(query=q, key=k, value=v, scale=0.5).transpose(1, 2)


HANDS = (
    einsum_bhqk, einsum_values_first, einsum_bqhk, einsum_heads_last, einsum_ellipsis, einops_head_first, matmul_cast,
    folded_bmm, unfolded, fused,
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
            x = x + layer["proj"](torch.cat([head(x) for head in layer["heads"]], -1))  # type: ignore[arg-type]
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
                model.layers[i]["proj"].weight[:, 4 * head : 4 * head + 4] = 0  # type: ignore[index]
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
    v = torch.stack([head.value(x) for head in model.layers[0]["heads"]], 2)  # type: ignore[index, operator]
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


# What is refused, and why.


def wrong_axis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return ((q @ k.mT).softmax(-2) @ v).transpose(1, 2)


def masked_after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return ((q @ k.mT).softmax(-1).tril() @ v).transpose(1, 2)


def masked_after_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    weights = (q @ k.mT).softmax(-1)
    weights[..., 0] = 0
    return (weights @ v).transpose(1, 2)


def heads_in_the_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (rearrange(t, "b t h d -> (h b) t d") for t in (q, k, v))
    return rearrange((q @ k.mT).softmax(-1) @ v, "(h b) t d -> b t h d", h=4)


def fused_heads_in_the_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (rearrange(t, "b t h d -> (h b) t d") for t in (q, k, v))
    return rearrange(F.scaled_dot_product_attention(q, k, v), "(h b) t d -> b t h d", h=4)


def no_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.cumsum(1) * k.sigmoid() + v


REFUSED = {
    wrong_axis: r"softmax\(dim=-1\) is meant",
    masked_after: "masked or scaled after the softmax",
    masked_after_in_place: "masked or scaled after the softmax",
    heads_in_the_batch: r"write the softmax over scores \[batch, head",
    fused_heads_in_the_batch: r"write the softmax over scores \[batch, head",
    no_attention: "no attention was seen in this ByHand: neither F.scaled",
}


@pytest.mark.parametrize(("how", "why"), REFUSED.items())
def test_what_is_no_attention_is_refused(how: Callable[..., Tensor], why: str) -> None:
    model, x = ByHand(how).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad():
        plain = model(x)
        with tracer.watch(model) as watcher:
            assert torch.equal(model(x), plain)  # the forward pass goes on
    with pytest.raises(CannotWatch, match=why):
        watcher.read()


def test_heads_that_change_their_number_are_refused() -> None:
    model, x = ByHand(einsum_bhqk).eval(), torch.randn(BATCH, T, 16)
    with torch.no_grad(), Watcher(model) as watcher:
        model(x)
        model.heads = 2
        model(x)
        with pytest.raises(CannotWatch, match="2 heads now and 4 before"):
            watcher.read()
        with pytest.raises(CannotWatch, match="2 heads now and 4 before"), applied(plan({(0, 3)}, "zero")):
            model(x)


# Nothing stays.


def test_patterns_do_not_outlive_their_layer(build: Callable[..., Any]) -> None:
    """Of a model that makes its own patterns, one is alive at a time."""
    model, alive = build("gpt2", "eager"), []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") == "softmax":
                alive.append((weakref.ref(result), sum(one() is not None for one, _ in alive)))
            return result

    with torch.no_grad(), Watcher(model, keep=1) as watcher, Spy():
        model(IDS)
        gc.collect()
        assert len(alive) == 2 and all(one() is None for one, _ in alive) and alive[1][1] == 0
        assert watcher.eye is not None and len(watcher.eye._soft) == 0


def test_heads_that_are_mixed_after_the_softmax_have_no_pattern() -> None:
    """Talking heads (Shazeer et al. 2020): what multiplies the values is a mixture of every head's pattern."""

    def how(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
        mixed = torch.einsum("bhqk,hg->bgqk", weights, torch.eye(4))
        return torch.einsum("bgqk,bkgd->bqgd", mixed, v)

    with torch.no_grad(), tracer.watch(model := ByHand(how)) as watcher:
        model(torch.randn(2, T, 16))
    with pytest.raises(CannotWatch, match="softmax in ByHand, but its result is changed"):
        watcher.read()
