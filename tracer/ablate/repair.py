"""Why switching one head off may cost little although it does much: what the others, and the final norm, give back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.ablate.estimates import Estimate, estimate
from tracer.ablate.parts import check_heads, name
from tracer.ablate.planner import averaged, inputs, planner
from tracer.ablate.repeats import by_row
from tracer.data.probes import per_token_loss
from tracer.huggingface.any_model import any_model
from tracer.interventions.edits import recording
from tracer.interventions.replacements import DRAWS, Mode, z_tap
from tracer.measures.aliases import Head
from tracer.model.protocol import HeadModel

SMALL, LARGE = 0.25, 1.0
"""Nats of loss below which an effect is called small, logits from which a direct effect is called large. Ours."""


@dataclass(frozen=True)
class Repair:
    """What one head gives the right next token directly, and what of it is missed when the head is off.

    Logits are relative to the mean over the vocabulary. direct = missed + by_norm + by_others.
    """

    head: Head
    direct: float
    """Direct logit attribution of what is replaced, with the final norm's scale held at the clean run's."""
    missed: float
    """By how much the logit really falls."""
    by_norm: float
    """What the final norm gives back: without this head the stream is shorter, so everything else counts more."""
    by_others: float
    """What later heads and MLPs give back, by doing something else than before."""
    loss: Estimate
    """Change in loss on the same tokens."""

    def words(self) -> str | None:
        """The finding with its numbers, or None when the effect is not small or the direct effect is not large."""
        if not (self.loss.mean < SMALL and self.direct >= LARGE):
            return None
        by_norm, by_others = (f"{x:.1f}".replace("-0.0", "0.0") for x in (self.by_norm, self.by_others))
        return (
            f"Switching {name(self.head)} off costs only {self.loss.mean:+.2f} nats, although it writes "
            f"{self.direct:.1f} logits straight to the right token. That logit falls by {self.missed:.1f}: the final "
            f"norm gives back {by_norm}, the other heads and MLPs {by_others}. A small effect "
            f"of one head does not mean that it is unused: others may do the same work, so switch off sets as well."
        )


@any_model
@torch.no_grad()
def self_repair(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    head: Head,
    mode: Mode | str = "zero",
    *,
    loss_positions: slice | Bool[Tensor, "batch loss_pos"] = slice(None),
    draws: int = DRAWS,
    seed: int = 0,
) -> Repair:
    """Direct effect of a head on the right next token against its whole effect, means over some loss positions.

    Source: direct logit attribution with the clean norm scale (transformer_lens ActivationCache.logit_attrs), direction
    W_U[token] - mean of W_U, before any cap of logits; self-repair, Rushing and Nanda 2024 (2402.15390); the
    split into norm and others is ours.
    """
    (chosen,) = check_heads(model, [head])
    layer, index = chosen
    seen = inputs(model, tokens)
    last, tap = f"blocks.{model.n_layers - 1}.hook_resid_post", z_tap(layer)
    plans = planner(model, tokens, mode, draws=draws, seed=seed)([chosen])
    stream = model.residual_stream(seen)
    end, writer = stream.end, stream.layers[layer]

    def centred(logits: Float[Tensor, "batch pos d_vocab"]) -> Float[Tensor, "batch loss_pos"]:
        """Logit of the right next token over the mean of all."""
        right = tokens[:, 1:, None]
        return logits[:, : right.shape[1]].gather(-1, right).squeeze(-1) - logits[:, : right.shape[1]].mean(-1)

    def at_end(x: Tensor) -> Float[Tensor, "batch loss_pos"]:
        return centred(end(x, capped=False))

    ours, clean = at_end(stream.final), per_token_loss(stream.logits, tokens)

    def parts() -> Float[Tensor, "part batch loss_pos"]:
        with recording(tap, last) as ablated:
            loss = per_token_loss(model(seen), tokens)
        change = writer.gated(ablated[tap].to(writer.z) - writer.z)[:, :, index] @ writer.weights.W_O[index]
        lost = -writer.rewritten(change)
        direct = centred(end.held(lost, stream.final))
        missed, norm_only = ours - at_end(ablated[last].to(lost)), at_end(stream.final - lost)
        return torch.stack([direct, missed, direct - (ours - norm_only), ours - norm_only - missed, loss - clean])

    read = loss_positions
    if isinstance(read, slice):
        read = torch.zeros_like(tokens[:, 1:], dtype=torch.bool)
        read[:, loss_positions] = True
    *found, delta = averaged(plans, parts)
    direct, missed, by_norm, by_others = (float(part[read].mean()) for part in found)
    return Repair(chosen, direct, missed, by_norm, by_others, estimate(by_row(delta, read)))
