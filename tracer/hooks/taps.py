"""Taps of an attention that others wrote, named as in our own models: `blocks.<layer>.attn.hook_q|k|v|z|pattern`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tracer.heads.call import AttentionCall
from tracer.hooks.refusals import CannotWatch
from tracer.interventions.edits import HEAD_AXIS, Active


@dataclass(frozen=True)
class Taps:
    """The taps of one attention, whose heads may be some of a layer's."""

    here: Active
    layer: int
    offset: int
    total: int
    whole: bool
    """Are these all the heads of the layer?"""
    rows: tuple[int, int] | None = None
    """Of z that comes in blocks of queries: where this block begins, and how many queries there are."""

    def wants(self, what: str) -> bool:
        return self.here.wants(f"blocks.{self.layer}.attn.hook_{what}")

    def edits(self, what: str) -> bool:
        return any(edit.tap == f"blocks.{self.layer}.attn.hook_{what}" for edit in self.here.edits)

    def at(self, what: str, x: Tensor) -> Tensor:
        """x as it is recorded and edited; the same object when no edit touches it."""
        name, axis = f"blocks.{self.layer}.attn.hook_{what}", HEAD_AXIS[f"hook_{what}"]
        if not self.here.wants(name):
            return x
        if self.whole and self.rows is None:
            return self.here.at(name, x)
        if not self.whole and self.rows is not None:
            raise CannotWatch("heads that are computed one by one, each in blocks of queries, cannot be changed")
        start, total = self.rows or (self.offset, self.total)
        axis = axis if self.rows is None else 1
        n = x.shape[axis]
        full = x.new_zeros([total if i == axis else size for i, size in enumerate(x.shape)])
        full.narrow(axis, start, n).copy_(x)
        after = self.here.edit(name, full)
        after = x if after is full else after.narrow(axis, start, n)
        self.here.record(name, after, axis, start, total)
        return after

    def inputs(self, call: AttentionCall) -> AttentionCall:
        """The call with edited q, k and v; the same object when no edit touches them."""
        before = {"v": call.v} if call.q is None or call.k is None else {"q": call.q, "k": call.k, "v": call.v}
        after: dict[str, Any] = {what: self.at(what, x) for what, x in before.items()}
        return call if all(after[what] is x for what, x in before.items()) else replace(call, **after)
