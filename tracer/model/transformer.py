"""The whole model: tokens [batch pos] in, logits [batch pos d_vocab] out."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from tracer.config import ModelConfig
from tracer.interventions.edits import Edit, applied, recording, refuse_unknown_taps
from tracer.interventions.named_hooks import FwdHooks, hooked
from tracer.model.activation_cache import Cache
from tracer.model.initial import init_weights
from tracer.model.layers import Block, Embed, FeedForward, Norm, Unembed
from tracer.model.lens import FactoredMatrix, HookedRootModule
from tracer.model.positions import sinusoid
from tracer.model.protocol import HeadWeights, Reuse, check_tokens, check_vocabulary
from tracer.model.residual_stream import AttentionPass, AttentionWeights, Into, NormWeights, ResidualStream, Unembedding
from tracer.model.tap import Tap

QK_TAPS = (
    "hook_q", "hook_k", "hook_normed_q", "hook_normed_k", "hook_smeared_q", "hook_smeared_k", "hook_rot_q", "hook_rot_k"
)  # fmt: skip
"""What to record so that `Transformer.qk_taps` is there, normed or not, smeared or not, rotary or not."""

CLAMPABLE = (".hook_z", ".hook_attn_scores", ".hook_pattern")
"""Where clamps act: passed on every way through a layer, also where a sweep goes on from a prefix."""


class Transformer(HookedRootModule):
    """tokens -> embed (+ positions) -> blocks -> final norm -> unembed -> logits.

    `run_with_cache` and `hooks` are transformer-lens's: their hooks live on the model, so use them from one thread.
    `run_with_hooks`, `edits.applied` and `edits.recording` are safe from any number of threads. `clamps` are part of
    the model.
    """

    sinusoid: Tensor
    unembed: FeedForward | Unembed
    tokenizer: Any

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        if config.d_vocab is None:
            raise ValueError("d_vocab is not set: give the vocabulary size of the tokenizer")
        self.config, self.tokenizer, self.d_vocab = config, None, config.d_vocab
        self.bos: int | None = 0
        """The token in front of a prompt; None: there is none."""
        self.embed = Embed("W_E", config.d_vocab, config.d_model)
        self.hook_embed = Tap()
        if config.positions in ("learned", "shortformer"):
            self.pos_embed = Embed("W_pos", config.n_ctx, config.d_model)
        if config.positions == "sinusoidal":
            self.register_buffer("sinusoid", sinusoid(config.n_ctx, config.d_model), persistent=False)
        if config.positions in ("learned", "shortformer", "sinusoidal"):
            self.hook_pos_embed = Tap()
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = cast("list[Block]", nn.ModuleList(Block(config) for _ in range(config.n_layers)))
        self.ln_final = Norm(config) if config.norm != "none" and config.final_norm else nn.Identity()
        if config.unembed_hidden:
            self.unembed = FeedForward(config.d_model, config.unembed_hidden, config.d_vocab, config.activation)
        elif not config.tie_embeddings:
            self.unembed = Unembed(config.d_model, config.d_vocab)
        init_weights(self, seed)
        self.setup()

    def forward(self, tokens: Int[Tensor, "batch pos"], last: int = 0) -> Float[Tensor, "batch last d_vocab"]:
        """The logits of the next token at every position, or only at the `last` so many."""
        if not torch.compiler.is_compiling():
            self.check(tokens)
        x, attn_pos = self.start(tokens)
        for block in self.blocks:
            x = block(x, attn_pos, tokens)
        return self.logits(x[:, -last:])

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
        check_tokens(tokens, self.config.n_ctx)
        refuse_unknown_taps(self.hook_dict)
        if tokens.device.type == "cpu":  # on a GPU the look-up itself asserts, without a sync
            check_vocabulary(tokens, self.d_vocab)

    @property
    def clamps(self) -> tuple[Edit, ...]:
        """What is held in every forward pass, in any thread, before other edits; () lets go."""
        return tuple(edit for tap in self.hook_dict.values() for edit in cast("Tap", tap).clamps)

    @clamps.setter
    def clamps(self, edits: Iterable[Edit]) -> None:
        wanted = tuple(edits)
        taps = [name for name in self.hook_dict if name.endswith(CLAMPABLE)]
        for edit in wanted:
            if edit.tap not in taps:
                raise ValueError(f"{edit.tap} is no tap of this model that can be clamped: {', '.join(taps)}")
        for name, tap in self.hook_dict.items():
            cast("Tap", tap).clamps = tuple(edit for edit in wanted if edit.tap == name)

    def qk_taps(self, layer: int) -> tuple[str, str]:
        """The taps whose q and k are multiplied into scores (after norm, smear and rotation, where they are)."""
        config, prefix = self.config, f"blocks.{layer}.attn.hook_"
        plain = "rot_" if config.positions == "rotary" else "normed_" if config.qk_norm else ""
        last = "rot_" if config.positions == "rotary" else "smeared_"
        q, k = (prefix + (last if side == config.smeared else plain) + side for side in "qk")
        return q, k

    def visible(self, layer: int, q: Float[Tensor, "batch pos head d_head"]) -> Tensor | None:
        """The keys that clamps and edits leave to a layer's heads, [1 head query_pos key_pos]; None: all."""
        return self.blocks[layer].attn.hook_attn_scores.mask(q)

    def held(self, layer: int) -> tuple[int, ...]:
        """The heads of a layer whose pattern q and k do not tell: of own clamps, a sink, a soft cap or sigmoids."""
        if self.config.looks_nowhere or self.config.attn_softcap is not None:
            return tuple(range(self.n_heads))
        return tuple(head for clamp in self.blocks[layer].attn.hook_pattern.own for head in clamp.heads or ())

    # What every model with heads answers, ours or not (`tracer.model.protocol`).

    @property
    def n_layers(self) -> int:
        return self.config.n_layers

    @property
    def n_heads(self) -> int:
        return self.config.n_heads

    @property
    def heads_of_layers(self) -> list[int]:
        return [self.n_heads] * self.n_layers

    @property
    def n_ctx(self) -> int:
        return self.config.n_ctx

    def head_weights(self) -> HeadWeights:
        """Those of every head, detached; without W_O a head writes its own columns of the identity."""
        layers = [self.attention_weights(layer) for layer in range(self.n_layers)]
        W_Q, W_K, W_V, W_O = (torch.stack([getattr(one, f"W_{name}") for one in layers]) for name in "QKVO")
        W_U = None if self.config.unembed_hidden else self.W_U.detach()
        return HeadWeights(W_Q, W_K, W_V, W_O, self.embed.W_E.detach(), W_U)

    def attention_weights(self, layer: int) -> AttentionWeights:
        """Of one layer, detached; without W_O a head writes its own columns of the identity."""
        block, columns = self.blocks[layer], torch.eye(self.config.d_model).to(self.embed.W_E)
        W_Q, W_K, W_V = (getattr(block.attn, f"W_{letter}").detach() for letter in "QKV")
        W_O, b_O = block.attn.W_O, block.attn.b_O
        return AttentionWeights(
            W_Q, W_K, W_V, columns.view(self.n_heads, -1, self.config.d_model) if W_O is None else W_O.detach(),
            self.config.scale, b_O=None if b_O is None else b_O.detach(), norm=_held(block.ln1) if block.pre else None,
            q_norm=_held(block.attn.q_norm), k_norm=_held(block.attn.k_norm), smear=block.attn.own_shares(),
            cap=self.config.attn_softcap, sigmoid=None if block.attn.less is None else -block.attn.less,
        )  # fmt: skip

    @property
    def why_no_stream(self) -> str:
        """Why its stream is no sum of what its parts write, naming the options; empty where it is."""
        config = self.config
        if not config.residual:
            return "residual=False: each sublayer replaces the stream, which is not the sum of what its parts write"
        if config.norm != "none" and config.norm_position == "post":
            return "norm_position=post: each norm rescales the stream, which is not the sum of what its parts write"
        return ""

    @property
    def why_no_mlps(self) -> str:
        return "this model is attention only: it has no MLP to switch off" if self.config.attn_only else ""

    @property
    def why_not_now(self) -> str:
        if self.training and self.config.dropout:
            return f"the model is training, with dropout={self.config.dropout}: call model.eval() first"
        return ""

    @property
    def reuse(self) -> Reuse:
        return "shared"

    def input_taps(self, layer: int) -> dict[Into, str]:
        q, k = self.qk_taps(layer)
        return {"q": q, "k": k, "v": f"blocks.{layer}.attn.hook_v"}

    @torch.no_grad()
    def residual_stream(self, tokens: Int[Tensor, "batch pos"]) -> ResidualStream:
        """A forward pass under the edits in force, as sums; ValueError, naming the options, where it is none."""
        if self.why_no_stream:
            raise ValueError(self.why_no_stream)
        shortformer = self.config.positions == "shortformer"
        names = (
            "hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_z", "hook_gate", "hook_mlp_out", "hook_resid_post"
        )  # fmt: skip
        with recording(*names) as seen:
            logits = self(tokens)
        pos, layers = seen.get("hook_pos_embed"), []
        for i, block in enumerate(self.blocks):
            turns = None
            if block.attn.rotary:
                cos, sin = block.attn.rotation[: tokens.shape[1]].to(logits).unbind(-1)
                turns = torch.cat([cos, cos], -1)[None], torch.cat([sin, sin], -1)[None]
            layers.append(AttentionPass(
                self.attention_weights(i), seen[f"blocks.{i}.hook_resid_pre"], seen[f"blocks.{i}.attn.hook_z"], turns,
                pos if shortformer else None, gate=seen.get(f"blocks.{i}.attn.hook_gate"),
            ))  # fmt: skip
        return ResidualStream(
            tokens, seen["hook_embed"], None if shortformer else pos, tuple(layers),
            tuple(seen.get(f"blocks.{i}.hook_mlp_out") for i in range(self.n_layers)),
            seen[f"blocks.{self.n_layers - 1}.hook_resid_post"],
            None if self.config.unembed_hidden else Unembedding(_held(self.ln_final), self.W_U.detach()), logits,
        )  # fmt: skip

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
        if isinstance(self.unembed, FeedForward):
            raise ValueError("this model's unembedding is an MLP: it has no W_U")
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, "d_vocab"]:
        return torch.zeros(self.d_vocab, device=self.embed.W_E.device, dtype=self.embed.W_E.dtype)

    def run_with_cache(self, *args: Any, remove_batch_dim: bool = False, **kwargs: Any) -> tuple[Tensor, Cache]:  # pyrefly: ignore[bad-override]
        """Logits and an ActivationCache of every tap (`names_filter` narrows it), as in transformer-lens."""
        logits, seen = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kwargs)
        return logits, Cache(seen, self, has_batch_dim=not remove_batch_dim)

    @property
    def taps(self) -> list[str]:
        """The names that `run_with_hooks` takes."""
        return list(self.hook_dict)

    def run_with_hooks(
        self, *args: Any, fwd_hooks: FwdHooks = (), bwd_hooks: Any = (), reset_hooks_end: bool = True,
        clear_contexts: bool = False, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        """The logits with function(activation, hook) called at each named tap: [(name, function), ...].

        As in transformer-lens: what a function returns stands instead, None leaves what is there; a name may be a
        function of a tap's name. From any number of threads, but for `bwd_hooks` and `reset_hooks_end=False`, whose
        hooks live on the model. ValueError, with the names that exist, for a name of none.
        """
        fwd_hooks = list(fwd_hooks)
        edits = hooked(fwd_hooks, self.hook_dict)
        if bwd_hooks or not reset_hooks_end or clear_contexts:
            hooks: Any = {"fwd_hooks": fwd_hooks, "bwd_hooks": list(bwd_hooks), "reset_hooks_end": reset_hooks_end,
                          "clear_contexts": clear_contexts}  # fmt: skip
            return super().run_with_hooks(*args, **hooks, **kwargs)
        with applied(edits):
            return self(*args, **kwargs)

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return torch.stack([block.attn.W_Q for block in self.blocks])

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        return torch.stack([block.attn.W_K for block in self.blocks])

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        return torch.stack([block.attn.W_V for block in self.blocks])

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Without one, each head's own columns of the identity."""
        if not self.config.attn_out:
            return self.head_weights().W_O
        return torch.stack([cast("Tensor", block.attn.W_O) for block in self.blocks])

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head, [layer head d_model d_model], factored: `OV.AB` is the product; before any gate."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T of every head, [layer head d_model d_model], factored, without the scale of the scores."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    def to_tokens(self, text: str, prepend_bos: bool = True, **_: Any) -> Int[Tensor, "1 pos"]:
        """Token ids of a text, with the start token in front."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer: set model.tokenizer, or get the model from open_run(...)")
        try:
            ids = self.tokenizer.encode(text).ids
        except Exception as error:  # tokenizers raises nothing narrower
            raise ValueError(f"{text!r:.200} cannot be turned into tokens of this model: {error}") from error
        start = [] if self.bos is None or not prepend_bos else [self.bos]
        return torch.tensor([[*start, *ids]], device=self.embed.W_E.device)

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


def _held(norm: nn.Module | None) -> NormWeights | None:
    return as_stream_norm(norm) if isinstance(norm, Norm) else None


def as_stream_norm(norm: Norm) -> NormWeights:
    """One of our norms as the stream knows it."""
    w, b = (None if x is None else x.detach() for x in (norm.w, norm.b))
    return NormWeights(norm.eps, norm.centre, w, b)
