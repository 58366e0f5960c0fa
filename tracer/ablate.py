"""Switch heads off and measure what it costs, exactly: every number comes from a forward pass with the heads replaced.

An ablation replaces z (a head's output before W_O) at all positions:
    zero      z = 0
    mean      z = mean over a reference batch, at each position by itself
    resample  z = that of another sequence of the same batch (a seeded permutation without fixed points), mean of draws
`frozen=True` also holds every other pattern at the clean run's (Olsson et al. 2022, "pattern-preserving"), so that only
what the head writes through values changes. Effects are metric[ablated] - metric[clean].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.edits import Edit, applied, recording
from tracer.model import Transformer
from tracer.probes import per_token_loss

if TYPE_CHECKING:
    import xarray as xr

Head = tuple[int, int]
"""(layer, head), counted from zero."""
Mode = Literal["zero", "mean", "resample"]
MODES: tuple[Mode, ...] = ("zero", "mean", "resample")
DRAWS = 5
BOOTSTRAPS = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean over sequences with its 95 % interval (percentile bootstrap, Efron 1979); nan bounds for one sequence."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Effect:
    """What an ablation did to a batch: the loss of every next token before and after."""

    clean: Float[Tensor, "batch loss_pos"]
    """Loss in nats of each next token, nothing ablated."""
    ablated: Float[Tensor, "batch loss_pos"]
    """The same with the heads off (mean over draws for resample)."""

    @property
    def delta(self) -> Float[Tensor, "batch loss_pos"]:
        """Change in loss per token; positive means that the heads helped."""
        return self.ablated - self.clean

    @property
    def mean(self) -> float:
        """Mean change in next-token loss, in nats."""
        return float(self.delta.mean())

    def over(self, positions: slice = slice(None)) -> Estimate:
        """The mean change at some loss positions, and how sure it is: other sequences could have been drawn."""
        return estimate(self.delta[:, positions].mean(1).cpu().numpy())


def estimate(per_sequence: Float[np.ndarray, " n"], seed: int = 0) -> Estimate:
    """Mean of one value a sequence, with the 2.5 % and 97.5 % percentiles of the means of resampled sequences."""
    values, n = np.asarray(per_sequence, np.float64), len(per_sequence)
    if n < 2:
        return Estimate(float(values.mean()), float("nan"), float("nan"), n)
    picks = np.random.default_rng(seed).integers(n, size=(BOOTSTRAPS, n))
    low, high = np.percentile(values[picks].mean(1), [2.5, 97.5])
    return Estimate(float(values.mean()), float(low), float(high), n)


def check_heads(model: Transformer, heads: Iterable[Head]) -> list[Head]:
    """The heads, sorted and distinct, or an error that names the one that does not exist."""
    n_layers, n_heads = model.config.n_layers, model.config.n_heads
    chosen = sorted({(int(layer), int(head)) for layer, head in heads})
    for layer, head in chosen:
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise ValueError(
                f"L{layer}H{head} does not exist: this model has layers 0 to {n_layers - 1} "
                f"and heads 0 to {n_heads - 1}"
            )
    return chosen


@torch.no_grad()
def reference_z(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> dict[str, Tensor]:
    """Every block's z on a batch, by tap name: what mean and resample take their replacements from."""
    with recording("hook_z") as seen:
        model(tokens)
    return dict(seen)


def plan(
    heads: Iterable[Head],
    mode: Mode | str,
    z: dict[str, Tensor] | None = None,
    n_rows: int | None = None,
    draw: int = 0,
) -> list[Edit]:
    """The edits that switch heads off. mean and resample need `z` of a reference batch at least as long as the input;
    resample pairs row b with another row of it, so for another batch give its `n_rows`."""
    if mode not in MODES:
        raise ValueError(f"there is no ablation mode {mode!r}; there are: {', '.join(MODES)}")
    by_layer: dict[int, list[int]] = {}
    for layer, head in heads:
        by_layer.setdefault(layer, []).append(head)
    return [
        Edit(f"blocks.{layer}.attn.hook_z", tuple(which), instead=_replacement(layer, mode, z, n_rows, draw))
        for layer, which in by_layer.items()
    ]


def _replacement(
    layer: int, mode: Mode | str, z: dict[str, Tensor] | None, n_rows: int | None, draw: int
) -> float | Tensor:
    if mode == "zero":
        return 0.0
    if z is None:
        raise ValueError(f"mode={mode!r} needs a reference batch to take the replacement from")
    reference = z[f"blocks.{layer}.attn.hook_z"]
    if mode == "mean":
        return reference.mean(0, keepdim=True)
    if len(reference) < 2:
        raise ValueError("resampling needs at least 2 sequences to draw from; the reference batch has 1")
    return reference[derangement(len(reference), seed=draw)[: n_rows or len(reference)]]


