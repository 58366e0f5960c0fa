"""What is put in place of heads that are switched off: nothing, their mean, or that of another sequence."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.config import DRAWS as DRAWS
from tracer.interventions.edits import Edit
from tracer.measures.aliases import Head

Mode = Literal["zero", "mean", "resample", "paired"]
MODES: tuple[Mode, ...] = ("zero", "mean", "resample")
"""Those that need no second batch."""
NO_OTHER = "the mean is that of the other sequences, and here is only one: give a reference= batch"
MORE = 8
"""Times as many sequences are averaged where the mean stands for a head: a mean of few is noise that does harm."""


def z_tap(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_z"


def pattern_tap(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_pattern"


def head_of(given: Any) -> Head:
    """(layer, head) from any two whole numbers, or an error that says how heads are named."""
    try:
        layer, head = (index(number) for number in given)
    except (TypeError, ValueError):
        raise ValueError(
            f"{given!r} is nothing that can be switched off: a head is (layer, head), several are "
            f"[(layer, head), (layer, head)]; other parts are Attention, MLP, Edge and Path"
        ) from None
    return layer, head


def plan(
    heads: Iterable[Head],
    mode: Mode | str,
    z: dict[str, Tensor] | None = None,
    own: Int[Tensor, " batch"] | None = None,
    draw: int = 0,
    positions: tuple[int, ...] | None = None,
) -> list[Edit]:
    """The edits that switch heads off. mean and resample need `z` of a reference batch at least as long as the input,
    and which of its rows are the input's `own` (`own_rows`; default: the reference is the input)."""
    check_mode(mode)
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return [
        Edit(z_tap(layer), tuple(which), positions, replacement(z_tap(layer), mode, z, own, draw))
        for layer, which in by_layer.items()
    ]


def replacement(
    tap: str, mode: Mode | str, seen: dict[str, Tensor] | None = None, own: Int[Tensor, " batch"] | None = None,
    draw: int = 0,
) -> float | Tensor:  # fmt: skip
    """What stands at a tap instead: 0, the mean of what was `seen` there in other rows, or that of another row."""
    if mode == "zero":
        return 0.0
    if seen is None:
        raise ValueError(f"mode={mode!r} needs a reference batch to take the replacement from")
    reference = seen[tap]
    own = torch.arange(len(reference), device=reference.device) if own is None else own
    if mode == "paired":
        return reference
    if mode == "mean":
        return mean_of_others(reference.sum(0), len(reference), reference[own], own)
    if len(reference) < 2:
        raise ValueError("resampling needs at least 2 sequences to draw from; the reference batch has 1")
    return reference[another(len(reference), own, draw)]


def mean_of_others(
    total: Float[Tensor, "*values"], n: int, rows: Float[Tensor, "batch *values"], own: Int[Tensor, " batch"]
) -> Float[Tensor, "batch *values"]:
    """For each row of the input the mean over a reference batch of n rows that sum to `total`, itself left out.

    A mean that holds 1/n of what it stands for keeps some of the head's work, and says too small an effect.
    """
    if n == 1 and bool((own >= 0).any()):
        raise ValueError(NO_OTHER)
    there = (own >= 0).to(rows).view(-1, *(1,) * total.ndim)
    return (total - there * rows) / (n - there)


def another(n: int, own: Int[Tensor, " batch"], draw: int) -> Int[Tensor, " batch"]:
    """For each row of the input a row of a reference batch of n, drawn at random and never itself."""
    order = derangement(n, seed=draw).to(own)
    drawn = order[: len(own)]
    return torch.where(drawn == own, order[own], drawn)


def own_rows(tokens: Int[Tensor, "batch pos"], reference: Int[Tensor, "reference_batch pos"]) -> Int[Tensor, " batch"]:
    """Which row of the reference batch is each row of the input; -1 for none. Of equal rows any."""
    _, which = torch.cat([reference.to(tokens), tokens]).unique(dim=0, return_inverse=True)
    place = which.new_full((int(which.max()) + 1,), -1)
    place[which[: len(reference)]] = torch.arange(len(reference), device=place.device)
    return place[which[len(reference) :]]


def draws_of(mode: Mode | str, draws: int, seed: int) -> range:
    """The numbers of the draws in a mode: one where nothing is drawn."""
    return range(seed, seed + (draws if mode == "resample" else 1))


def derangement(n: int, seed: int) -> Int[Tensor, "n"]:
    """A random permutation of n in which nothing stays in place: a shuffled ring, each element moved one on."""
    ring = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return ring.roll(1)[ring.argsort()]


def check_mode(mode: Mode | str) -> None:
    if mode not in (*MODES, "paired"):
        raise ValueError(f"there is no ablation mode {mode!r}; there are: {', '.join(MODES)}, paired")
