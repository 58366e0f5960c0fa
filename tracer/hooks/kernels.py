"""The arguments of torch's own attention functions, and nn.MultiheadAttention with its inside in sight."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

# torch's own function, in which nothing asks for a mode again: else the mode would be back before its first line
_mha = F.multi_head_attention_forward
MHA = types.FunctionType(
    _mha.__code__, {**vars(F), "has_torch_function": lambda _: False}, _mha.__name__, _mha.__defaults__
)
MHA.__kwdefaults__ = _mha.__kwdefaults__
_MHA_ARGUMENTS = inspect.signature(_mha)


@dataclass(frozen=True)
class MultiHead:
    """What a call of F.multi_head_attention_forward says of the attention inside it."""

    n_heads: int
    crosses: bool
    """Are keys other tokens than the queries?"""
    some: bool
    """Are queries some of the tokens that are keys: a block of them?"""
    extra: tuple[str, ...]
    """Keys behind those of the tokens: a learned one (add_bias_kv), one of zeros (add_zero_attn)."""

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MultiHead:
        given = _MHA_ARGUMENTS.bind(*args, **kwargs).arguments
        query, key = given["query"], given["key"]
        some = query is not key and query.untyped_storage().data_ptr() == key.untyped_storage().data_ptr()
        extra = {"bias_k": given["bias_k"] is not None, "zero": given["add_zero_attn"]}
        there = tuple(name for name, is_there in extra.items() if is_there)
        return cls(given["num_heads"], query is not key and not some, some, there)


def sdpa_arguments(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, float, bool, float | None]:  # fmt: skip
    return query, key, value, attn_mask, dropout_p, is_causal, scale


def heads_last(x: Tensor) -> Tensor:
    """[batch head pos d] or [batch pos d] to [batch pos head d]."""
    return x.unsqueeze(2) if x.ndim == 3 else rearrange(x, "batch head pos d -> batch pos head d")


def four_axes(mask: Tensor | None, no_heads: bool) -> Tensor | None:
    """A mask as [batch head query_pos key_pos]; where q has no axis of heads, one of three axes has none either."""
    if mask is None or mask.ndim == 4:
        return mask
    return mask.unsqueeze(1) if mask.ndim == 3 and no_heads else mask.view((1,) * (4 - mask.ndim) + tuple(mask.shape))
