"""Optimisers: SGD-Nesterov, AdamW, or Muon for the matrices inside the blocks with AdamW for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tracer.config import OptimConfig
from tracer.training.sigma_reparam import SigmaReparam

ADJUST = "match_rms_adamw"
"""Updates of the size of AdamW's (Liu et al. 2025, Moonlight), so that one learning rate serves both halves."""
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan 2024, those of torch too."""


class HeadMuon(torch.optim.Muon):
    """torch.optim.Muon over weights that are stacked by head.

    Muon (Jordan 2024) orthogonalises matrices and scales the learning rate by their shape, both as [d_out d_in]: to it
    W_Q [head d_model d_head] is one matrix [head * d_head, d_model], W_O [head d_head d_model] one [d_model, head *
    d_head], and W_in [d_model d_mlp] is [d_mlp d_model]. Each step copies gradients to that layout and the result back.
    On a CPU it orthogonalises in float32: torch does in bfloat16, which most CPUs emulate, 25 to 60 times slower.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float, weight_decay: float) -> None:
        self.pairs: list[tuple[nn.Parameter, nn.Parameter, bool]] = []
        flat = []
        for group in groups:
            params = []
            for name, weight in group["params"]:
                joins_heads = name.endswith("W_O")
                matrix = nn.Parameter(flattened(weight.detach(), joins_heads))
                self.pairs.append((weight, matrix, joins_heads))
                params.append(matrix)
            flat.append({**group, "params": params})
        super().__init__(flat, momentum=momentum, weight_decay=weight_decay, adjust_lr_fn=ADJUST)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for weight, matrix, joins_heads in self.pairs:
            matrix.copy_(flattened(weight, joins_heads))
            matrix.grad = None if weight.grad is None else flattened(weight.grad, joins_heads)
        if all(matrix.device.type == "cpu" for _, matrix, _ in self.pairs):
            self._step_in_float32()
        else:
            super().step()
        for weight, matrix, joins_heads in self.pairs:
            weight.copy_(unflattened(matrix, weight, joins_heads))
        return loss

    def _step_in_float32(self) -> None:
        """The same step of momentum, decay and size, with `orthogonalised` for torch's private function."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                mean = state["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonalised(matrix.grad.lerp(mean, group["momentum"]), group["ns_steps"], group["eps"])
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-0.2 * group["lr"] * max(matrix.shape) ** 0.5)

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for weight, _, _ in self.pairs:
            weight.grad = None


def orthogonalised(
    matrix: Float[Tensor, "d_out d_in"], steps: int = 5, eps: float = 1e-7
) -> Float[Tensor, "d_out d_in"]:
    """Nearly U V^T of the matrix U S V^T: its singular values are between about 0.5 and 1.5.

    Source: Jordan 2024, Newton-Schulz with the quintic a s + b s^3 + c s^5, of which only the slope at 0 is made large.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=eps)  # no singular value is above 1
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def flattened(weight: Tensor, joins_heads: bool) -> Tensor:
    if weight.ndim == 2:
        pattern = "d_in d_out -> d_out d_in"
    else:
        pattern = "head d_in d_out -> d_out (head d_in)" if joins_heads else "head d_in d_out -> (head d_out) d_in"
    return rearrange(weight, pattern).clone(memory_format=torch.contiguous_format)


def unflattened(matrix: Tensor, like: Tensor, joins_heads: bool) -> Tensor:
    if like.ndim == 2:
        return rearrange(matrix, "d_out d_in -> d_in d_out")
    pattern = "d_out (head d_in) -> head d_in d_out" if joins_heads else "(head d_out) d_in -> head d_in d_out"
    return rearrange(matrix, pattern, head=like.shape[0])


def build(
    model: nn.Module, config: OptimConfig, reparam: SigmaReparam | None = None
) -> list[torch.optim.Optimizer]:  # fmt: skip
    """The optimisers of a run, each parameter in exactly one; every group remembers its `base_lr`. Parameters are the
    model's, or what it is made of in their place."""
    named = list(model.named_parameters()) if reparam is None else reparam.learned(model)
    decay = config.weight_decay
    if config.name == "sgd":
        nesterov = config.momentum > 0  # torch refuses Nesterov without momentum
        groups = _groups(named, config.lr, config)
        return [torch.optim.SGD(groups, momentum=config.momentum, nesterov=nesterov, weight_decay=decay)]
    if config.name == "adamw":
        return [torch.optim.AdamW(_groups(named, config.lr, config), betas=(0.9, config.beta2), weight_decay=decay)]
    matrices = [(n, p) for n, p in named if n.startswith("blocks.") and p.ndim >= 2]
    rest = [(n, p) for n, p in named if not (n.startswith("blocks.") and p.ndim >= 2)]
    adam_lr = config.adam_lr if config.adam_lr is not None else config.lr
    return [
        HeadMuon(_groups(matrices, config.lr, config, keep_names=True), momentum=config.momentum, weight_decay=decay),
        torch.optim.AdamW(_groups(rest, adam_lr, config), betas=(0.9, config.beta2), weight_decay=decay),
    ]


def _groups(
    named: list[tuple[str, nn.Parameter]], lr: float, config: OptimConfig, keep_names: bool = False
) -> list[dict[str, Any]]:
    """One group for each learning rate that occurs: W_Q and W_K, and W_pos, may have their own."""
    by_factor: dict[float, list[Any]] = {}
    for name, param in named:
        factor = 1.0
        if name.endswith((".W_Q", ".W_K")):
            factor = config.qk_lr_factor
        elif name.endswith(".W_pos"):
            factor = config.pos_lr_factor
        by_factor.setdefault(factor, []).append((name, param) if keep_names else param)
    return [{"params": params, "lr": lr * f, "base_lr": lr * f} for f, params in by_factor.items()]


def set_lr(optimizers: list[Any], config: OptimConfig, step: int) -> float:
    """Linear warm-up, then constant; a pure function of the step, so that resuming needs no scheduler state."""
    factor = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
    return config.lr * factor
