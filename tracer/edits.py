"""Interventions and recordings that travel with the call, not with the model.

1. An `Edit` is a value: which tap, which heads, which query positions, what instead.
2. `applied(edits)` and `recording(names)` put values into a `ContextVar` for the length of a `with` block.
3. Every `Tap` of a model asks that variable. Another thread, or another asyncio task, sees its own.

A hook registered on a module is global state instead: two threads on one model, one of them ablating, corrupt each
other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformer_lens.hook_points import HookPoint

HEAD_AXIS = {"hook_pattern": 1, "hook_attn_scores": 1} | dict.fromkeys(
    ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k", "hook_result"), 2
)
"""The axis of an activation that counts heads, by the last part of the tap's name."""


@dataclass(frozen=True)
class Edit:
    """At `tap`, put `instead` (broadcast to the activation's shape) at the named heads and query positions."""

    tap: str
    heads: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    instead: float | Tensor = 0.0

    def __call__(self, activation: Tensor) -> Tensor:
        mask = torch.ones((1,) * activation.ndim, dtype=torch.bool, device=activation.device)
        head_axis = HEAD_AXIS.get(self.tap.rpartition(".")[2])
        if self.heads is not None:
            if head_axis is None:
                raise ValueError(f"{self.tap} has no heads to choose from: leave `heads` out")
            mask = mask & _along(self.heads, activation, head_axis, "head", "this layer has heads")
        if self.positions is not None:
            axis = 2 if head_axis == 1 else 1
            mask = mask & _along(self.positions, activation, axis, "position", "the input has positions")
        instead = torch.as_tensor(self.instead, dtype=activation.dtype, device=activation.device)
        return torch.where(mask, instead.expand_as(activation), activation)


def _along(indices: tuple[int, ...], activation: Tensor, axis: int, what: str, there_are: str) -> Tensor:
    """A boolean mask that is true at `indices` of one axis and broadcasts over the others."""
    size = activation.shape[axis]
    for index in indices:
        if not 0 <= index < size:
            raise ValueError(f"{what} {index} does not exist: {there_are} 0 to {size - 1}")
    mask = torch.zeros(size, dtype=torch.bool, device=activation.device)
    mask[list(indices)] = True
    return mask.view([-1 if a == axis else 1 for a in range(activation.ndim)])


@dataclass(frozen=True)
class _Active:
    edits: tuple[Edit, ...] = ()
    recordings: tuple[tuple[tuple[str, ...], dict[str, Tensor]], ...] = ()

    def wants(self, name: str) -> bool:
        return any(e.tap == name for e in self.edits) or any(_names(name, wanted) for wanted, _ in self.recordings)

    def at(self, name: str, activation: Tensor) -> Tensor:
        for edit in self.edits:
            if edit.tap == name:
                activation = edit(activation)
        for wanted, seen in self.recordings:
            if _names(name, wanted):
                seen[name] = activation
        return activation


def _names(name: str, wanted: tuple[str, ...]) -> bool:
    return name in wanted or name.rpartition(".")[2] in wanted


_ACTIVE: ContextVar[_Active | None] = ContextVar("manyeyes_active", default=None)


@contextmanager
def applied(edits: Iterable[Edit]) -> Iterator[None]:
    """Forward passes inside this block, in this thread, run with `edits`; blocks nest, outer edits first."""
    active = _ACTIVE.get() or _Active()
    token = _ACTIVE.set(replace(active, edits=(*active.edits, *edits)))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def recording(*names: str) -> Iterator[dict[str, Tensor]]:
    """Collect activations by full tap name, or by its last part (`hook_q`: that of every block), after every edit."""
    active, seen = _ACTIVE.get() or _Active(), {}
    token = _ACTIVE.set(replace(active, recordings=(*active.recordings, (names, seen))))
    try:
        yield seen
    finally:
        _ACTIVE.reset(token)


def refuse_unknown_taps(taps: Collection[str]) -> None:
    """An edit of a tap that the model does not have would change nothing, silently."""
    active = _ACTIVE.get()
    for edit in active.edits if active else ():
        if edit.tap not in taps:
            raise ValueError(f"{edit.tap} is no tap of this model; it has {', '.join(taps)}")


class Tap(HookPoint):
    """A transformer-lens HookPoint that also obeys the edits and recordings of the calling context."""

    name: str

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # a compiled graph is only ever used to train, where nothing is edited
            return x
        active = _ACTIVE.get()
        return x if active is None else active.at(self.name, x)

    @property
    def watched(self) -> bool:
        """Does anybody, by hook or by context, look at or change what passes here?"""
        if torch.compiler.is_compiling():
            return False
        active = _ACTIVE.get()
        return bool(self.fwd_hooks or self.bwd_hooks) or (active is not None and active.wants(self.name))
