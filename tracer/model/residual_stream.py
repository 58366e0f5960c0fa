"""A forward pass as sums: who wrote what to the residual stream, and what every head reads there.

1. The stream that enters a layer is the sum of the embedding, of positions where they are added, and of what earlier
   heads, MLPs and biases wrote: `ResidualStream.parts`.
2. A norm is linear once its scale is held at what it was in this pass (Elhage et al. 2021): `NormWeights.linear`.
3. q, k and v of a head are then sums over the same parts and a constant (biases): `AttentionPass.read`, `.constant`.
   A score is the product of two such sums: `AttentionPass.scores`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

Into = Literal["q", "k", "v"]
At = slice | Sequence[int]
"""Positions of the sequence; from a `slice` or a list, an axis of positions always stays."""
OF_TWO_TOKENS = (
    "smear={}: each is mixed with that of the token before, so what was written at one token alone does not make it"
)
"""Why a smeared key, or query, is no sum over sources at its own position."""


@dataclass(frozen=True)
class NormWeights:
    """(x - mean) / sqrt(mean(x^2) + eps) * gain + bias; without `centre` (RMSNorm) no mean is taken off."""

    eps: float
    centre: bool
    gain: Tensor | None = None
    bias: Tensor | None = None
    axes: tuple[int, ...] = (-1,)
    """What the means are over: d_model; d_head of one head, (-2, -1) of all heads together."""

    def scale(self, x: Float[Tensor, "*values"]) -> Float[Tensor, "*values_1"]:
        """What it divides x by; the axes that were averaged are 1 long."""
        return (self._centred(x).pow(2).mean(self.axes, keepdim=True) + self.eps).sqrt()

    def linear(self, x: Float[Tensor, "*values"], scale: Tensor, head: int | None = None) -> Float[Tensor, "*values"]:
        """x through the norm with its scale held: linear in x, the bias left out. `head`: of gains by head, this."""
        x = self._centred(x) / scale
        return x if self.gain is None else x * (self.gain if head is None else self.gain[head])

    def __call__(self, x: Float[Tensor, "*values"]) -> Float[Tensor, "*values"]:
        x = self.linear(x, self.scale(x))
        return x if self.bias is None else x + self.bias

    def _centred(self, x: Tensor) -> Tensor:
        return x - x.mean(self.axes, keepdim=True) if self.centre else x


@dataclass(frozen=True)
class Latent:
    """A narrow vector x W + b, normed, through which q, k or v are made (DeepSeek's MLA): W_Q, W_K and W_V hold both
    ways and the norm's gain, so what is read is only divided by its scale. The first `beside` of d_head pass it by."""

    W: Float[Tensor, "d_model rank"]
    norm: NormWeights
    b: Float[Tensor, " rank"] | None = None
    beside: int = 0


@dataclass(frozen=True)
class AttentionWeights:
    """One layer's attention by query head, nothing folded; heads that share keys and values each have a copy.

    score = (q . k) * scale, through cap * tanh(score / cap) where there is a cap; q and k as `q_norm`, `k_norm` and the
    rotation of the pass leave them. What is written, z W_O + b_O, goes through `out_norm` and is multiplied by `times`.
    """

    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "head d_model d_head"]
    W_V: Float[Tensor, "head d_model d_value"]
    W_O: Float[Tensor, "head d_value d_model"]
    scale: float
    b_Q: Float[Tensor, "head d_head"] | None = None
    b_K: Float[Tensor, "head d_head"] | None = None
    b_V: Float[Tensor, "head d_value"] | None = None
    b_O: Float[Tensor, " d_model"] | None = None
    norm: NormWeights | None = None
    """In front of q, k and v."""
    q_norm: NormWeights | None = None
    k_norm: NormWeights | None = None
    out_norm: NormWeights | None = None
    times: float = 1.0
    cap: float | None = None
    latents: Mapping[Into, Latent] = field(default_factory=dict)
    smear: Mapping[Into, Float[Tensor, " head"]] = field(default_factory=dict)
    """Of q or k that is mixed with that of the position before, ahead of the rotation: the share of its own."""
    sigmoid: float | None = None
    """A weight is sigmoid(score + this); None: the softmax of its row."""


