"""What an ablation did to a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.estimates import Estimate, estimate
from tracer.ablate.metrics import AnyMetric, metric_of, reader
from tracer.ablate.parts import Part, check_heads
from tracer.ablate.planner import averaged, inputs, planner, ready
from tracer.data.probes import per_token_loss
from tracer.huggingface.any_model import any_model
from tracer.interventions.replacements import DRAWS, Mode
from tracer.model.protocol import HeadModel


@dataclass(frozen=True)
class Effect:
    """What an ablation did to a batch: the loss of every next token before and after, or another metric."""

    clean: Float[Tensor, "batch loss_pos"]
    """Loss in nats of each next token, nothing ablated; of another metric, what it says where it reads."""
    ablated: Float[Tensor, "batch loss_pos"]
    """The same with the heads off (mean over draws for resample)."""
    long_name: str = field(default="next-token loss", kw_only=True)
    units: str = field(default="nats", kw_only=True)

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


def _check_some_stay(model: HeadModel, parts: list[Part]) -> None:
    """With every head off no token sees another: an effect of attention as a whole, which `Attention` can say."""
    total = sum(model.heads_of_layers)
    if 1 < total == len({part for part in parts if isinstance(part, tuple)}):
        layers = ", ".join(f"Attention({layer})" for layer in range(model.n_layers))
        raise ValueError(
            f"all {total} heads are off: then no token sees another, and the effect is that of attention as a whole, "
            f"not of heads; leave at least one on, or name whole layers: {layers}"
        )
