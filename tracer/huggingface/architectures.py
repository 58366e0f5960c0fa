"""What architectures of `transformers`, and nanoGPT, call the parts of their residual stream: one row a family.

Names are all that a row says; that they compute what is meant is measured on the model itself (`stream_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tracer.config.field_docs import fields_in_help
from tracer.config.fields import check_fields, from_dict, to_dict
from tracer.files.disk import read_yaml
from tracer.named_code import kind_of

if TYPE_CHECKING:
    from torch import nn


FUNCTIONAL = {"F.rms_norm": False, "F.layer_norm": True}
"""Norms that no module makes, but a function of torch.nn.functional without a gain: is the mean taken off?"""


@fields_in_help
@dataclass(frozen=True)
class Layout:
    """Where a transformer keeps what writes to its residual stream: paths of modules, for `layout=`.

    Paths are of the model's parts from the model, of a block's parts from the block, of a head's from its attention. A
    norm that is no module is "F.rms_norm" or "F.layer_norm". `norm` is in front of attention; `out_norm` and `mlp_norm`
    are behind what is written. A layout only names: what the parts compute is checked on the model itself, in numbers.
    ValueError for a field of the wrong kind.
    """

    blocks: str
    """The list of blocks, as "transformer.h"; of each block:"""
    final: str | None
    """the norm before the unembedding,"""
    embed: str
    """the table of token vectors,"""
    attention: str
    """the module that attention is in; "" where it is the block itself,"""
    norm: str | None
    """and what is in front of attention."""
    out: str = "o_proj"
    """The linear layer that writes, in the attention."""
    into: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """What makes q, k and v: three linear layers, or one."""
    woven: bool = False
    """Of one layer: q, k and v of head 0, then of head 1, ...; else all of q, then of k, then of v."""
    own_norms: tuple[str, ...] = ("q_norm", "k_norm")
    """Of q and of k, in the attention, where they are there."""
    mlp: str | None = "mlp"
    """The module whose output an MLP adds to the stream; None where blocks have none."""
    out_norm: str | None = None
    """A norm behind attention: what `out` writes goes through it before it is added;"""
    mlp_norm: str | None = None
    """and one behind the MLP. (What is in front of the MLP need not be named.)"""
    embed_norm: str | None = None
    """A norm of the token vectors, before the first block."""
    has_positions: bool = False
    """Are positions added to the stream?"""
    scale: float | None = None
    """What scores are multiplied by. None: by what the attention calls scaling, else by 1 / sqrt(d_head)."""
    latent: bool = False
    """Are keys and values, and perhaps queries, made through a narrow normed vector (MLA)?"""
    unembed: str | None = None
    """What makes logits of the normed stream. None: what the model gives as its output embeddings, or lm_head."""
    gated: bool = False
    """Is what heads give multiplied by a gate before `out`? The gate is read off each pass."""
    rotary: Literal["given", "halves", "pairs"] = "given"
    """Rotary positions: attention is called with position_embeddings, as in transformers, or there are none; else the
    turns are read off each pass, of numbers (i, i + d_head / 2) of q and k, or of neighbours (2 i, 2 i + 1)."""

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.into) not in (1, 3):
            raise ValueError(f"into={self.into} must name three linear layers, of q, k and v, or one of all three")
        if len(self.own_norms) not in (0, 2):
            raise ValueError(f"own_norms={self.own_norms} must name two norms, of q and of k, or none: ()")
        if found := [name for name in (self.out_norm, self.mlp_norm) if name in FUNCTIONAL]:
            raise ValueError(
                f"{found[0]} as out_norm or mlp_norm has no output that could be seen: it must be a module"
            )

    def block_of(self, attention: str) -> tuple[str, str]:
        """Paths of a block and its attention, from that of the module in which an attention was seen."""
        number = attention.removeprefix(f"{self.blocks}.").partition(".")[0].partition("#")[0]
        block = f"{self.blocks}.{number}"
        return block, f"{block}.{self.attention}" if self.attention else block

    def check(self, model: nn.Module, attentions: Sequence[str]) -> None:
        """ValueError, with the field, for a module that is not there."""
        self._find(model, "", "blocks", "final", "embed", "unembed", "embed_norm")
        for path in attentions:
            if not path.startswith(f"{self.blocks}."):
                raise ValueError(f"layout: blocks={self.blocks!r}, but an attention was seen in {path}")
            block, attention = self.block_of(path)
            self._find(model, block, "attention", "norm", "mlp", "out_norm", "mlp_norm")
            self._find(model, attention, "out", "into")

    def _find(self, model: nn.Module, parent: str, *fields: str) -> None:
        """ValueError for the first of the paths in these fields that leads nowhere from this parent."""
        for field in fields:
            value = getattr(self, field)
            for path in value if isinstance(value, tuple) else (value,):
                if not path or path in FUNCTIONAL or _has(model, at := f"{parent}.{path}".lstrip(".")):
                    continue
                there = ", ".join(dict(model.get_submodule(parent).named_children()))
                raise ValueError(
                    f"layout: {field}={value!r}, but this {type(model).__name__} has no {at}; "
                    f"modules in {parent or 'it'}: {there}"
                )


def layout_of(told: Layout | str | Path | Mapping[str, Any] | None) -> Layout | None:
    """A layout itself, that of a YAML or JSON file, or of plain values as in run.json. ValueError for anything else."""
    if told is None or isinstance(told, Layout):
        return told
    if isinstance(told, str | Path):
        try:
            values = read_yaml(Path(told))
        except (OSError, ValueError) as error:
            raise ValueError(f"layout={str(told)!r} cannot be read: {error}") from error
    else:
        values = {name: told[name] for name in Layout.__dataclass_fields__ if name in told}
    try:
        return from_dict(Layout, values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"layout={str(told)!r:.100}: {error}") from error


_LLAMA = Layout("model.layers", "model.norm", "model.embed_tokens", "self_attn", "input_layernorm")
_GEMMA = replace(_LLAMA, out_norm="post_attention_layernorm", mlp_norm="post_feedforward_layernorm")
_GPT2 = Layout(
    "transformer.h", "transformer.ln_f", "transformer.wte", "attn", "ln_1", "c_proj", ("c_attn",), has_positions=True
)
ARCHITECTURES: dict[str, Layout] = {
    "gpt2": _GPT2, "nanogpt": _GPT2,
    "gpt_neo": replace(
        _GPT2, attention="attn.attention", out="out_proj", into=("q_proj", "k_proj", "v_proj"), scale=1.0
    ),
    "gpt_neox": Layout(
        "gpt_neox.layers", "gpt_neox.final_layer_norm", "gpt_neox.embed_in", "attention", "input_layernorm", "dense",
        ("query_key_value",), woven=True,
    ),
    "opt": Layout(
        "model.decoder.layers", "model.decoder.final_layer_norm", "model.decoder.embed_tokens", "self_attn",
        "self_attn_layer_norm", "out_proj", mlp="fc2", has_positions=True,
    ),
    "bloom": Layout(
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


def plain_values(layout: Layout) -> dict[str, Any]:
    """As run.json has it: `layout_of` reads it."""
    return {name: list(x) if isinstance(x, tuple) else x for name, x in to_dict(layout).items()}


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


def architecture_of(model: nn.Module) -> Layout:
    """ValueError, with those that are known, for another family or one of its options that is no sum."""
    config: Any = getattr(model, "config", None)
    kind = family_of(model)
    known = ARCHITECTURES.get(str(kind))
    if known is None:
        raise ValueError(
            f"the residual stream of {kind_of(model)}"
            + (f" (model_type={kind!r})" if kind else "")
            + " is not known: its attention is seen, what it writes is not. A tracer.Layout says it (layout=). Known: "
            + ", ".join(sorted(ARCHITECTURES))
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
