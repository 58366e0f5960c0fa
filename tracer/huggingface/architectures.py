"""What architectures of `transformers`, and nanoGPT, call the parts of their residual stream: one row a family.

Names are all that a row says; that they compute what is meant is measured on the model itself (`stream_weights`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """Paths: of the model's parts from the model, of a block's parts from the block, of a head's from its attention."""

    blocks: str
    final: str
    embed: str
    attention: str
    norm: str | None
    """In front of attention."""
    out: str = "o_proj"
    """What writes, in the attention."""
    into: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """What makes q, k and v: three layers, or one."""
    woven: bool = False
    """Of one layer: q, k and v of head 0, then of head 1, ...; else all of q, then of k, then of v."""
    own_norms: tuple[str, str] = ("q_norm", "k_norm")
    """Of q and of k, where they are there."""
    mlp: str = "mlp"
    """The module whose output an MLP adds to the stream."""
    out_norm: str | None = None
    mlp_norm: str | None = None
    """What their outputs go through before they are added."""
    embed_norm: str | None = None
    has_positions: bool = False
    """Are positions added to the stream?"""
    divides: bool = False
    """Are scores divided by sqrt(d_head), though no module says so?"""
    latent: bool = False
    """Are keys and values, and perhaps queries, made through a narrow normed vector (MLA)?"""


_LLAMA = Architecture("model.layers", "model.norm", "model.embed_tokens", "self_attn", "input_layernorm")
_GEMMA = replace(_LLAMA, out_norm="post_attention_layernorm", mlp_norm="post_feedforward_layernorm")
_GPT2 = Architecture(
    "transformer.h", "transformer.ln_f", "transformer.wte", "attn", "ln_1", "c_proj", ("c_attn",), has_positions=True
)
ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": _GPT2, "nanogpt": replace(_GPT2, divides=True),
    "gpt_neo": replace(_GPT2, attention="attn.attention", out="out_proj", into=("q_proj", "k_proj", "v_proj")),
    "gpt_neox": Architecture(
        "gpt_neox.layers", "gpt_neox.final_layer_norm", "gpt_neox.embed_in", "attention", "input_layernorm", "dense",
        ("query_key_value",), woven=True,
    ),
    "opt": Architecture(
        "model.decoder.layers", "model.decoder.final_layer_norm", "model.decoder.embed_tokens", "self_attn",
        "self_attn_layer_norm", "out_proj", mlp="fc2", has_positions=True,
    ),
    "bloom": Architecture(
        "transformer.h", "transformer.ln_f", "transformer.word_embeddings", "self_attention", "input_layernorm",
        "dense", ("query_key_value",), woven=True, mlp="mlp.dense_4h_to_h",
        embed_norm="transformer.word_embeddings_layernorm",
    ),
    "phi3": replace(_LLAMA, into=("qkv_proj",)),
    "gemma2": _GEMMA, "gemma3_text": _GEMMA,
    "olmo2": replace(_GEMMA, norm=None), "olmo3": replace(_GEMMA, norm=None),
    "deepseek_v2": replace(_LLAMA, latent=True), "deepseek_v3": replace(_LLAMA, latent=True),
    "stablelm": replace(_LLAMA, own_norms=("q_layernorm", "k_layernorm")),
} | dict.fromkeys(
    ("llama", "gemma", "mistral", "qwen2", "qwen3", "granite", "mixtral", "qwen2_moe", "qwen3_moe", "arcee",
     "starcoder2"), _LLAMA,
)  # fmt: skip


NANOGPT = ("transformer.wte", "transformer.wpe", "transformer.h.0.attn.c_attn", "transformer.ln_f", "lm_head")
"""What a model is known by that has no config of `transformers`."""


def family_of(model: nn.Module) -> str | None:
    """What its config says it is, or "nanogpt" where it is made of nanoGPT's parts; None for every other."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind is None and all(_has(model, path) for path in NANOGPT):
        return "nanogpt"
    return None if kind is None else str(kind)


def _has(model: nn.Module, path: str) -> bool:
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True


def architecture_of(model: nn.Module) -> Architecture:
    """ValueError, with those that are known, for another family or one of its options that is no sum."""
    config: Any = getattr(model, "config", None)
    kind = family_of(model)
    known = ARCHITECTURES.get(str(kind))
    if known is None:
        raise ValueError(
            f"the residual stream of a {type(model).__name__}"
            + (f" (model_type={kind!r})" if kind else "")
            + f" is not known: its attention is seen, what it writes is not. Known: {', '.join(sorted(ARCHITECTURES))}"
        )
    post = {
        "do_layer_norm_before": (False, "norms come after each sum"),
        "apply_residual_connection_post_layernorm": (True, "norms come before the residual is taken"),
    }
    for option, (value, why) in post.items():
        if getattr(config, option, None) is value:
            raise ValueError(f"{kind} with {option}={value}: {why}, so the stream is no sum of what its parts write")
    width = getattr(config, "word_embed_proj_dim", None)
    if width not in (None, getattr(config, "hidden_size", None)):
        raise ValueError(
            f"{kind} with word_embed_proj_dim={width}: embeddings are of another width than the stream of "
            f"{config.hidden_size}"
        )
    return known
