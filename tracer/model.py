"""One transformer for every specimen, read top to bottom; names of taps and weights are TransformerLens's.

Shapes: tokens [batch pos]; resid [batch pos d_model]; q k v z [batch pos head d_head]; pattern [batch head query_pos
key_pos].
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, HookedRootModule

from tracer.config import Init, ModelConfig
from tracer.edits import Tap, active, refuse_unknown_taps
from tracer.heads.call import AttentionCall

QK_TAPS = ("hook_q", "hook_k", "hook_rot_q", "hook_rot_k")
"""What to record so that `Transformer.qk_taps` is there, rotary or not."""


class Norm(nn.Module):
    """RMSNorm: x / sqrt(mean(x^2) + eps); LayerNorm subtracts the mean first. The gain is optional."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.centre, self.eps = config.norm == "layer", config.norm_eps
        self.w = nn.Parameter(torch.ones(config.d_model)) if config.norm_gain else None
        self.b = nn.Parameter(torch.zeros(config.d_model)) if config.norm_gain and self.centre else None
        self.hook_scale, self.hook_normalized = Tap(), Tap()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        if self.centre:
            x = x - x.mean(-1, keepdim=True)
        x = x / self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = x if self.w is None else x * self.w
        x = x if self.b is None else x + self.b
        return self.hook_normalized(x)


class Attention(nn.Module):
    """Causal multi-head attention: softmax(q k^T * scale) v, concatenated, through W_O when there is one."""

    rotation: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = (config.n_heads, config.d_model, config.head_width)
        self.scale, self.dropout, self.rotary = config.scale, config.dropout, config.positions == "rotary"
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(shape)) for _ in range(3))
        self.W_O = nn.Parameter(torch.empty(shape[0], shape[2], shape[1])) if config.attn_out else None
        self.b_O = nn.Parameter(torch.zeros(config.d_model)) if config.attn_out_bias else None
        self.hook_q, self.hook_k, self.hook_v, self.hook_z = Tap(), Tap(), Tap(), Tap()
        self.hook_attn_scores, self.hook_pattern = Tap(), Tap()
        if self.rotary:
            self.hook_rot_q, self.hook_rot_k = Tap(), Tap()
            self.register_buffer("rotation", _rotation(config), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], pos_embed: Float[Tensor, "batch pos d_model"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.write(self.heads(x, pos_embed))

    def heads(
        self, x: Float[Tensor, "batch pos d_model"], pos_embed: Float[Tensor, "batch pos d_model"] | None = None
    ) -> Float[Tensor, "batch pos head d_head"]:
        """What each head read, before it writes: z."""
        x_qk = x if pos_embed is None else x + pos_embed
        project = "batch pos d_model, head d_model d_head -> batch pos head d_head"
        q = self.hook_q(einsum(x_qk, self.W_Q, project))
        k = self.hook_k(einsum(x_qk, self.W_K, project))
        v = self.hook_v(einsum(x, self.W_V, project))
        if self.rotary:
            q, k = self.hook_rot_q(_rotate(q, self.rotation)), self.hook_rot_k(_rotate(k, self.rotation))
        return self.hook_z(self._attend(q, k, v))

    def write(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos d_model"]:
        """The sum of what the heads write, or their outputs side by side."""
        if self.W_O is None:
            return rearrange(z, "batch pos head d_head -> batch pos (head d_head)")
        out = einsum(z, self.W_O, "batch pos head d_head, head d_head d_model -> batch pos d_model")
        return out if self.b_O is None else out + self.b_O

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "batch pos head d_head"]:
        """The fused kernel when nobody looks at scores or pattern, the explicit matrices when somebody does."""
        p = self.dropout if self.training else 0.0
        here = active()
        if here is not None and here.visitors:
            layer = int(self.hook_z.name.split(".")[1])
            z = here.visit(AttentionCall(layer, v, q, k, self.scale))
            if z is not None and p == 0.0 and not (self.hook_attn_scores.watched or self.hook_pattern.watched):
                return z.to(v.dtype)
        if not (self.hook_attn_scores.watched or self.hook_pattern.watched):
            q, k, v = (rearrange(t, "batch pos head d -> batch head pos d") for t in (q, k, v))
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale, dropout_p=p)
            return rearrange(z, "batch head pos d -> batch pos head d")
        q = q * self.scale
        scores = einsum(q, k, "batch query_pos head d, batch key_pos head d -> batch head query_pos key_pos")
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = self.hook_attn_scores(scores.masked_fill(future, -torch.inf))
        pattern = F.dropout(self.hook_pattern(scores.softmax(-1)), p)
        return einsum(pattern, v, "batch head query_pos key_pos, batch key_pos head d -> batch query_pos head d")


