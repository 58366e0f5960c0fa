"""To first order: what a little more of a row's gradient does to a number, right after the update.

1. A number of the weights after the update has a gradient there; `before_update` carries it back through the optimizer
   and the clipping, to a direction in the space of gradients.
2. The losses of all rows along that direction come together (`row_derivatives`): the gradient of a weighted sum of
   losses, along the direction, differentiated by the weights of the sum. A row's gradient is never formed, and the cost
   is that of about two more backward passes of the batch, however many rows it has.
   Source: Townsend 2017, forward derivatives from two backward passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tracer.training.job import Job, dropout_seed, micro_batches
from tracer.training.optim import HeadMuon, flattened, orthogonalised, unflattened
from tracer.training.qk_clip import factors
from tracer.training.repeatable import repeatable

Tensors = dict[str, Tensor]


def before_update(job: Job, grads: Tensors, direction: Tensors) -> Tensors:
    """The gradient of a number by the gradients of an update that was just made.

    Args:
        job: After the update; what its optimizers keep is of this update, too.
        grads: What the update was made of, before they were clipped, by the names of weights.
        direction: The gradient of the number by the weights after the update.

    Returns:
        J^T direction: to first order, gradients of d more make the number <this, d> more. AdamW's second moment and the
        factor of clipping are differentiated too, Muon through its iteration; what QK-clip multiplied by is held.
    """
    names = {id(p): name for name, p in job.raw.named_parameters()}
    if job.largest is not None and job.config.optim.qk_clip is not None:
        direction = _clipped(direction, factors(job.largest, job.config.optim.qk_clip))
    limit, factor, norm = job.config.optim.clip, 1.0, 0.0
    if limit is not None:
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in grads.values()))
        factor = min(1.0, limit / (norm + 1e-6))
    found: Tensors = {}
    for optimizer in job.optimizers:
        inner = getattr(optimizer, "optimizer", optimizer)
        for name, g, v, back in _parts(inner, names, grads, direction):
            found[name] = back(g * factor, v)
    if factor < 1 and norm:
        along = sum(float((found[name].double() * grads[name]).sum()) for name in found)
        pull = factor / (norm + 1e-6) / norm * along
        found = {name: factor * x - pull * grads[name] for name, x in found.items()}
    return found


def _clipped(direction: Tensors, by: Float[Tensor, "layer head"]) -> Tensors:
    """From behind QK-clip to before it, its factors held."""
    found = dict(direction)
    for layer, of_heads in enumerate(by):
        for letter in "QK":
            name = f"blocks.{layer}.attn.W_{letter}"
            found[name] = found[name] * of_heads[:, None, None]
    return found


Back = Callable[[Tensor, Tensor], Tensor]


def _parts(
    optimizer: Any, names: dict[int, str], grads: Tensors, direction: Tensors
) -> Iterator[tuple[str, Tensor, Tensor, Back]]:
    """Each weight of an optimizer: its name, its gradient, the number's, and what carries that back."""
    muon = {id(matrix): (weight, joins) for weight, matrix, joins in getattr(optimizer, "pairs", ())}
    for group in optimizer.param_groups:
        for p in group["params"]:
            weight, joins = muon.get(id(p), (p, False))
            name = names[id(weight)]
            if name not in grads:
                continue
            state = optimizer.state[p]
            yield name, grads[name], direction[name], _backward(optimizer, group, state, joins)


def _backward(optimizer: Any, group: dict[str, Any], state: dict[str, Tensor], joins: bool) -> Back:
    lr = group["lr"]
    if isinstance(optimizer, torch.optim.SGD):
        # the first update of a run has no momentum yet, but torch's Nesterov adds it all the same
        return lambda g, v: -lr * (1 + group["momentum"] * group["nesterov"]) * v
    if isinstance(optimizer, HeadMuon):
        return lambda g, v: _through_muon(group, state["momentum_buffer"], g, v, joins)
    return lambda g, v: _through_adam(group, state, g, v)


def _through_adam(group: dict[str, Any], state: dict[str, Tensor], g: Tensor, v: Tensor) -> Tensor:
    (beta1, beta2), step = group["betas"], float(state["step"])
    root = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt()
    below = root + group["eps"]
    # d root / d g = (1 - beta2) g / (root of the second moment, and of its correction)
    bends = (1 - beta2) * g / (1 - beta2**step) / root
    slope = (1 - beta1) / below - state["exp_avg"] / below**2 * bends.nan_to_num(0, 0, 0)
    return -group["lr"] / (1 - beta1**step) * slope * v


def _through_muon(group: dict[str, Any], mean: Tensor, g: Tensor, v: Tensor, joins: bool) -> Tensor:
    flat, momentum = flattened(g, joins), group["momentum"]
    x = flat.lerp(mean, momentum).requires_grad_(True)
    with torch.enable_grad():
        update = orthogonalised(x, group["ns_steps"], group["eps"])
        (back,) = torch.autograd.grad(update, x, flattened(v, joins))
    rate = -0.2 * group["lr"] * max(flat.shape) ** 0.5
    return unflattened(rate * (1 - momentum**2) * back, g, joins)


def row_derivatives(job: Job, step: int, weights: Tensors, direction: Tensors) -> Float[Tensor, " row"]:
    """Of each training row of a step: its part of the batch's loss, differentiated along a direction of the weights.

    Fused attention cannot be differentiated twice: patterns are made, of the heads of the layer that is at work.
    """
    micros, n_counted = micro_batches(job, step, 0, 1)
    total = n_counted or sum(answer.numel() for _, answer in micros)
    device = job.accelerator.device
    params = {name: p.detach().requires_grad_(True) for name, p in weights.items()}
    along = [direction[name] for name in params]
    if job.config.model.dropout:
        torch.manual_seed(dropout_seed(job.config.seed, step, 0))
    found = []
    with repeatable(device), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        for rows, answer in micros:
            with torch.autocast(device.type, torch.bfloat16, enabled=job.bf16):
                logits = torch.func.functional_call(job.raw, params, (rows[:, :-1],)).float()
            losses = F.cross_entropy(logits.transpose(1, 2), answer, reduction="none").sum(1) / total
            shares = torch.ones_like(losses, requires_grad=True)
            grads = torch.autograd.grad(losses @ shares, list(params.values()), create_graph=True, allow_unused=True)
            moved = torch.stack([(g * v).sum() for g, v in zip(grads, along, strict=True) if g is not None])
            found.append(torch.autograd.grad(moved.sum(), shares)[0])
    return torch.cat(found)
