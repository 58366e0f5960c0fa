"""How strongly, and how fast, weights move: g, w and u of every tensor and of every head.

All functions take tensors by name and stay on their device; `fetch` brings everything over in one transfer.
At step t: g and w at the weights theta_t, u of the update from theta_t to theta_t+1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tracer import torch_internals

MATRICES = ("Q", "K", "V", "O")
"""The last axis of every per-head result; W_Q, W_K, W_V are [head d_model d_head], W_O is [head d_head d_model]."""

_HEAD_WEIGHT = re.compile(r"blocks\.(\d+)\.attn\.W_([QKVO])")

PerParam = Float[Tensor, " param"]
PerMatrix = Float[Tensor, "layer head matrix"]


def gradients(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of each parameter; zeros where it has none, as for a frozen one."""
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in params.items()}


@torch.no_grad()
def copies(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of now, kept for `differences` after the step."""
    return {name: p.detach().clone() for name, p in params.items()}


@torch.no_grad()
def differences(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """new - old, tensor by tensor: the true update, whatever the optimizer did."""
    values = [new[name].detach() for name in old]
    return dict(zip(old, torch_internals.differences(values, list(old.values())), strict=True))


@torch.no_grad()
def tensor_norms(tensors: Mapping[str, Tensor]) -> PerParam:
    """The l2 norm of each tensor (g of gradients, w of weights), in the order of the mapping.

    Source: ours; take gradients before clipping.
    """
    values = [_at_least_float32(tensor.detach()) for tensor in tensors.values()]
    return torch.stack(list(torch_internals.norms(values)))


@torch.no_grad()
def head_norms(tensors: Mapping[str, Tensor]) -> PerMatrix:
    """The l2 norm of each head's own slice of W_Q, W_K, W_V and W_O.

    Source: ours. Reads `blocks.L.attn.W_Q` and so on; nan for a matrix the model does not have (attention without W_O).
    """
    norms: dict[tuple[int, str], Tensor] = {}
    for name, tensor in tensors.items():
        if match := _HEAD_WEIGHT.fullmatch(name):
            slices = _at_least_float32(tensor.detach()).flatten(1)
            norms[int(match[1]), match[2]] = torch.linalg.vector_norm(slices, dim=1)
    assert norms, f"no blocks.L.attn.W_Q among {list(tensors)}"
    n_layers = 1 + max(layer for layer, _ in norms)
    absent = torch.full_like(norms[0, "Q"], float("nan"))
    return torch.stack(
        [torch.stack([norms.get((layer, matrix), absent) for matrix in MATRICES], -1) for layer in range(n_layers)]
    )


def update_ratio(update_norm: Tensor, weight_norm: Tensor) -> Tensor:
    """u = ||theta_t+1 - theta_t|| / ||theta_t||.

    Source: CS231n notes 3, "ratio of weights:updates"; Karpathy, nn-zero-to-hero lecture 4, uses std(lr grad) / std(W),
    the same number for SGD only. nan where the weights are all 0 (a bias at initialisation).
    """
    return torch.where(weight_norm > 0, update_norm / weight_norm, float("nan"))


def fetch(results: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """All results as numpy arrays of float32, through a single transfer from the device."""
    if not results:
        return {}
    flat = torch.cat([value.detach().float().flatten() for value in results.values()]).cpu().numpy()
    ends = np.cumsum([value.numel() for value in results.values()])[:-1]
    pieces = np.split(flat, ends)
    return {name: piece.reshape(value.shape) for (name, value), piece in zip(results.items(), pieces, strict=True)}


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
