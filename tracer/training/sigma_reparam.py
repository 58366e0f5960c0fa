"""Sigma-reparametrisation: each matrix of the blocks is W = gamma V / sigma(V), and V and gamma are what is learned.

1. sigma(V), the largest singular value of V [d_in d_out], is u^T V v; u and v go on by one power iteration an update,
   and are held in gradients (Zhai et al. 2023, 2303.06296). The heads of a layer are one matrix, as Muon takes them.
2. The model keeps W, so that whatever reads weights or their gradients reads those that act. The gradient G of W, as
   clipped, is carried back before an update: <G, V> / sigma to gamma, gamma / sigma (G - <G, V> / sigma u v^T) to V.
3. A training begins at gamma = 1, V at its initial weights; one that goes on from weights alone at gamma = sigma(W),
   V = W, which is the same function.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn


@dataclass
class Matrix:
    """One of them."""

    V: Float[nn.Parameter, "d_in d_out"]
    gamma: Float[nn.Parameter, ""]
    u: Float[Tensor, " d_in"]
    v: Float[Tensor, " d_out"]

    @classmethod
    def of(cls, W: Float[Tensor, "d_in d_out"]) -> Matrix:
        """The one whose W this is: gamma its largest singular value, to rounding."""
        u, sizes, v = torch.linalg.svd(W, full_matrices=False)
        return cls(nn.Parameter(W.clone()), nn.Parameter(sizes[0].clone()), u[:, 0].clone(), v[0].clone())

    @property
    def sigma(self) -> Float[Tensor, ""]:
        return self.u @ self.V.detach() @ self.v


class SigmaReparam:
    """V and gamma of every matrix of a model's blocks, in the names of its weights."""

    def __init__(self, model: Any) -> None:
        self.weights = {n: p for n, p in model.named_parameters() if n.startswith("blocks.") and p.ndim >= 2}
        self.parts = {name: Matrix.of(matrix(name, weight.detach())) for name, weight in self.weights.items()}

    def learned(self, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """What an optimiser is given: V in place of each W, and the gammas."""
        named = [(name, self.parts[name].V if name in self.parts else p) for name, p in model.named_parameters()]
        return [*named, *((f"{name}.gamma", part.gamma) for name, part in self.parts.items())]

    @torch.no_grad()
    def normalise(self) -> None:
        """gamma = 1."""
        for part in self.parts.values():
            part.gamma.fill_(1)
        self._fold()

    @torch.no_grad()
    def pull_back(self) -> None:
        """Gradients of V and gamma from those of W, which are cleared."""
        for name, part in self.parts.items():
            grad, self.weights[name].grad = self.weights[name].grad, None
            if grad is None:
                continue
            G, sigma = matrix(name, grad), part.sigma
            along = (G * part.V).sum() / sigma
            part.gamma.grad = along
            part.V.grad = part.gamma / sigma * (G - along * part.u.outer(part.v))

    @torch.no_grad()
    def update(self) -> None:
        """After the optimisers: one power iteration, and W anew."""
        for part in self.parts.values():
            part.v = nn.functional.normalize(part.u @ part.V, dim=0)
            part.u = nn.functional.normalize(part.V @ part.v, dim=0)
        self._fold()

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}.{one.name}": getattr(part, one.name).detach()
            for name, part in self.parts.items()
            for one in fields(part)
        }

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """That of `state`; where it is empty, from the weights that the model has now."""
        for name, part in self.parts.items():
            found = Matrix.of(matrix(name, self.weights[name].detach())) if not state else None
            for one in fields(part):
                value = state[f"{name}.{one.name}"] if found is None else getattr(found, one.name)
                getattr(part, one.name).copy_(value)

    def _fold(self) -> None:
        for name, part in self.parts.items():
            weight = self.weights[name]
            weight.copy_(stacked(part.gamma / part.sigma * part.V, name, weight))


def matrix(name: str, weight: Float[Tensor, "*head d_1 d_2"]) -> Float[Tensor, "d_in d_out"]:
    """A weight of a block as the one matrix by which all that enters is multiplied: x W, or z W_O."""
    if weight.ndim == 2:
        return weight
    return rearrange(weight, "h i o -> (h i) o" if name.endswith("W_O") else "h i o -> i (h o)")


def stacked(found: Float[Tensor, "d_in d_out"], name: str, like: Tensor) -> Tensor:
    """The inverse of `matrix`."""
    if like.ndim == 2:
        return found
    return rearrange(found, "(h i) o -> h i o" if name.endswith("W_O") else "i (h o) -> h i o", h=like.shape[0])
