"""Architectures of `transformers` that compute what some of our models compute.

learned, sinusoidal or no positions    GPT-2; OPT for post-norm and where no norm comes last
rotary positions                       Llama (RMSNorm, attention only), Arcee (RMSNorm), Starcoder2 (LayerNorm)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tracer.config import ModelConfig
from tracer.export.folding import Stream, is_post_norm, lacks_final_norm

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Family(ABC):
    """An architecture: how its stream differs from ours, and its names for our maps, tables and norms."""

    config: str
    model: str
    layers: str
    names: dict[str, str]
    layer_norm_only = True
    any_d_head = False
    fixed_eps: float | None = None

    def build(self, c: ModelConfig, stream: Stream, dtype: torch.dtype, bos: int | None) -> PreTrainedModel:
        """The model, with weights that are there to be replaced. `bos`: the start token, which ends a document too."""
        import transformers

        config = getattr(transformers, self.config)(
            vocab_size=c.d_vocab, hidden_size=stream.width, num_hidden_layers=c.n_layers,
            num_attention_heads=c.n_heads, max_position_embeddings=c.n_ctx, bos_token_id=bos, eos_token_id=bos,
            pad_token_id=None, tie_word_embeddings=c.tie_embeddings and stream.plain, **self.options(c, stream),
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            return getattr(transformers, self.model)(config).to(dtype)

    @abstractmethod
    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        """What the config says besides sizes."""

    def state(self, folded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Their state dict; nn.Linear has maps [d_out d_in]."""
        tables = ("embed.weight", "pos.weight")
        return self.renamed({name: w.T if w.ndim == 2 and name not in tables else w for name, w in folded.items()})

    def renamed(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        theirs = {}
        for name, weight in weights.items():
            *layer, part, kind = name.split(".")
            if part in self.names:
                path = [self.layers, *layer] if layer else []
                theirs[".".join([*path, self.names[part], kind])] = weight.contiguous()
        return theirs


class GPT2(Family):
    """Pre-norm with LayerNorm, a table of positions, one hidden layer."""

    config, model, layers = "GPT2Config", "GPT2LMHeadModel", "transformer.h"
    names = {
        "embed": "transformer.wte", "pos": "transformer.wpe", "ln_f": "transformer.ln_f", "unembed": "lm_head",
        "ln1": "ln_1", "qkv": "attn.c_attn", "o": "attn.c_proj", "ln2": "ln_2", "in": "mlp.c_fc", "out": "mlp.c_proj",
    }  # fmt: skip

    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        dropout = c.dropout if stream.plain else 0.0  # it would tear x and -x apart
        return {
            "n_inner": d_mlp(c), "activation_function": c.activation, "layer_norm_epsilon": stream.eps,
            "embd_pdrop": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout,
        }  # fmt: skip

    def state(self, folded: dict[str, Tensor]) -> dict[str, Tensor]:
        merged = folded | {"unembed.weight": folded["unembed.weight"].T}  # the others are [d_in d_out] here too
        for name in [name for name in folded if ".q." in name]:
            letters = [folded[name.replace(".q.", f".{letter}.")] for letter in "qkv"]
            merged[name.replace(".q.", ".qkv.")] = torch.cat(letters, -1)
        return self.renamed(merged)


class OPT(Family):
    """LayerNorm after, or before without a last one; a table of positions, one hidden layer."""

    config, model, layers = "OPTConfig", "OPTForCausalLM", "model.decoder.layers"
    names = {
        "embed": "model.decoder.embed_tokens", "pos": "model.decoder.embed_positions",
        "unembed": "lm_head", "ln1": "self_attn_layer_norm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
        "v": "self_attn.v_proj", "o": "self_attn.out_proj", "ln2": "final_layer_norm", "in": "fc1", "out": "fc2",
    }  # fmt: skip
    fixed_eps = 1e-5

    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        return {
            "ffn_dim": d_mlp(c), "activation_function": c.activation, "do_layer_norm_before": not is_post_norm(c),
            "_remove_final_layer_norm": True, "dropout": 0.0,
        }  # fmt: skip

    def state(self, folded: dict[str, Tensor]) -> dict[str, Tensor]:
        return super().state(folded | {"pos.weight": F.pad(folded["pos.weight"], (0, 0, 2, 0))})  # its first is row 2


class Rotary(Family):
    """What the families with rotary positions have in common: pre-norm, and heads of any width."""

    layers = "model.layers"
    names = {
        "embed": "model.embed_tokens", "ln_f": "model.norm", "unembed": "lm_head", "ln1": "input_layernorm",
        "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
        "ln2": "post_attention_layernorm",
    }  # fmt: skip
    any_d_head = True

    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        return {
            "num_key_value_heads": c.n_heads, "head_dim": stream.d_head, "intermediate_size": d_mlp(c),
            "hidden_act": c.activation, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        }  # fmt: skip


class Llama(Rotary):
    """RMSNorm; its MLP is gated, so ours must be none: zeros."""

    config, model, layer_norm_only = "LlamaConfig", "LlamaForCausalLM", False
    names = Rotary.names | {"in": "mlp.up_proj", "gate": "mlp.gate_proj", "out": "mlp.down_proj"}

    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        return super().options(c, stream) | {"rms_norm_eps": stream.eps, "attention_bias": c.attn_out_bias}

    def state(self, folded: dict[str, Tensor]) -> dict[str, Tensor]:
        gates = {name.replace(".in.", ".gate."): weight for name, weight in folded.items() if ".in." in name}
        return super().state(folded | gates)


class Arcee(Rotary):
    """RMSNorm and an MLP of one hidden layer."""

    config, model, layer_norm_only = "ArceeConfig", "ArceeForCausalLM", False
    names = Rotary.names | {"in": "mlp.up_proj", "out": "mlp.down_proj"}

    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        norm = {"rms_norm_eps": stream.eps, "attention_bias": c.attn_out_bias, "mlp_bias": True}
        return super().options(c, stream) | norm


class Starcoder2(Rotary):
    """LayerNorm and an MLP of one hidden layer."""

    config, model = "Starcoder2Config", "Starcoder2ForCausalLM"
    names = Rotary.names | {"in": "mlp.c_fc", "out": "mlp.c_proj"}

    def options(self, c: ModelConfig, stream: Stream) -> dict[str, Any]:
        dropout = {"attention_dropout": c.dropout, "residual_dropout": c.dropout, "embedding_dropout": c.dropout}
        return super().options(c, stream) | {"norm_epsilon": stream.eps, "use_bias": True, **dropout}


def d_mlp(c: ModelConfig) -> int:
    return c.mlp_hidden[0] if c.mlp_hidden else 1


def family_of(c: ModelConfig) -> Family:
    """The architecture for a model that has one."""
    if c.positions != "rotary":
        return OPT() if is_post_norm(c) or lacks_final_norm(c) else GPT2()
    if c.norm == "layer":
        return Starcoder2()
    return Llama() if c.attn_only else Arcee()
