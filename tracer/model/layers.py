"""The layers of a transformer: norm, attention, MLP, the block that joins them, embedding and unembedding.

Names of taps and weights are TransformerLens's. Shapes: resid [batch pos d_model]; q k v z [batch pos head d_head];
pattern [batch head query_pos key_pos].
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from tracer.config import ModelConfig
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import active
from tracer.interventions.own_clamps import Beside
from tracer.model.positions import rotate, rotation
from tracer.model.tap import Tap


class Norm(nn.Module):
    """RMSNorm: x / sqrt(mean(x^2) + eps); LayerNorm subtracts the mean first. The gain is optional.

    `of_heads`: of each head's q or k, over d_head, by one gain for all of a layer; it is RMSNorm always.
    """

    def __init__(self, config: ModelConfig, of_heads: bool = False) -> None:
        super().__init__()
        width = config.head_width if of_heads else config.d_model
        self.centre, self.eps = config.norm == "layer" and not of_heads, config.norm_eps
        self.w = nn.Parameter(torch.ones(width)) if config.norm_gain else None
        self.b = nn.Parameter(torch.zeros(width)) if config.norm_gain and self.centre else None
        self.hook_scale, self.hook_normalized = Tap(), Tap()

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        if self.centre:
            x = x - x.mean(-1, keepdim=True)
        x = x / self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = x if self.w is None else x * self.w
        x = x if self.b is None else x + self.b
        return self.hook_normalized(x)


PROJECT = "batch pos d_model, head d_model d_head -> batch pos head d_head"


class CausalAttention(nn.Module):
    """Causal multi-head attention: softmax(q k^T * scale) v, concatenated, through W_O when there is one.

    With a sink, a logit of each head stands beside the scores in the softmax, and nothing is read of it.
    With sigmoid attention a weight is sigmoid(score - ln n_ctx); visitors see `shares` of it, beside a sink.
    With a soft cap c, a score s is c tanh(s / c); that of a sink is as it is.

    Smeared keys (Olsson et al. 2022): k_j <- s k_j + (1 - s) k_{j-1}, s = sigmoid(a_smear) of each head, the first key
    as it is; or the same of queries. They are mixed before rotary positions turn them, so that contents are mixed and
    each key keeps its own position. Olsson et al. used no rotary positions, so theirs do not say.

    With an output gate (Qiu et al. 2025), z meets W_O times sigmoid(x W_gate), number by number; z itself is as it was.
    """

    rotation: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = (config.n_heads, config.d_model, config.head_width)
        self.scale, self.dropout, self.rotary = config.scale, config.dropout, config.positions == "rotary"
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(shape)) for _ in range(3))
        self.W_O = nn.Parameter(torch.empty(shape[0], shape[2], shape[1])) if config.attn_out else None
        self.b_O = nn.Parameter(torch.zeros(config.d_model)) if config.attn_out_bias else None
        self.W_gate = nn.Parameter(torch.empty(shape)) if config.attn_gate else None
        if config.attn_gate:
            self.hook_gate = Tap()
        self.hook_q, self.hook_k, self.hook_v, self.hook_z = Tap(), Tap(), Tap(), Tap()
        self.hook_attn_scores, self.hook_pattern = Tap(), Tap()
        self.q_norm, self.k_norm = (Norm(config, of_heads=True) if config.qk_norm else None for _ in range(2))
        if config.qk_norm:
            self.hook_normed_q, self.hook_normed_k = Tap(), Tap()
        self.softcap, self.sink = config.attn_softcap, config.sink
        self.less = math.log(config.n_ctx) if config.attention == "sigmoid" else None
        self.b_sink = nn.Parameter(torch.zeros(config.n_heads)) if config.sink == "learned" else None
        self.smeared: Literal["q", "k"] | None = config.smeared
        if self.smeared is not None:
            self.a_smear = nn.Parameter(torch.zeros(config.n_heads))
        if self.smeared == "q":
            self.hook_smeared_q = Tap()
        if self.smeared == "k":
            self.hook_smeared_k = Tap()
        if self.rotary:
            self.hook_rot_q, self.hook_rot_k = Tap(), Tap()
            self.register_buffer("rotation", rotation(config.n_ctx, config.head_width), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], pos_embed: Float[Tensor, "batch pos d_model"] | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:  # fmt: skip
        return self.write(self.heads(x, pos_embed, tokens), self.gate(x))

    def heads(
        self, x: Float[Tensor, "batch pos d_model"], pos_embed: Float[Tensor, "batch pos d_model"] | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch pos head d_head"]:  # fmt: skip
        """What each head read, before it writes: z. `tokens`: what the model reads, for clamps that ask."""
        x_qk = x if pos_embed is None else x + pos_embed
        q = self.hook_q(einsum(x_qk, self.W_Q, PROJECT))
        k = self.hook_k(einsum(x_qk, self.W_K, PROJECT))
        v = self.hook_v(einsum(x, self.W_V, PROJECT))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.hook_normed_q(self.q_norm(q)), self.hook_normed_k(self.k_norm(k))
        if self.smeared == "q":
            q = self.hook_smeared_q(smeared(q, self.a_smear))
        if self.smeared == "k":
            k = self.hook_smeared_k(smeared(k, self.a_smear))
        if self.rotary:
            q, k = self.hook_rot_q(rotate(q, self.rotation)), self.hook_rot_k(rotate(k, self.rotation))
        z, beside = self._attend(q, k, v, tokens)
        return self.hook_z(z, beside)

    def sink_logits(self, like: Tensor) -> Float[Tensor, " head"] | None:
        """Of each head; None where there is no sink."""
        if self.sink == "none":
            return None
        return like.new_zeros(self.W_Q.shape[0]) if self.b_sink is None else self.b_sink.to(like)

    def capped(self, scores: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Scores as they enter the softmax."""
        return scores if self.softcap is None else self.softcap * (scores / self.softcap).tanh()

    def own_shares(self) -> dict[Literal["q", "k", "v"], Float[Tensor, " head"]]:
        """How much of each head's keys, or queries, is the token's own, detached; empty where nothing is smeared."""
        found: dict[Literal["q", "k", "v"], Tensor] = {}
        if self.smeared is not None:
            found[self.smeared] = self.a_smear.detach().sigmoid()
        return found

    def gate(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head d_head"] | None:
        """What z is multiplied by before W_O, between 0 and 1; None where there is no gate."""
        return None if self.W_gate is None else self.hook_gate(einsum(x, self.W_gate, PROJECT).sigmoid())

    def write(
        self, z: Float[Tensor, "batch pos head d_head"], gate: Float[Tensor, "batch pos head d_head"] | None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The sum of what the heads write, or their outputs side by side."""
        z = z if gate is None else z * gate
        if self.W_O is None:
            return rearrange(z, "batch pos head d_head -> batch pos (head d_head)")
        out = einsum(z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos d_model")
        return out if self.b_O is None else out + self.b_O

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, tokens: Tensor | None
    ) -> tuple[Float[Tensor, "batch pos head d_head"], Beside | None]:
        """z, by the fused kernel when nobody looks at scores or pattern, by the explicit matrices when somebody does;
        and what clamps of a user's ask for, where there are any."""
        p = self.dropout if self.training else 0.0
        here = active()
        own = bool(self.hook_pattern.own or self.hook_z.own)
        unfused = own or self.softcap is not None or self.less is not None
        explicit = unfused or self.hook_attn_scores.watched or self.hook_pattern.watched
        sink = self.sink_logits(q)
        visited, held = here is not None and bool(here.visitors), unfused or sink is not None
        layer = int(self.hook_z.name.split(".")[1]) if visited else 0
        if here is not None and visited and not held:
            z = here.visit(AttentionCall(layer, v, q, k, self.scale, mask=self.hook_attn_scores.mask(q)))
            if z is not None and p == 0.0 and not explicit:
                return z.to(v.dtype), None
        if not explicit and not (held and visited):
            mask = None
            if sink is not None:
                q, k, v, mask = beside_sink(q, k, v, sink / self.scale)
            q, k, v = (rearrange(t, "batch pos head d -> batch head pos d") for t in (q, k, v))
            z = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=self.scale, dropout_p=p
            )  # fmt: skip
            z = z if mask is None else z[..., :-1]
            return rearrange(z, "batch head pos d -> batch pos head d"), None
        q = q * self.scale
        scores = self.capped(
            einsum(q, k, "batch query_pos head d, batch key_pos head d -> batch head query_pos key_pos")
        )
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = self.hook_attn_scores(scores.masked_fill(future, -torch.inf))
        whole, beside = scores, None
        if sink is not None:
            whole = torch.cat([scores, sink[:, None, None].expand(*scores.shape[:3], 1)], -1)
        pattern = whole.softmax(-1)[..., : scores.shape[3]] if self.less is None else (scores - self.less).sigmoid()
        if own:
            assert tokens is not None
            beside = Beside(tokens, v, pattern)
        pattern = self.hook_pattern(pattern, beside)
        if here is not None and visited and held:  # no q and k make it
            largest, keys = whole.amax(-1, keepdim=True), whole.isfinite().sum(-1, keepdim=True)
            found, by = (pattern, None) if self.less is None else shares(pattern)
            call = AttentionCall(layer, v, weights=found, largest=largest, seen=keys, divided=by)
            if sink is not None or by is not None:
                empty, keys = F.pad(v, (0, 0, 0, 0, 0, 1)), keys + (by is not None)
                call = replace(call, v=empty, weights=with_sink(found), seen=keys, extra=("sink",))
            here.visit(call)
        beside = replace(beside, pattern=pattern) if beside else None
        pattern = F.dropout(pattern, p)
        z = einsum(pattern, v, "batch head query_pos key_pos, batch key_pos head d -> batch query_pos head d")
        return z, beside


def smeared(
    x: Float[Tensor, "batch pos head d_head"], a: Float[Tensor, " head"]
) -> Float[Tensor, "batch pos head d_head"]:
    """Keys or queries, each mixed with that of the position before: sigmoid(a) is the share of its own."""
    before = torch.cat([x[:, :1], x[:, :-1]], 1)
    return torch.lerp(before, x, a.sigmoid()[:, None].to(x.dtype))


def beside_sink(
    q: Float[Tensor, "batch pos head d"], k: Float[Tensor, "batch pos head d"], v: Float[Tensor, "batch pos head d"],
    score: Float[Tensor, " head"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """q, k and v, one wider, with a last key whose product with each query is `score` and whose value is 0; and what a
    query may see of these keys."""
    ones = q.new_ones(*q.shape[:3], 1)
    last = F.pad(score[:, None], (k.shape[3], 0)).expand(k.shape[0], 1, -1, -1)
    seen = torch.ones(q.shape[1], k.shape[1] + 1, dtype=torch.bool, device=q.device).tril()
    seen[:, -1] = True
    return torch.cat([q, ones], -1), torch.cat([F.pad(k, (0, 1)), last], 1), F.pad(v, (0, 1, 0, 0, 0, 1)), seen


def with_sink(
    pattern: Float[Tensor, "batch head query_pos key_pos"],
) -> Float[Tensor, "batch head query_pos key_pos_and_sink"]:
    """With what the positions leave, as the last key."""
    return torch.cat([pattern, (1 - pattern.sum(-1, keepdim=True)).clamp(min=0)], -1)


def shares(
    pattern: Float[Tensor, "batch head query_pos key_pos"],
) -> tuple[Float[Tensor, "batch head query_pos key_pos"], Float[Tensor, "batch head query_pos 1"]]:
    """A pattern of which no row sums to more than 1, and what its rows were divided by for that."""
    by = pattern.sum(-1, keepdim=True).clamp(min=1)
    return pattern / by, by


class FeedForward(nn.Module):
    """Hidden layers with a non-linearity, then W_out; `hook_pre` and `hook_post` sit at the last hidden layer."""

    b_out: nn.Parameter

    def __init__(self, d_in: int, hidden: tuple[int, ...], d_out: int, activation: str) -> None:
        super().__init__()
        widths = (d_in, *hidden, d_out)
        self.names = ["in", *(str(i) for i in range(1, len(hidden))), "out"]
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]
        for name, fan_in, fan_out in zip(self.names, widths[:-1], widths[1:], strict=True):
            self.register_parameter(f"W_{name}", nn.Parameter(torch.empty(fan_in, fan_out)))
            self.register_parameter(f"b_{name}", nn.Parameter(torch.empty(fan_out)))
        self.hook_pre, self.hook_post = Tap(), Tap()

    def forward(self, x: Float[Tensor, "batch pos d_in"]) -> Float[Tensor, "batch pos d_out"]:
        *early, last = self.names[:-1]
        for name in early:
            x = self.activation(self._linear(name, x))
        x = self.hook_post(self.activation(self.hook_pre(self._linear(last, x))))
        return self._linear("out", x)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, getattr(self, f"W_{name}").T, getattr(self, f"b_{name}"))


class Block(nn.Module):
    """Attention, then the MLP if any; each with its norm before or after, added to the stream or replacing it."""

    hook_out_is_single_residual_stream = True  # transformer-lens's logit lens asks for it

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.residual, self.pre = config.residual, config.norm_position == "pre"
        self.ln1 = Norm(config) if config.norm != "none" else None
        self.attn = CausalAttention(config)
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = Tap(), Tap(), Tap()
        self.dropout = nn.Dropout(config.dropout)
        self.mlp = None
        if config.mlp_hidden:
            self.ln2 = Norm(config) if config.norm != "none" else None
            self.mlp = FeedForward(config.d_model, config.mlp_hidden, config.d_model, config.activation)
            self.hook_resid_mid, self.hook_mlp_out = Tap(), Tap()

    def forward(
        self, x: Tensor, pos_embed: Tensor | None = None, tokens: Tensor | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        x = self.hook_resid_pre(x)
        return self.finish(x, self.attn(self.attn_in(x), pos_embed, tokens))

    def attn_in(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What the heads read of the stream."""
        return self.ln1(x) if self.ln1 and self.pre else x

    def write(
        self, x: Float[Tensor, "batch pos d_model"], z: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """From what entered the block, and z, to what its heads write: each position by itself."""
        return self.attn.write(z, self.gate(x))

    def gate(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head d_head"] | None:
        """What z is multiplied by, from what entered the block; None where there is no gate."""
        return None if self.attn.W_gate is None else self.attn.gate(self.attn_in(x))

    def finish(
        self, x: Float[Tensor, "batch pos d_model"], attn_out: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """From what entered the block, and what its heads wrote, to its end: each position by itself."""
        out = self.hook_attn_out(self.dropout(attn_out))
        x = x + out if self.residual else out
        x = self.ln1(x) if self.ln1 and not self.pre else x
        if self.mlp is not None:
            x = self.hook_resid_mid(x)
            before, after = (self.ln2, None) if self.pre else (None, self.ln2)
            out = self.hook_mlp_out(self.dropout(self.mlp(before(x) if before else x)))
            x = x + out if self.residual else out
            x = after(x) if after else x
        return self.hook_resid_post(x)


class Embed(nn.Module):
    """A table of vectors, W_E or W_pos: [rows d_model]."""

    W_E: nn.Parameter
    W_pos: nn.Parameter

    def __init__(self, name: str, rows: int, d_model: int) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.empty(rows, d_model)))


class Unembed(nn.Module):
    """x W_U, no bias."""

    def __init__(self, d_model: int, d_vocab: int) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(d_model, d_vocab))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.W_U