def derangement(n: int, seed: int) -> Int[Tensor, "n"]:
    """A random permutation of n in which nothing stays in place: a shuffled ring, each element moved one on."""
    ring = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return ring.roll(1)[ring.argsort()]


@torch.no_grad()
def freeze(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> list[Edit]:
    """Edits that hold every pattern at what it is on these tokens with nothing ablated."""
    with recording("hook_pattern") as seen:
        model(tokens)
    return [Edit(name, instead=pattern) for name, pattern in seen.items()]


Plans = Callable[[Iterable[Head]], list[list[Edit]]]


def planner(
    model: Transformer, tokens: Int[Tensor, "batch pos"], mode: Mode | str = "zero", *,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None, frozen: bool = False, draws: int = DRAWS,
    seed: int = 0,
) -> Plans:  # fmt: skip
    """From heads to the edits that switch them off on these tokens: one list, or with resample one a draw.

    What the replacements need (clean z, clean patterns) is computed once, here; `reference` as in `effect`.
    """
    if mode not in MODES:
        raise ValueError(f"there is no ablation mode {mode!r}; there are: {', '.join(MODES)}")
    if draws < 1:
        raise ValueError(f"draws={draws}: resampling needs at least 1")
    tokens = inputs(model, tokens)
    source = tokens if reference is None else reference
    if source.shape[1] < tokens.shape[1]:
        raise ValueError(
            f"the reference batch has {source.shape[1]} positions, the input {tokens.shape[1]}: give a longer one"
        )
    if mode == "resample" and len(source) < len(tokens):
        raise ValueError(f"resampling {len(tokens)} rows needs as many reference sequences; there are {len(source)}")
    z = None if mode == "zero" else reference_z(model, source[:, : tokens.shape[1]])
    held = freeze(model, tokens) if frozen else []

    def plans(heads: Iterable[Head]) -> list[list[Edit]]:
        chosen = check_heads(model, heads)
        if not chosen:
            raise ValueError("the set of heads is empty: name at least one (layer, head)")
        numbers = range(seed, seed + (draws if mode == "resample" else 1))
        return [[*held, *plan(chosen, mode, z, len(tokens), number)] for number in numbers]

    return plans


def inputs(model: Transformer, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch input_pos"]:
    """What the model reads of rows that may be one longer than its context: there the last token is only a target."""
    return tokens[:, :-1] if tokens.shape[1] == model.config.n_ctx + 1 else tokens


@torch.no_grad()
def averaged(plans: list[list[Edit]], compute: Callable[[], Tensor]) -> Tensor:
    """The mean of what `compute` returns with each list of edits in force."""
    results = []
    for edits in plans:
        with applied(edits):
            results.append(compute())
    return torch.stack(results).mean(0)


@torch.no_grad()
def effect(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    heads: Iterable[Head],
    mode: Mode | str = "zero",
    *,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> Effect:
    """Per-token losses of a batch with a set of heads off, beside the clean ones.

    `reference` (default: `tokens` itself) is where mean and resample take replacements; it must be as long as tokens.
    """
    plans = planner(model, tokens, mode, reference=reference, frozen=frozen, draws=draws, seed=seed)(heads)

    def losses() -> Tensor:
        return per_token_loss(model(inputs(model, tokens)), tokens)

    return Effect(losses(), averaged(plans, losses))


@torch.no_grad()
def sweep(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    positions: slice | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> xr.DataArray:
    """The change in mean next-token loss from switching off each head by itself: `effect[layer, head]`, in nats.

    `positions` picks the loss positions that are averaged (default: all). A small effect of one head does not mean that
    it is unused: others may do the same work, so switch off sets as well.
    """
    import xarray as xr

    n_layers, n_heads = model.config.n_layers, model.config.n_heads
    where = positions if positions is not None else slice(None)
    plans = planner(model, tokens, mode, reference=reference, frozen=frozen, draws=draws, seed=seed)

    def loss() -> Tensor:
        return per_token_loss(model(inputs(model, tokens)), tokens)[:, where].mean()

    clean = loss()
    values = [
        [float(averaged(plans([(layer, head)]), loss) - clean) for head in range(n_heads)] for layer in range(n_layers)
    ]
    return xr.DataArray(
        values, dims=("layer", "head"), coords={"layer": range(n_layers), "head": range(n_heads)}, name="effect",
        attrs={"long_name": "change in next-token loss", "units": "nats", "mode": mode, "frozen": frozen,
               "n_sequences": len(tokens)},
    )  # fmt: skip
