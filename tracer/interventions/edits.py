"""Interventions and recordings that travel with the call, not with the model.

1. An `Edit` is a value: which tap, which heads, which query positions, what instead.
2. `applied(edits)`, `recording(names)` and `visiting(visitor)` put values into a `ContextVar` for the length of a
   `with` block.
3. What holds for a model whenever it runs (`tracer.model.tap.Tap.clamps`) is its own: it comes first, in every thread.
4. Every `Tap` of a model, and every attention of a model that others wrote (`tracer.hooks.interceptor`), asks
   that variable. Another thread, or another asyncio task, sees its own.

A hook registered on a module is global state instead: two threads on one model, one of them ablating, corrupt each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tracer.heads.call import AttentionCall, Visitor

HEAD_AXIS = {"hook_pattern": 1, "hook_attn_scores": 1} | dict.fromkeys(
    (
        "hook_q", "hook_k", "hook_v", "hook_z", "hook_normed_q", "hook_normed_k", "hook_rot_q", "hook_rot_k",
        "hook_smeared_q", "hook_smeared_k", "hook_gate", "hook_result",
    ), 2,
)  # fmt: skip
"""The axis of an activation that counts heads, by the last part of the tap's name."""
Change = Callable[[Tensor], Tensor]
"""A new activation from the one that is there: a small frozen dataclass, so that edits stay comparable values."""


@dataclass(frozen=True)
class Edit:
    """At `tap`, put `instead` (broadcast to the activation's shape) at the named heads and query positions.

    `instead` may also say how the new activation follows from the one that is there:
    `tracer.ablate.edges_and_paths.Cut` does.
    """

    tap: str
    heads: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    instead: float | Tensor | Change = 0.0

    def __call__(self, activation: Tensor) -> Tensor:
        mask = torch.ones((1,) * activation.ndim, dtype=torch.bool, device=activation.device)
        head_axis = HEAD_AXIS.get(self.tap.rpartition(".")[2])
        if self.heads is not None:
            if head_axis is None:
                raise ValueError(f"{self.tap} has no heads to choose from: leave `heads` out")
            exist(self.heads, activation.shape[head_axis], "head", "this layer has heads")
            mask = _along(self.heads, activation, head_axis)
        if self.positions is not None:
            axis = 2 if head_axis == 1 else 1
            exist(self.positions, activation.shape[axis], "position", "the input has positions")
            mask = mask & _along(self.positions, activation, axis)
        instead = self.instead(activation) if callable(self.instead) else self.instead
        instead = torch.as_tensor(instead, dtype=activation.dtype, device=activation.device)
        return torch.where(mask, instead.expand_as(activation), activation)

    def leaves(self, n_heads: int, n: int, device: torch.device) -> Tensor | None:
        """The keys that this edit leaves visible to each head, [head query_pos key_pos]; None: it hides none."""
        return None


def exist(indices: Iterable[int], size: int, what: str, there_are: str) -> None:
    """An error that names the first index outside 0 .. size - 1."""
    for index in indices:
        if not 0 <= index < size:
            raise ValueError(f"{what} {index} does not exist: {there_are} 0 to {size - 1}")


def _along(indices: tuple[int, ...], activation: Tensor, axis: int) -> Tensor:
    """A boolean mask that is true at `indices` of one axis and broadcasts over the others."""
    mask = torch.zeros(activation.shape[axis], dtype=torch.bool, device=activation.device)
    mask[list(indices)] = True
    return mask.view([-1 if a == axis else 1 for a in range(activation.ndim)])


@dataclass(frozen=True)
class Active:
    """What is in force in one context."""

    edits: tuple[Edit, ...] = ()
    recordings: tuple[tuple[tuple[str, ...], dict[str, Tensor]], ...] = ()
    visitors: tuple[Visitor, ...] = ()

    def visit(self, call: AttentionCall) -> Tensor | None:
        """Show the call to every visitor; the heads' outputs if one of them computed these, else None."""
        found = [visitor(call) for visitor in self.visitors]
        return next((z for z in found if z is not None), None)

    def wants(self, name: str) -> bool:
        return any(e.tap == name for e in self.edits) or any(_names(name, wanted) for wanted, _ in self.recordings)

    def at(self, name: str, activation: Tensor) -> Tensor:
        """The activation as edited, after it was recorded."""
        activation = self.edit(name, activation)
        for wanted, seen in self.recordings:
            if _names(name, wanted):
                seen[name] = activation
        return activation

    def edit(self, name: str, activation: Tensor) -> Tensor:
        """The same object when no edit is meant for this tap."""
        for edit in self.edits:
            if edit.tap == name:
                activation = edit(activation)
        return activation

    def record(self, name: str, part: Tensor, axis: int, start: int, total: int) -> None:
        """Record some heads of a layer beside those that were recorded before."""
        for wanted, seen in self.recordings:
            if _names(name, wanted):
                if start == 0:
                    seen[name] = part.new_zeros([total if i == axis else n for i, n in enumerate(part.shape)])
                seen[name].narrow(axis, start, part.shape[axis]).copy_(part)


def _names(name: str, wanted: tuple[str, ...]) -> bool:
    return name in wanted or name.rpartition(".")[2] in wanted


_ACTIVE: ContextVar[Active | None] = ContextVar("manyeyes_active", default=None)


@contextmanager
def applied(edits: Iterable[Edit]) -> Iterator[None]:
    """Forward passes inside this block, in this thread, run with `edits`; blocks nest, outer edits first."""
    outer = _ACTIVE.get() or Active()
    token = _ACTIVE.set(replace(outer, edits=(*outer.edits, *edits)))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def recording(*names: str) -> Iterator[dict[str, Tensor]]:
    """Collect activations by full tap name, or by its last part (`hook_q`: that of every block), after every edit."""
    outer, seen = _ACTIVE.get() or Active(), {}
    token = _ACTIVE.set(replace(outer, recordings=(*outer.recordings, (names, seen))))
    try:
        yield seen
    finally:
        _ACTIVE.reset(token)


@contextmanager
def visiting(visitor: Visitor) -> Iterator[None]:
    """Show `visitor` every attention call of the forward passes inside, after the edits of q, k and v."""
    outer = _ACTIVE.get() or Active()
    token = _ACTIVE.set(replace(outer, visitors=(*outer.visitors, visitor)))
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def untouched() -> Iterator[None]:
    """Forward passes inside this block run as if no block were around it."""
    token = _ACTIVE.set(None)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def active() -> Active | None:
    """What is in force here; None when nobody looks and nothing is edited, as in compiled graphs, which only train."""
    return None if torch.compiler.is_compiling() else _ACTIVE.get()


def refuse_unknown_taps(taps: Collection[str]) -> None:
    """An edit of a tap that the model does not have would change nothing, silently."""
    here = _ACTIVE.get()
    for edit in here.edits if here else ():
        if edit.tap not in taps:
            raise ValueError(f"{edit.tap} is no tap of this model; it has {', '.join(taps)}")
