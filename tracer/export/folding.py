"""Our weights laid into the residual stream of an architecture that has less choice than ours.

A stream x lies there as s * x, or as s * (x, -x, 0, ...). The second has mean 0, so a LayerNorm of it is an RMSNorm of
x, and it can be as wide as the heads need. Everything that writes to the stream or reads it is folded to fit, in
float64; attention patterns and logits stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tracer.config import ModelConfig
from tracer.model import Transformer

NO_NORM_EPS = 2.0**60
"""x / sqrt(x^2 + this) * 2^30 is x to the last bit of a float32 while |x| < 2^17: a norm that leaves x alone."""


@dataclass(frozen=True)
class Stream:
    """How our stream lies in theirs, and the norm that makes of it what ours makes of x."""

    width: int
    """Of their stream."""
    d_head: int
    """Of their heads, which end in zeros where ours are narrower."""
    eps: float
    gain: float
    """Factor of each norm's gain."""
    scale: float
    """s above."""
    mirrored: bool
    """(x, -x, 0, ...) above."""
    centred: bool
    """Means are taken out of what is written: only LayerNorms, which take them out anyway, read it."""

    @property
    def plain(self) -> bool:
        return not self.mirrored and self.scale == 1

    def write(self, weight: Float[Tensor, "*in d_model"]) -> Float[Tensor, "*in width"]:
        """What is added to our stream, as what is added to theirs."""
        if self.centred:
            weight = weight - weight.mean(-1, keepdim=True)
        return self.scale * self._lay(weight, -weight)

    def read(self, weight: Float[Tensor, "d_model out"], raw: bool) -> Float[Tensor, "width out"]:
        """What reads a norm of our stream (raw: the stream itself), for theirs."""
        weight = weight / self.scale if raw else weight
        return F.pad(weight, (0, 0, 0, self.width - len(weight)))

    def norm(
        self, gain: Float[Tensor, "d_model"], bias: Float[Tensor, "d_model"], writes: bool
    ) -> tuple[Float[Tensor, "width"], Float[Tensor, "width"]]:
        """Gain and bias; writes: what the norm gives is the stream."""
        scale = self.scale if writes else 1.0
        return scale * self.gain * self._lay(gain, gain), scale * self._lay(bias, -bias)

    def _lay(self, x: Tensor, mirror: Tensor) -> Tensor:
        x = torch.cat([x, mirror], -1) if self.mirrored else x
        return F.pad(x, (0, self.width - x.shape[-1]))


def is_post_norm(c: ModelConfig) -> bool:
    return c.norm != "none" and c.norm_position == "post"


def lacks_final_norm(c: ModelConfig) -> bool:
    return c.norm != "none" and not c.final_norm


def heads_fit(c: ModelConfig) -> bool:
    """Do the heads, with zeros at their ends, share d_model among them?"""
    return c.d_model % c.n_heads == 0 and c.head_width <= c.d_model // c.n_heads


def lay(c: ModelConfig, *, layer_norm_only: bool, any_d_head: bool, fixed_eps: float | None) -> Stream:
    """The narrowest stream of an architecture in which this model fits."""
    mirrored = layer_norm_only and not (c.norm == "layer" and (any_d_head or heads_fit(c)))
    width, d_head = c.d_model, c.head_width if any_d_head else c.d_model // c.n_heads
    if mirrored:
        d_head = max(-(-2 * c.d_model // c.n_heads), c.head_width)
        width = d_head * c.n_heads
    share = 2 * c.d_model / width if mirrored else 1.0  # their mean of squares is this much of ours
    eps, gain = (NO_NORM_EPS, NO_NORM_EPS**0.5) if c.norm == "none" else (c.norm_eps * share, share**0.5)
    scale = 1.0 if fixed_eps is None else (fixed_eps / eps) ** 0.5
    return Stream(width, d_head, eps, gain, scale, mirrored, centred=mirrored and c.norm == "layer")


def fold(model: Transformer, stream: Stream) -> dict[str, Tensor]:
    """Maps [d_in d_out], tables and norms as theirs, every bias among them; the attention scale is in q.

    Names: embed, pos, unembed, ln_f, and for layer i: i.ln1, i.q, i.k, i.v, i.o, i.ln2, i.in, i.out.
    """
    c, post = model.config, is_post_norm(model.config)
    ours = {name: weight.detach().cpu().double() for name, weight in model.named_parameters()}
    ones, zeros = torch.ones(c.d_model).double(), torch.zeros(c.d_model).double()
    folded: dict[str, Tensor] = {}

    def put(name: str, weight: Tensor, bias: Tensor) -> None:
        folded[f"{name}.weight"], folded[f"{name}.bias"] = weight, bias

    def put_norm(name: str, source: str, writes: bool) -> None:
        put(name, *stream.norm(ours.get(f"{source}.w", ones), ours.get(f"{source}.b", zeros), writes))

    table = model.sinusoid.cpu().double() if c.positions == "sinusoidal" else ours.get("pos_embed.W_pos")
    unembed = ours["embed.W_E"].T if c.tie_embeddings else ours["unembed.W_U"]
    folded["embed.weight"] = stream.write(ours["embed.W_E"])
    folded["pos.weight"] = stream.write(torch.zeros(c.n_ctx, c.d_model).double() if table is None else table)
    folded["unembed.weight"] = stream.read(unembed, raw=post or lacks_final_norm(c))
    put_norm("ln_f", "ln_final", writes=False)
    for i in range(c.n_layers):
        attn, mlp = f"blocks.{i}.attn.", f"blocks.{i}.mlp."
        put_norm(f"{i}.ln1", f"blocks.{i}.ln1", post)
        put_norm(f"{i}.ln2", f"blocks.{i}.ln2", post)
        ends = stream.d_head - c.head_width
        for letter, factor in {"Q": c.scale * stream.d_head**0.5, "K": 1.0, "V": 1.0}.items():
            weight = rearrange(F.pad(ours[f"{attn}W_{letter}"], (0, ends)), "head d d_head -> d (head d_head)")
            put(f"{i}.{letter.lower()}", factor * stream.read(weight, post), weight.new_zeros(weight.shape[1]))
        W_O = ours[f"{attn}W_O"] if c.attn_out else identity_W_O(c).double()
        W_O = rearrange(F.pad(W_O, (0, 0, 0, ends)), "head d_head d -> (head d_head) d")
        put(f"{i}.o", stream.write(W_O), stream.write(ours.get(f"{attn}b_O", zeros)))
        W_in, b_in = ours.get(f"{mlp}W_in", zeros[:, None]), ours.get(f"{mlp}b_in", zeros[:1])
        W_out, b_out = ours.get(f"{mlp}W_out", zeros[None]), ours.get(f"{mlp}b_out", zeros)
        put(f"{i}.in", stream.read(W_in, post), b_in)
        put(f"{i}.out", stream.write(W_out), stream.write(b_out))
    return folded


def identity_W_O(c: ModelConfig) -> Float[Tensor, "head d_head d_model"]:
    """What concatenates the heads, as a model without W_O does."""
    return rearrange(torch.eye(c.d_model), "(head d_head) d -> head d_head d", head=c.n_heads)
