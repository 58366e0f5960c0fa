"""QK-clip: heads whose attention logits have grown too large have W_Q and W_K scaled down after the update.

Source: Kimi K2 (2507.20534), equation 3: gamma = min(1, tau / S_max) of a head, S_max its largest logit in the batch;
W_Q and W_K are multiplied by sqrt(gamma) each. Other heads of the layer are left alone, to the bit.
Cost: a third of the attention's own products (`row_maxima`), at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from jaxtyping import Float
from torch import Tensor

from tracer.config import TrainConfig
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import visiting
from tracer.model import Transformer


@contextmanager
def largest_logits(config: TrainConfig, found: list[Tensor]) -> Iterator[None]:
    """Appends, of each forward pass inside, the largest logit [layer head]; nothing where `optim.qk_clip` is None.

    A logit is q . k times the scale, of what a row may see; -inf of a head that sees no key.
    """
    if config.optim.qk_clip is None:
        yield
        return
    layers: dict[int, Tensor] = {}

    def look(call: AttentionCall) -> None:
        layers[call.layer] = call.row_maxima().amax((0, 2))

    with visiting(look):
        yield
    found.append(torch.stack([layers[layer] for layer in sorted(layers)]))


def over_all(found: list[Tensor], accelerator: Accelerator | None) -> Float[Tensor, "layer head"] | None:
    """The largest of all micro-batches, and of all processes where there are several."""
    if not found:
        return None
    largest = torch.stack(found).amax(0)
    return largest if accelerator is None else accelerator.gather(largest[None]).amax(0)


def factors(largest: Float[Tensor, "layer head"], limit: float) -> Float[Tensor, "layer head"]:
    """sqrt(gamma) of each head: exactly 1 where its largest logit is not above the limit, or not known."""
    return torch.where(largest > limit, (limit / largest).sqrt(), 1.0)


@torch.no_grad()
def scale_heads(model: Transformer, by: Float[Tensor, "layer head"]) -> None:
    """W_Q and W_K of each head times its factor."""
    for block, of_heads in zip(model.blocks, by, strict=True):
        for weight in (block.attn.W_Q, block.attn.W_K):
            weight.mul_(of_heads[:, None, None])