@dataclass(frozen=True)
class AttentionPass:
    """One layer's attention in one forward pass."""

    weights: AttentionWeights
    resid_pre: Float[Tensor, "batch pos d_model"]
    z: Float[Tensor, "batch pos head d_value"]
    turns: tuple[Tensor, Tensor] | None = None
    """Rotary positions: cosine and sine, each [1 or batch, pos, turned], turned <= d_head; the first `turned` of q and
    k are turned, in pairs (i, i + turned / 2)."""
    beside: Float[Tensor, "batch pos d_model"] | None = None
    """What q and k read on top of the normed stream (shortformer's positions)."""
    score_bias: Float[Tensor, "#batch head #query_pos key_pos"] | None = None
    """Added to scaled scores (ALiBi)."""
    gate: Float[Tensor, "batch pos head d_value"] | None = None
    """What z is multiplied by before W_O."""

    @cached_property
    def norm_scale(self) -> Float[Tensor, "batch pos 1"] | None:
        norm = self.weights.norm
        return None if norm is None else norm.scale(self.resid_pre)

    def normed(self, vectors: Float[Tensor, "*parts batch pos d_model"], at: At = slice(None)) -> Tensor:
        """Parts of the stream at some positions as q, k and v see them: through the norm, its scale held."""
        norm, scale = self.weights.norm, self.norm_scale
        return vectors if norm is None or scale is None else norm.linear(vectors, scale[:, at])

    def read(
        self, into: Into, head: int, vectors: Float[Tensor, "*parts batch pos d_model"], at: At = slice(None)
    ) -> Float[Tensor, "*parts batch pos d_head"]:
        """What parts of the stream at positions `at` give to a head's q, k or v: linear, norms held, turned.

        ValueError for one that is smeared.
        """
        self._refuse_smeared(into)
        return self._finish(into, head, self.normed(vectors, at) @ self._W(into)[head], at)

    def read_heads(
        self, into: Into, head: int, sender: AttentionPass, at: At = slice(None)
    ) -> Float[Tensor, "head batch pos d_head"]:
        """`read` of `sender.heads_out`, without d_model numbers a head and position: its W_O meets our W first."""
        self._refuse_smeared(into)
        W_O, held = sender.weights.W_O * sender.weights.times, torch.ones((), device=sender.z.device)
        scales = []
        for norm, scale in ((sender.weights.out_norm, sender._out_scale), (self.weights.norm, self.norm_scale)):
            if norm is not None and scale is not None:
                W_O = norm.linear(W_O, held)
                scales.append(scale[:, at])
        through = W_O @ self._W(into)[head]
        found = einsum(
            sender.gated(sender.z[:, at], at), through, "batch pos head d, head d d_head -> head batch pos d_head"
        )
        for scale in scales:
            found = found / scale
        return self._finish(into, head, found, at)

    def constant(self, into: Into, head: int, at: At = slice(None)) -> Float[Tensor, "batch pos d_head"]:
        """What q, k or v has whatever is in the stream: biases, and shortformer's positions. Not of smeared ones."""
        self._refuse_smeared(into)
        return self._turned(into, self._own_constant(into, head, at), at)

    def whole(self, into: Into, head: int, at: At = slice(None)) -> Float[Tensor, "batch pos d_head"]:
        """q, k or v of the pass, as the score takes it."""
        x, share = self._unturned(into, head, at), self.weights.smear.get(into)
        if share is not None:
            places = range(self.resid_pre.shape[1])
            here = places[at] if isinstance(at, slice) else [places[place] for place in at]
            before = self._unturned(into, head, [max(place - 1, 0) for place in here])
            x = torch.lerp(before, x, share[head].to(x))
        return self._turned(into, x, at)

    def scores(
        self, head: int, queries: At = slice(None), keys: At = slice(None)
    ) -> Float[Tensor, "batch query_pos key_pos"]:
        """Scaled scores before cap, ALiBi and mask."""
        q, k = self.whole("q", head, queries), self.whole("k", head, keys)
        return einsum(q, k, "batch query_pos d, batch key_pos d -> batch query_pos key_pos") * self.weights.scale

    def seen_scores(self, scores: Tensor, head: int) -> Float[Tensor, "batch query_pos key_pos"]:
        """Scores [batch query_pos key_pos] as the softmax gets them, but for the mask: capped, ALiBi added."""
        cap = self.weights.cap
        scores = scores if cap is None else cap * (scores / cap).tanh()
        return scores if self.score_bias is None else scores + self.score_bias[:, head]

    # What it writes.

    def gated(
        self, z: Float[Tensor, "#batch pos head d_value"], at: At = slice(None)
    ) -> Float[Tensor, "batch pos head d_value"]:
        """z at some positions, as it meets W_O."""
        return z if self.gate is None else z * self.gate[:, at]

    @cached_property
    def _sum(self) -> Float[Tensor, "batch pos d_model"]:
        """z W_O + b_O, before the norm behind it."""
        out = einsum(self.gated(self.z), self.weights.W_O, "batch pos head d, head d d_model -> batch pos d_model")
        return out if self.weights.b_O is None else out + self.weights.b_O

    @cached_property
    def _out_scale(self) -> Tensor | None:
        norm = self.weights.out_norm
        return None if norm is None else norm.scale(self._sum)

    def written(self, vectors: Float[Tensor, "*parts batch pos d_model"], at: At = slice(None)) -> Tensor:
        """Parts of z W_O + b_O as they come into the stream: through the norm behind them, its scale held."""
        norm, scale = self.weights.out_norm, self._out_scale
        return (vectors if norm is None or scale is None else norm.linear(vectors, scale[:, at])) * self.weights.times

    def heads_out(self, at: At = slice(None)) -> Float[Tensor, "head batch pos d_model"]:
        """What each head adds to the stream."""
        out = einsum(
            self.gated(self.z[:, at], at),
            self.weights.W_O,
            "batch pos head d, head d d_model -> head batch pos d_model",
        )
        return self.written(out, at)

    @cached_property
    def bias_out(self) -> Float[Tensor, "batch pos d_model"]:
        """What biases add to the stream: b_O, and that of the norm behind it."""
        b_O, norm = self.weights.b_O, self.weights.out_norm
        out = torch.zeros_like(self.resid_pre) if b_O is None else self.written(b_O.expand_as(self.resid_pre))
        return out if norm is None or norm.bias is None else out + norm.bias * self.weights.times

    @cached_property
    def attn_out(self) -> Float[Tensor, "batch pos d_model"]:
        """What heads and biases add to the stream together."""
        norm = self.weights.out_norm
        return (self._sum if norm is None else norm(self._sum)) * self.weights.times

    def rewritten(self, change: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """By how much the stream changes when z W_O changes by this: the norm behind it computed anew."""
        norm = self.weights.out_norm
        return (change if norm is None else norm(self._sum + change) - norm(self._sum)) * self.weights.times

    # Inside.

    def _refuse_smeared(self, into: Into) -> None:
        if into in self.weights.smear:
            raise ValueError(OF_TWO_TOKENS.format("keys" if into == "k" else "queries"))

    def _own_constant(self, into: Into, head: int, at: At) -> Float[Tensor, "batch pos d_head"]:
        norm = self._own_norm(into)
        bias = None if norm is None else norm.bias
        return self._held(into, head, self._constant(into, at)[:, :, head], at, bias)

    def _unturned(self, into: Into, head: int, at: At) -> Float[Tensor, "batch pos d_head"]:
        """q, k or v, before it is smeared and turned."""
        read = self.normed(self.resid_pre[:, at], at) @ self._W(into)[head]
        return self._held(into, head, read, at) + self._own_constant(into, head, at)

    def _W(self, into: Into) -> Tensor:
        return {"q": self.weights.W_Q, "k": self.weights.W_K, "v": self.weights.W_V}[into]

    def _constant(self, into: Into, at: At = slice(None)) -> Float[Tensor, "batch pos head d_head"]:
        """Of all heads, before the norm of q or k."""
        weights, read = self.weights, torch.zeros_like(self.resid_pre[:, at])
        if weights.norm is not None and weights.norm.bias is not None:
            read = read + weights.norm.bias
        if self.beside is not None and into != "v":
            read = read + self.beside[:, at]
        found = einsum(read, self._W(into), "batch pos d_model, head d_model d -> batch pos head d")
        bias = {"q": weights.b_Q, "k": weights.b_K, "v": weights.b_V}[into]
        return found if bias is None else found + bias

    def _own_norm(self, into: Into) -> NormWeights | None:
        return {"q": self.weights.q_norm, "k": self.weights.k_norm, "v": None}[into]

    @cached_property
    def _own_scales(self) -> dict[str, Tensor]:
        """Of the norms of q and k, [batch pos head-or-1 1]."""
        found = {}
        for into in ("q", "k"):
            if (norm := self._own_norm(into)) is not None:
                x = self.normed(self.resid_pre)
                made = einsum(x, self._W(into), "batch pos d_model, head d_model d -> batch pos head d")
                found[into] = norm.scale(made + self._constant(into))
        return found

    @cached_property
    def _latent_scales(self) -> dict[Into, Float[Tensor, "batch pos 1"]]:
        norm, x = self.weights.norm, self.normed(self.resid_pre)
        x = x if norm is None or norm.bias is None else x + norm.bias
        return {into: one.norm.scale(x @ one.W if one.b is None else x @ one.W + one.b)
                for into, one in self.weights.latents.items()}  # fmt: skip

    def _finish(self, into: Into, head: int, x: Tensor, at: At) -> Tensor:
        """From the projection of one head to its q, k or v: norms on the way, held, and the rotation."""
        return self._turned(into, self._held(into, head, x, at), at)

    def _held(self, into: Into, head: int, x: Tensor, at: At, bias: Tensor | None = None) -> Tensor:
        """Through the norms on the way, their scales held."""
        latent = self.weights.latents.get(into)
        if latent is not None:
            through = x[..., latent.beside :] / self._latent_scales[into][:, at]
            x = torch.cat([x[..., : latent.beside], through], -1)
        norm = self._own_norm(into)
        if norm is not None:
            scale = self._own_scales[into]
            scale = scale[:, at, head if scale.shape[2] > 1 else 0]
            if norm.centre and norm.axes != (-1,):
                raise ValueError("a LayerNorm over all heads together cannot be told apart by head")
            by_head = norm.gain is not None and norm.gain.ndim > 1
            x = NormWeights(norm.eps, norm.centre, norm.gain).linear(x, scale, head if by_head else None)
            if bias is not None:
                x = x + (bias[head] if bias.ndim > 1 else bias)
        return x

    def _turned(self, into: Into, x: Tensor, at: At) -> Tensor:
        return x if into == "v" or self.turns is None else turned(x, *(one[:, at] for one in self.turns))


class Component(NamedTuple):
    """Who wrote a part of the stream: ("embed", -1, -1), ("head", layer, head), ("mlp", layer, -1), ..."""

    kind: Literal["embed", "pos_embed", "head", "attn_bias", "mlp"]
    layer: int = -1
    head: int = -1

    def __str__(self) -> str:
        match self.kind:
            case "head":
                return f"L{self.layer}H{self.head}"
            case "mlp":
                return f"MLP {self.layer}"
            case "attn_bias":
                return f"bias {self.layer}"
            case kind:
                return {"embed": "token", "pos_embed": "position"}[kind]


@dataclass(frozen=True)
class ResidualStream:
    """One forward pass of one model; everything is detached, in float32 or better."""

    tokens: Int[Tensor, "batch pos"]
    embed: Float[Tensor, "batch pos d_model"]
    """The token's own vector as it enters the stream."""
    pos_embed: Float[Tensor, "batch pos d_model"] | None
    layers: tuple[AttentionPass, ...]
    mlp_out: tuple[Float[Tensor, "batch pos d_model"] | None, ...]
    """What each MLP adds to the stream, its biases and the norm behind it included; None where there is none."""
    final: Float[Tensor, "batch pos d_model"]
    """What leaves the last block."""
    unembedding: Unembedding | None = field(repr=False)
    """None where an MLP makes the logits."""
    logits: Float[Tensor, "batch pos d_vocab"] = field(repr=False)

    def sources(self, layer: int | None = None) -> list[Component]:
        """Who wrote the stream that enters a layer (None: what leaves the last), in the order of `parts`."""
        found = [Component("embed")] + ([] if self.pos_embed is None else [Component("pos_embed")])
        for i, one in enumerate(self.layers[:layer]):
            found += [Component("head", i, head) for head in range(one.z.shape[2])]
            found += [Component("attn_bias", i)] if self._has_bias(i) else []
            found += [] if self.mlp_out[i] is None else [Component("mlp", i)]
        return found

    def parts(self, layer: int | None = None, at: At = slice(None)) -> Float[Tensor, "source batch pos d_model"]:
        """What each of `sources(layer)` wrote at some positions; they sum to the stream there."""
        found = [self.embed[None, :, at]] + ([] if self.pos_embed is None else [self.pos_embed[None, :, at]])
        for i, one in enumerate(self.layers[:layer]):
            found.append(one.heads_out(at))
            found += [one.bias_out[None, :, at]] if self._has_bias(i) else []
            mlp = self.mlp_out[i]
            found += [] if mlp is None else [mlp[None, :, at]]
        return torch.cat(found)

    def read(self, layer: int, into: Into, head: int, at: At = slice(None)) -> Float[Tensor, "source batch pos d_head"]:
        """What each of `sources(layer)` gives to a head's q, k or v there; with its `constant`, they sum to it."""
        here = self.layers[layer]

        def one(part: Tensor | None) -> list[Tensor]:
            return [] if part is None else [here.read(into, head, part[None, :, at], at)]

        found = [*one(self.embed), *one(self.pos_embed)]
        for i, sender in enumerate(self.layers[:layer]):
            found += [here.read_heads(into, head, sender, at), *one(sender.bias_out if self._has_bias(i) else None)]
            found += one(self.mlp_out[i])
        return torch.cat(found)

    @property
    def end(self) -> Unembedding:
        """ValueError where logits are no linear map of the normed stream."""
        if self.unembedding is None:
            raise ValueError(
                "an MLP makes the logits (unembed_hidden): there is no W_U, so they are not a sum over parts"
            )
        return self.unembedding

    def _has_bias(self, layer: int) -> bool:
        weights = self.layers[layer].weights
        return weights.b_O is not None or (weights.out_norm is not None and weights.out_norm.bias is not None)


@dataclass(frozen=True)
class Unembedding:
    """From the stream to logits: the final norm, W_U, b_U; times `times`, through cap * tanh(logit / cap)."""

    norm: NormWeights | None
    W_U: Float[Tensor, "d_model d_vocab"]
    b_U: Float[Tensor, " d_vocab"] | None = None
    times: float = 1.0
    cap: float | None = None

    def __call__(self, x: Float[Tensor, "*batch d_model"], capped: bool = True) -> Float[Tensor, "*batch d_vocab"]:
        """Logits of streams; `capped=False`: before the cap, where they are sums over parts."""
        logits = (x if self.norm is None else self.norm(x)) @ self.W_U
        logits = (logits if self.b_U is None else logits + self.b_U) * self.times
        return logits if self.cap is None or not capped else self.cap * (logits / self.cap).tanh()

    def held(self, parts: Tensor, final: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        """What parts of a final stream add to its logits, the norm's scale held, before any cap."""
        read = parts if self.norm is None else self.norm.linear(parts, self.norm.scale(final))
        return read @ self.W_U * self.times


def turned(x: Float[Tensor, "*batch pos d_head"], cos: Tensor, sin: Tensor) -> Float[Tensor, "*batch pos d_head"]:
    """Rotary positions (Su et al. 2021) of the first of d_head, in pairs (first half, second half) of these."""
    some, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    a, b = some.chunk(2, dim=-1)
    return torch.cat([some * cos + torch.cat([-b, a], -1) * sin, rest], -1)