class MLP(nn.Module):
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
        self.attn = Attention(config)
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = Tap(), Tap(), Tap()
        self.dropout = nn.Dropout(config.dropout)
        self.mlp = None
        if config.mlp_hidden:
            self.ln2 = Norm(config) if config.norm != "none" else None
            self.mlp = MLP(config.d_model, config.mlp_hidden, config.d_model, config.activation)
            self.hook_resid_mid, self.hook_mlp_out = Tap(), Tap()

    def forward(self, x: Tensor, pos_embed: Tensor | None = None) -> Float[Tensor, "batch pos d_model"]:
        x = self.hook_resid_pre(x)
        return self.finish(x, self.attn(self.attn_in(x), pos_embed))

    def attn_in(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """What the heads read of the stream."""
        return self.ln1(x) if self.ln1 and self.pre else x

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


class Cache(ActivationCache):
    """transformer-lens's cache, which refuses to decompose a stream that is no sum: its own answer is wrong."""

    model: Transformer

    def _refuse_unless_sum(self, what: str) -> None:
        config: ModelConfig = self.model.config
        if not config.residual or (config.norm != "none" and config.norm_position == "post"):
            raise ValueError(
                f"{what} needs a residual stream that is the sum of its parts; here residual={config.residual} and "
                f"norm_position={config.norm_position}, so the parts do not add up to it"
            )

    def __init__(self, seen: dict[str, Tensor], model: Transformer, has_batch_dim: bool = True) -> None:
        super().__init__(seen, model, has_batch_dim)
        self.has_pos_embed &= model.config.positions != "shortformer"  # it feeds q and k, never the stream

    def apply_ln_to_stack(self, residual_stack: Tensor, layer: int | None = None, *args: Any, **kwargs: Any) -> Any:
        if layer in (None, -1, self.model.cfg.n_layers) and not isinstance(self.model.ln_final, Norm):
            kwargs["recompute_ln"] = True  # through ln_final, the identity: there is no scale to look up
        return super().apply_ln_to_stack(residual_stack, layer, *args, **kwargs)

    def stack_head_results(self, *args: Any, **kwargs: Any) -> Any:
        if not self.model.config.attn_out:
            raise ValueError("stack_head_results needs W_O; without it a head writes hook_z to its own columns")
        return super().stack_head_results(*args, **kwargs)

    def accumulated_resid(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("accumulated_resid")
        return super().accumulated_resid(*args, **kwargs)

    def decompose_resid(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("decompose_resid")
        return super().decompose_resid(*args, **kwargs)

    def get_full_resid_decomposition(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("get_full_resid_decomposition")
        return super().get_full_resid_decomposition(*args, **kwargs)

    def logit_attrs(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unless_sum("logit_attrs")
        return super().logit_attrs(*args, **kwargs)


class Transformer(HookedRootModule):
    """tokens -> embed (+ positions) -> blocks -> final norm -> unembed -> logits.

    `run_with_cache` and `run_with_hooks` are transformer-lens's: their hooks live on the model, so use them from one
    thread. `edits.applied` and `edits.recording` are safe from any number of threads.
    """

    sinusoid: Tensor
    unembed: MLP | Unembed
    tokenizer: Any

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        if config.d_vocab is None:
            raise ValueError("d_vocab is not set: give the vocabulary size of the tokenizer")
        self.config, self.tokenizer, self.d_vocab = config, None, config.d_vocab
        self.embed = Embed("W_E", config.d_vocab, config.d_model)
        self.hook_embed = Tap()
        if config.positions in ("learned", "shortformer"):
            self.pos_embed = Embed("W_pos", config.n_ctx, config.d_model)
        if config.positions == "sinusoidal":
            self.register_buffer("sinusoid", _sinusoid(config.n_ctx, config.d_model), persistent=False)
        if config.positions in ("learned", "shortformer", "sinusoidal"):
            self.hook_pos_embed = Tap()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = cast("list[Block]", nn.ModuleList(Block(config) for _ in range(config.n_layers)))
        self.ln_final = Norm(config) if config.norm != "none" and config.final_norm else nn.Identity()
        if config.unembed_hidden:
            self.unembed = MLP(config.d_model, config.unembed_hidden, config.d_vocab, config.activation)
        elif not config.tie_embeddings:
            self.unembed = Unembed(config.d_model, config.d_vocab)
        init_weights(self, seed)
        self.setup()

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        if not torch.compiler.is_compiling():
            self.check(tokens)
        x, attn_pos = self.start(tokens)
        for block in self.blocks:
            x = block(x, attn_pos)
        return self.logits(x)

    def start(self, tokens: Int[Tensor, "batch pos"]) -> tuple[Tensor, Tensor | None]:
        """What enters the first block, and what q and k of every block read on top (shortformer)."""
        x = self.hook_embed(F.embedding(tokens, self.embed.W_E))
        attn_pos = None
        if self.config.positions in ("learned", "shortformer", "sinusoidal"):
            table = self.sinusoid if self.config.positions == "sinusoidal" else self.pos_embed.W_pos
            pos = self.hook_pos_embed(table[: tokens.shape[1]].expand(tokens.shape[0], -1, -1))
            if self.config.positions == "shortformer":
                attn_pos = pos
            else:
                x = x + pos
        return self.dropout(x), attn_pos

    def logits(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab"]:
        """From the end of the last block to the next token's logits: each position by itself."""
        x = self.ln_final(x)
        return x @ self.embed.W_E.T if self.config.tie_embeddings else self.unembed(x)

    def check(self, tokens: Tensor) -> None:
        """ValueError for tokens that this model cannot read, or edits of taps that it does not have."""
        refuse_unknown_taps(self.hook_dict)
        if tokens.shape[1] > self.config.n_ctx:
            raise ValueError(f"the input has {tokens.shape[1]} tokens, the context holds n_ctx={self.config.n_ctx}")
        if tokens.device.type == "cpu" and tokens.numel():  # on a GPU the look-up itself asserts, without a sync
            low, high = int(tokens.min()), int(tokens.max())
            if low < 0 or high >= self.d_vocab:
                raise ValueError(f"token {low if low < 0 else high} is outside the vocabulary: 0 to {self.d_vocab - 1}")

    def qk_taps(self, layer: int) -> tuple[str, str]:
        """The taps whose q and k are multiplied into scores (after the rotation, when there is one)."""
        prefix = f"blocks.{layer}.attn.hook_" + ("rot_" if self.config.positions == "rotary" else "")
        return prefix + "q", prefix + "k"

    # What every model with heads answers, ours or not (`tracer.headmodel`).

    @property
    def n_layers(self) -> int:
        return self.config.n_layers

    @property
    def n_heads(self) -> int:
        return self.config.n_heads

    @property
    def n_ctx(self) -> int:
        return self.config.n_ctx

    # What transformer-lens's ActivationCache, patching and head_detector ask of a model.

    @property
    def cfg(self) -> Any:
        c = self.config
        kind = {"none": None, "rms": "RMS", "layer": "LN"}[c.norm]
        return SimpleNamespace(
            n_layers=c.n_layers, n_heads=c.n_heads, d_model=c.d_model, d_head=c.head_width, n_ctx=c.n_ctx,
            d_vocab=c.d_vocab, d_mlp=c.mlp_hidden[-1] if c.mlp_hidden else None, attn_only=c.attn_only,
            act_fn=c.activation, use_attn_scale=c.attn_scale != "none", final_rms=c.norm == "rms",
            normalization_type=kind if c.norm_gain or kind is None else kind + "Pre", n_key_value_heads=None,
            device=str(self.embed.W_E.device), dtype=self.embed.W_E.dtype, model_name="manyeyes",
            default_prepend_bos=True,
        )  # fmt: skip

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        if self.config.tie_embeddings:
            return self.embed.W_E.T
        if isinstance(self.unembed, MLP):
            raise ValueError("this model's unembedding is an MLP: it has no W_U")
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, "d_vocab"]:
        return torch.zeros(self.d_vocab, device=self.embed.W_E.device, dtype=self.embed.W_E.dtype)

    def run_with_cache(self, *args: Any, remove_batch_dim: bool = False, **kwargs: Any) -> tuple[Tensor, Cache]:
        """Logits and an ActivationCache of every tap (`names_filter` narrows it), as in transformer-lens."""
        logits, seen = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kwargs)
        return logits, Cache(seen, self, has_batch_dim=not remove_batch_dim)

    def to_tokens(self, text: str, prepend_bos: bool = True, **_: Any) -> Int[Tensor, "1 pos"]:
        """Token ids of a text, with the start token in front."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer: set model.tokenizer, or get the model from open_run(...)")
        ids = self.tokenizer.encode(text).ids
        return torch.tensor([[0, *ids] if prepend_bos else ids], device=self.embed.W_E.device)

    def to_single_token(self, text: str) -> int:
        """The id of a text that is exactly one token."""
        ids = self.to_tokens(text, prepend_bos=False)[0].tolist()
        if len(ids) != 1:
            raise ValueError(f"{text!r} is {len(ids)} tokens, not one")
        return ids[0]

    def tokens_to_residual_directions(self, tokens: Any) -> Tensor:
        """W_U columns times the final norm's gain, so that logit_attrs of a normalised stream are logits."""
        directions = self.W_U.T[torch.as_tensor(tokens)]
        gain = getattr(self.ln_final, "w", None)
        return directions if gain is None else directions * gain

    def accumulated_bias(self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True) -> Tensor:
        """Sum of the biases written to the stream before a layer."""
        total = torch.zeros_like(self.embed.W_E[0])
        for index, block in enumerate(self.blocks):
            if index < layer or (index == layer and mlp_input):
                total = total if block.attn.b_O is None else total + block.attn.b_O
            if index < layer and include_mlp_biases and block.mlp is not None:
                total = total + block.mlp.b_out
        return total


def init_weights(model: Transformer, seed: int) -> None:
    """Fill every weight from one CPU generator, so that a seed means the same weights on every device."""
    generator, init = torch.Generator().manual_seed(seed), model.config.init

    def fill(weight: Tensor, how: Init, fan_in: int) -> None:
        if how == "linear":
            weight.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
        else:
            weight.normal_(0, fan_in**-0.5 if how == "fan_in" else float(how), generator=generator)

    def fill_mlp(mlp: MLP) -> None:
        for name in mlp.names:
            weight, bias = getattr(mlp, f"W_{name}"), getattr(mlp, f"b_{name}")
            fill(weight, init.mlp, weight.shape[0])
            fill(bias, init.mlp, weight.shape[0]) if init.mlp == "linear" else bias.zero_()

    with torch.no_grad():
        fill(model.embed.W_E, init.embed, model.config.d_model)
        if model.config.positions in ("learned", "shortformer"):
            fill(model.pos_embed.W_pos, init.pos, model.config.d_model)
        for block in model.blocks:
            for weight in (block.attn.W_Q, block.attn.W_K, block.attn.W_V):
                fill(weight, init.attn, model.config.d_model)
            if block.attn.W_O is not None:
                fill(block.attn.W_O, init.attn, block.attn.W_O.shape[0] * block.attn.W_O.shape[1])
            if block.mlp is not None:
                fill_mlp(block.mlp)
        if model.config.unembed_hidden:
            fill_mlp(cast(MLP, model.unembed))
        elif not model.config.tie_embeddings:
            fill(cast(Unembed, model.unembed).W_U, init.unembed, model.config.d_model)


def _sinusoid(n_ctx: int, d_model: int) -> Float[Tensor, "n_ctx d_model"]:
    """Vaswani et al. 2017: sines and cosines of position at geometrically spaced wavelengths."""
    angle = _angles(n_ctx, math.ceil(d_model / 2))
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :d_model]


def _rotation(config: ModelConfig) -> Float[Tensor, "n_ctx half 2"]:
    angle = _angles(config.n_ctx, config.head_width // 2)
    return torch.stack([angle.cos(), angle.sin()], -1)


def _angles(n_ctx: int, half: int) -> Float[Tensor, "n_ctx half"]:
    frequency = 10000.0 ** -(torch.arange(half) / half)
    return torch.arange(n_ctx)[:, None] * frequency


def _rotate(x: Float[Tensor, "batch pos head d_head"], rotation: Tensor) -> Float[Tensor, "batch pos head d_head"]:
    """Rotary positions (Su et al. 2021): turn each pair (first half, second half) of q or k by position * frequency."""
    cos, sin = (rotation[: x.shape[1], None, :, i].to(x.dtype) for i in (0, 1))
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
