"""What an ablation does to a batch: of one set of parts, of every head by itself, of every pair of heads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.estimates import Estimate, estimate, holm, p_value, too_few
from tracer.ablate.many_sets import BUDGET, metric_under_ablation
from tracer.ablate.metrics import KL, NEVER_BELOW, AnyMetric, Metric, OwnMetric, metric_of, reader
from tracer.ablate.parts import Part, check_heads, every_head
from tracer.ablate.planner import averaged, inputs, planner, ready
from tracer.config.field_docs import fields_in_help
from tracer.data.probes import per_token_loss
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import exist
from tracer.interventions.replacements import DRAWS, Mode, draws_of
from tracer.measures.aliases import Head, Progress
from tracer.model.protocol import HeadModel

if TYPE_CHECKING:
    import xarray as xr

MOST = 64
"""Heads whose pairs are run without being named: 2016 pairs."""


@fields_in_help
@dataclass(frozen=True)
class Effect:
    """What an ablation did to a batch: the loss of every next token before and after, or another metric."""

    clean: Float[Tensor, "batch loss_pos"]
    """Loss in nats of each next token, nothing ablated; of another metric, what it says where it reads."""
    ablated: Float[Tensor, "batch loss_pos"]
    """The same with the heads off (mean over draws for resample)."""
    long_name: str = field(default="next-token loss", kw_only=True)
    """What was measured."""
    units: str = field(default="nats", kw_only=True)
    """Of both, and of their difference."""

    @property
    def delta(self) -> Float[Tensor, "batch loss_pos"]:
        """Change in loss per token; positive means that the heads helped, as of every metric that rises with harm."""
        return self.ablated - self.clean

    @property
    def mean(self) -> float:
        """Mean change in next-token loss, in nats, or in the metric."""
        return float(self.delta.mean())

    def over(self, positions: slice = slice(None)) -> Estimate:
        """The mean change at some loss positions, and how sure it is: other sequences could have been drawn."""
        return estimate(self.delta[:, positions].mean(1).cpu().numpy())


@any_model
@torch.no_grad()
def effect(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    parts: Iterable[Part],
    mode: Mode | str = "zero",
    *,
    positions: Iterable[int] | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
    metric: AnyMetric | None = None,
) -> Effect:
    """Per-token losses of a batch with a set of heads (or other parts) off, beside the clean ones.

    `metric` is another thing to measure: "kl", a function of (logits, targets, clean) that returns one number a
    sequence (`OwnMetric`), its name "module:name", `LogitDifference(right, wrong)`.

    `positions` are the query positions at which heads, layers' attention, MLPs and senders of paths are off (default:
    all). `reference` (default: `tokens` itself) is where mean and resample take replacements; it must be as long as
    tokens; for Probe R give rows without a repeat, the `control` of a larger one. A row is never part of its own mean.
    A mean over n sequences has 1/n of their spread as noise, which does harm of its own: give hundreds where it
    matters.
    """
    parts = list(parts)
    ready(model, tokens)
    if metric is None and tokens.shape[1] < 2:
        raise ValueError("one token has no next one to be predicted: give sequences of two or more")
    _check_some_stay(model, parts)
    heads = [part for part in parts if isinstance(part, tuple)]
    layers = None if not heads or len(heads) < len(parts) else {layer for layer, _ in check_heads(model, heads)}
    plans = planner(
        model, tokens, mode, positions=positions, reference=reference, frozen=frozen, draws=draws, seed=seed,
        layers=layers,
    )(parts)  # fmt: skip

    given = inputs(model, tokens)
    if metric is not None:
        of, before = metric_of(metric), model(given)
        read = reader(of, tokens, given.shape[1], model.d_vocab, lambda: before)
        return Effect(read(before), averaged(plans, lambda: read(model(given))), long_name=of.long_name, units=of.units)

    def losses() -> Tensor:
        return per_token_loss(model(given), tokens)

    return Effect(losses(), averaged(plans, losses))


@any_model
def sweep(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    layers: Iterable[int] | None = None,
    positions: slice | None = None,
    metric: AnyMetric | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
    interval: bool = False,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Any:
    """The change in mean next-token loss from switching off each head by itself: `effect[layer, head]`, in nats.

    `layers`: only those, which a model of a billion parameters may ask for: each head is a pass from its layer on.
    `positions` picks the loss positions that are averaged (default: all), `metric` another thing to measure: "kl", a
    function of (logits, targets, clean) (`OwnMetric`), "module:name", `LogitDifference(right, wrong)`. Of a loss, of KL
    and of a function that rises as the model gets worse, positive says that the head helped. With `interval` a Dataset:
    effect, low and high of its 95 % interval over sequences, and p_holm, the p-value of no effect (`p_value`),
    corrected for as many heads as there are (`holm`); where there are too few sequences for any head to be below 0.05,
    its `attrs["note"]` says so, and how many it takes. nan where a layer has fewer heads than others. A small effect of
    one head does not mean that it is unused: others may do the same work, so switch off sets as well.
    """
    import xarray as xr

    ready(model, tokens)
    metric = _metric(metric, positions)
    chosen, heads = _layers(model, layers), range(model.n_heads)
    there = np.array([model.heads_of_layers[layer] for layer in chosen])[:, None] > np.array(heads)
    sets: list[tuple[Head, ...]] = [(), *(((chosen[i], int(head)),) for i, head in np.argwhere(there))]
    change = _changes(
        model, tokens, sets, mode, metric=metric, reference=reference, frozen=frozen, draws=draws, seed=seed,
        budget=budget, progress=progress,
    )  # fmt: skip
    coords, attrs = {"layer": chosen, "head": heads}, _attrs(metric, mode, frozen, len(tokens))

    def table(values: Any) -> np.ndarray:
        full = np.full(there.shape, np.nan)
        full[there] = values
        return full

    means = xr.DataArray(table(change.mean(1)), dims=("layer", "head"), coords=coords, attrs=attrs)
    if not interval:
        return means.rename("effect")
    bounds = [estimate(row) for row in change]
    low, high = (table([getattr(found, side) for found in bounds]) for side in ("low", "high"))
    p_holm = np.full(len(change), np.nan) if metric.long_name == KL else holm(p_value(change))
    p = {"long_name": "p-value of no effect, corrected for all heads (Holm 1979)", "units": "",
         "note": NEVER_BELOW if metric.long_name == KL else too_few(len(tokens), int(there.sum()))}  # fmt: skip
    sure = {"low": (low, {}), "high": (high, {}), "p_holm": (table(p_holm), p)}
    sure = {name: (means.dims, *found) for name, found in sure.items()}
    return xr.Dataset({"effect": means, **sure}, attrs=attrs)


@any_model
def pairs(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    heads: Iterable[Head] | None = None,
    positions: slice | None = None,
    metric: AnyMetric | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> xr.DataArray:
    """The change from switching off each two heads together: `effect[head_a, head_b]`; the diagonal is one head alone.

    An effect above the sum of the two on the diagonal says that each stood in for the other. `heads` narrows it.
    """
    import xarray as xr

    ready(model, tokens)
    chosen = every_head(model) if heads is None else check_heads(model, heads)
    if not chosen:
        raise ValueError("the set of heads is empty: name at least one (layer, head)")
    if heads is None and len(chosen) > MOST:
        n = len(chosen) * (len(chosen) - 1) // 2
        runs = n * len(draws_of(mode, draws, seed))
        raise ValueError(
            f"{len(chosen)} heads make {n} pairs, about {runs // 2} forward passes of {len(tokens)} sequences: "
            f"name at most {MOST} of them in heads=[(layer, head), ...], or all if you mean it"
        )
    metric = _metric(metric, positions)
    singles, doubles = [(head,) for head in chosen], list(combinations(chosen, 2))
    change = _changes(
        model, tokens, [(), *singles, *doubles], mode, metric=metric, reference=reference, frozen=frozen, draws=draws,
        seed=seed, budget=budget, progress=progress,
    ).mean(1)  # fmt: skip
    table = np.diag(change[: len(singles)])
    upper = np.triu_indices(len(chosen), 1)
    table[upper] = change[len(singles) :]
    table.T[upper] = change[len(singles) :]
    names = [f"L{layer}H{head}" for layer, head in chosen]
    return xr.DataArray(
        table, dims=("head_a", "head_b"), coords={"head_a": names, "head_b": names}, name="effect",
        attrs=_attrs(metric, mode, frozen, len(tokens)),
    )  # fmt: skip


def _check_some_stay(model: HeadModel, parts: list[Part]) -> None:
    """With every head off no token sees another: an effect of attention as a whole, which `Attention` can say."""
    total = sum(model.heads_of_layers)
    if 1 < total == len({part for part in parts if isinstance(part, tuple)}):
        layers = ", ".join(f"Attention({layer})" for layer in range(model.n_layers))
        raise ValueError(
            f"all {total} heads are off: then no token sees another, and the effect is that of attention as a whole, "
            f"not of heads; leave at least one on, or name whole layers: {layers}"
        )


def _layers(model: HeadModel, layers: Iterable[int] | None) -> list[int]:
    chosen = list(range(model.n_layers)) if layers is None else sorted(set(layers))
    exist(chosen, model.n_layers, "layer", "the model has layers")
    if not chosen:
        raise ValueError("layers is empty: name at least one, or leave it out for all")
    return chosen


def _metric(metric: AnyMetric | None, positions: slice | None) -> Metric | OwnMetric:
    if positions is not None and not isinstance(positions, slice):
        raise ValueError(
            f"positions={positions!r}: a sweep averages the loss over a slice of positions, such as slice(3, 5), and "
            f"heads are off at all of them; `effect` switches heads off at chosen query positions"
        )
    return metric_of(metric, positions)


def _changes(
    model: HeadModel, tokens: Tensor, sets: list[tuple[Head, ...]], mode: Mode | str, **how: Any
) -> np.ndarray:
    """metric[ablated] - metric[clean], mean of each sequence, [set batch]; the first set is the empty one."""
    values = metric_under_ablation(model, tokens, sets, mode, **how).mean(2).double()
    return (values[1:] - values[0]).cpu().numpy()


def _attrs(metric: Metric | OwnMetric, mode: Mode | str, frozen: bool, n: int) -> dict[str, Any]:
    return {
        "long_name": f"change in {metric.long_name}", "units": metric.units, "mode": mode, "frozen": frozen,
        "n_sequences": n,
    }  # fmt: skip
