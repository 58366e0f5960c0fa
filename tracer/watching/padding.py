"""Padding: which tokens are none, and what heads do to those alone."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool
from torch import Tensor, nn

from tracer.heads import HeadStats
from tracer.heads.call import AttentionCall


def real_rows(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Bool[Tensor, "batch pos"] | None, Bool[Tensor, "batch pos"] | None]:  # fmt: skip
    """Which tokens are no padding, where the caller said so in the words of Hugging Face or of torch: of an encoder,
    and of a decoder that has one beside it; the same twice for a model with one kind of layers."""
    try:
        given = inspect.signature(model.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = {}
    given = {**given, **kwargs}

    def first(names: dict[str, bool]) -> Tensor | None:
        for name, says in names.items():
            mask = given.get(name)
            if isinstance(mask, Tensor) and mask.ndim == 2 and not (says and mask.is_floating_point()):
                real = mask.bool() == says
                return None if bool(real.all()) else real
        return None

    own = first({"attention_mask": True, "src_key_padding_mask": False, "key_padding_mask": False})
    if isinstance(model, nn.Transformer) or getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return own, first({"decoder_attention_mask": True, "tgt_key_padding_mask": False})
    return own, own


def without_padding(
    found: HeadStats, call: AttentionCall, real: Bool[Tensor, "batch query_pos"], own_keys: bool
) -> HeadStats:
    """The same as if each sequence had come without its padding, in means over its rows from the second on.

    Rows of padding are marked as rows that see nothing, which every mean leaves out, and so is the first real row where
    padding comes before it: without padding it is row 0. There, if keys are the same tokens (`own_keys`), the first
    token is the first real one.
    """
    first = real.int().argmax(1)
    padded = (first > 0) & real.any(1)
    if own_keys and bool(padded.any()):
        there = call.weight(first, found.lse).where(~found["first_token"].isnan(), found["first_token"])
        there = torch.where(rearrange(padded, "batch -> batch 1 1"), there, found["first_token"])
        found = replace(found, rows={**found.rows, "first_token": there})
    blind = ~real[:, None] | (found.lse == float("-inf"))
    largest = (found.lse + found["confidence"].log()).masked_fill(blind, float("-inf"))
    kept = real.clone()
    kept[padded, first[padded]] = False
    places = torch.arange(real.shape[1], device=real.device) - rearrange(first, "batch -> batch 1")
    distances = torch.arange(2, found.back.shape[2] + 2, device=real.device)
    near = rearrange(places, "batch pos -> batch 1 1 pos") <= rearrange(distances, "distance -> distance 1")
    back = found.back.masked_fill(near, float("nan"))
    return hidden(replace(found, max_logit=largest.amax(-1), back=back), ~kept[:, None])


def hidden(found: HeadStats, rows: Bool[Tensor, "batch head_or_1 query_pos"]) -> HeadStats:
    """The same, with some rows marked as rows that see nothing, which every mean leaves out."""
    blank = {name: value.masked_fill(rows, float("nan")) for name, value in found.rows.items()}
    back = found.back.masked_fill(rows.unsqueeze(2), float("nan"))
    return replace(found, rows=blank, lse=found.lse.masked_fill(rows, float("-inf")), back=back)
