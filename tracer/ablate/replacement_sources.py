"""Where replacements for z come from: nowhere, the mean of the reference batch's other sequences, or one of them.

The same numbers as `planner.planner`, without ever holding the z of a whole reference batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.prefix_cached import Replacement, clean_run
from tracer.interventions.replacements import Mode, another, mean_of_others
from tracer.model import Transformer

Sources = Callable[[slice], Replacement]
"""From some sequences of the input to their replacements."""


def sources(
    model: Transformer, reference: Int[Tensor, "reference_batch pos"], own: Int[Tensor, " batch"], mode: Mode | str,
    draws: Sequence[int], at_once: int,
) -> Sources:  # fmt: skip
    """Replacements in a mode; the reference batch is run `at_once` sequences at a time; `own` as in `own_rows`."""
    if mode == "zero":
        nothing = torch.zeros((), dtype=model.embed.W_E.dtype, device=model.embed.W_E.device)
        return lambda some: lambda layer, head, draw, z: nothing
    if mode == "mean":
        total, n = _total(model, reference, at_once), len(reference)
        return lambda some: lambda layer, head, draw, z: mean_of_others(total[layer][:, head], n, z, own[some])
    if mode == "paired":
        orders = torch.arange(len(reference), device=reference.device)[None]
    else:
        orders = torch.stack([another(len(reference), own, draw) for draw in draws])

    def resampled(some: slice) -> Replacement:
        needed, place = orders[:, some].unique(return_inverse=True)  # of [draw, row]
        parts = zip(*(_z(model, rows) for rows in reference[needed].split(at_once)), strict=True)
        z = [torch.cat(part) for part in parts]
        return lambda layer, head, draw, _: z[layer][:, :, head][place[draw - draws[0]]]

    return resampled


def _z(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> list[Float[Tensor, "batch pos head d_head"]]:
    """By layer."""
    return [kept.z for kept in clean_run(model, tokens)[0]]


def _total(
    model: Transformer, tokens: Int[Tensor, "batch pos"], at_once: int
) -> list[Float[Tensor, "pos head d_head"]]:  # fmt: skip
    """The sum over sequences by layer, each position by itself."""
    total = [z.sum(0) for z in _z(model, tokens[:at_once])]
    for rows in tokens[at_once:].split(at_once):
        total = [so_far.add_(z.sum(0)) for so_far, z in zip(total, _z(model, rows), strict=True)]
    return total
