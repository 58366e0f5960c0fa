"""What a gradient says that switching off each head would do: a guess for a second look, never a proof.

The first-order estimate misses heads whose pattern or readers are saturated, in trained models by a factor of hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tracer.ablate.many_sets import metric_under_ablation
from tracer.ablate.metrics import AnyMetric, OwnMetric, kl, metric_of, reader
from tracer.ablate.parts import every_head
from tracer.ablate.planner import inputs, planner, reference_z
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import Edit, applied
from tracer.interventions.replacements import DRAWS, Mode, z_tap
from tracer.model.protocol import HeadModel

if TYPE_CHECKING:
    import xarray as xr

LABEL = "first-order estimate"
STEPS = 8


@dataclass(frozen=True)
class Add:
    """Adds instead of replacing, so that a gradient may pass through and be read."""

    change: Tensor

    def __call__(self, activation: Tensor) -> Tensor:
        return activation + self.change


@any_model
def attribution(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    metric: AnyMetric | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    verify: int = 0,
) -> xr.Dataset:
    """`estimate[layer, head]`: (z' - z) . d metric / d z, of all heads from one pass forward and one back.

    Source: Nanda 2023, "Attribution patching". `exact` is the true effect of the `verify` heads with the largest
    estimates, nan elsewhere; both are nan where a layer has fewer heads than others.
    """
    return _estimated(model, tokens, mode, metric, reference, draws, seed, verify, steps=0)


@any_model
def integrated_gradients(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    mode: Mode | str = "zero",
    *,
    metric: AnyMetric | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    verify: int = 0,
    steps: int = STEPS,
) -> xr.Dataset:
    """As `attribution`, with the mean gradient along the way on which a whole layer's z goes to its replacement.

    Source: Sundararajan et al. 2017, midpoints of equal steps. The heads of a layer sum to what switching off the whole
    layer does, up to the steps' error. It costs steps * n_layers passes forward and back, often more than
    exact effects.
    """
    if steps < 1:
        raise ValueError(f"steps={steps}: integrating needs at least 1")
    return _estimated(model, tokens, mode, metric, reference, draws, seed, verify, steps)


def _estimated(
    model: HeadModel, tokens: Tensor, mode: Mode | str, metric: AnyMetric | None, reference: Tensor | None, draws: int,
    seed: int, verify: int, steps: int,
) -> xr.Dataset:  # fmt: skip
    import xarray as xr

    metric, given = metric_of(metric), inputs(model, tokens)
    if not steps and isinstance(metric, OwnMetric) and metric.function is kl:
        raise ValueError(
            "metric='kl' is least at the clean run, where its gradient is 0 for every head: take "
            "ablate.integrated_gradients, or ablate.sweep, which is exact"
        )
    plans = planner(model, tokens, mode, reference=reference, draws=draws, seed=seed)(every_head(model))
    clean, taps = reference_z(model, given), [z_tap(layer) for layer in range(model.n_layers)]
    of_logits = reader(metric, tokens, given.shape[1], model.d_vocab, lambda: model(given))

    def gradients(added: dict[str, Tensor]) -> dict[str, Tensor]:
        """d metric / d z where `added` was added to z."""
        leaves = {tap: x.detach().requires_grad_() for tap, x in added.items()}
        with torch.enable_grad(), applied([Edit(tap, instead=Add(leaf)) for tap, leaf in leaves.items()]):
            mean = of_logits(model(given)).mean()
        return dict(zip(leaves, torch.autograd.grad(mean, list(leaves.values())), strict=True))

    estimate = np.where(np.arange(model.n_heads) < np.array(model.heads_of_layers)[:, None], 0.0, np.nan)
    here = gradients({tap: torch.zeros_like(clean[tap]) for tap in taps}) if not steps else {}
    for edits in plans:
        for edit in edits:
            change = edit(clean[edit.tap]) - clean[edit.tap]
            if steps:
                way = [gradients({edit.tap: change * (i + 0.5) / steps})[edit.tap] for i in range(steps)]
                gradient = torch.stack(way).mean(0)
            else:
                gradient = here[edit.tap]
            found = (change * gradient).sum((0, 1, 3)).double().cpu().numpy() / len(plans)
            estimate[taps.index(edit.tap), : len(found)] += found
    exact = np.full_like(estimate, np.nan)
    top = np.argsort(-np.abs(estimate), axis=None)[: min(verify, sum(model.heads_of_layers))]
    sets = [(), *([(int(i) // model.n_heads, int(i) % model.n_heads)] for i in top)]
    if verify:
        values = metric_under_ablation(
            model, tokens, sets, mode, metric=metric, reference=reference, draws=draws, seed=seed
        ).mean((1, 2)).double().cpu().numpy()  # fmt: skip
        exact.flat[top] = values[1:] - values[0]
    attrs = {"mode": mode, "units": metric.units, "n_sequences": len(tokens), "n_verified": len(top)}
    name = f"change in {metric.long_name}"
    kind = LABEL if not steps else f"{LABEL}, integrated over {steps} steps"
    dims = ("layer", "head")
    return xr.Dataset(
        {
            "estimate": (dims, estimate, {"long_name": f"{kind} of the {name}", "units": metric.units, "kind": kind}),
            "exact": (dims, exact, {"long_name": name, "units": metric.units, "kind": "exact"}),
        },
        coords={"layer": range(model.n_layers), "head": range(model.n_heads)},
        attrs=attrs | {"kind": kind},
    )
