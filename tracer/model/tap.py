"""The points of our model at which an activation can be seen and changed."""

from __future__ import annotations

import torch
from torch import Tensor

from tracer.interventions.edits import Edit, active
from tracer.interventions.own_clamps import Beside, OwnClamp
from tracer.model.lens import HookPoint


class Tap(HookPoint):
    """A transformer-lens HookPoint that also obeys its clamps, and the edits and recordings of the calling context."""

    name: str  # pyrefly: ignore[bad-override-mutable-attribute]
    clamps: tuple[Edit, ...] = ()
    """What holds here in every forward pass, before any other edit."""

    def forward(self, x: Tensor, beside: Beside | None = None) -> Tensor:
        for clamp in self.clamps:
            x = clamp.within(x, beside) if isinstance(clamp, OwnClamp) and beside is not None else clamp(x)
        here = active()
        return x if here is None else here.at(self.name, x)

    @property
    def own(self) -> tuple[OwnClamp, ...]:
        """The clamps that are functions of a user's: they ask what is beside x."""
        return tuple(clamp for clamp in self.clamps if isinstance(clamp, OwnClamp))

    @property
    def watched(self) -> bool:
        """Does anybody, by hook or by context, look at or change what passes here?"""
        if self.clamps:
            return True
        if torch.compiler.is_compiling():
            return False
        here = active()
        return bool(self.fwd_hooks or self.bwd_hooks) or (here is not None and here.wants(self.name))

    def mask(self, q: Tensor) -> Tensor | None:
        """Of scores: what clamps and edits leave visible, [1 head query_pos key_pos], for patterns made of q and k."""
        here = active()
        edits = [*self.clamps, *(edit for edit in (here.edits if here else ()) if edit.tap == self.name)]
        masks = [mask for edit in edits if (mask := edit.leaves(q.shape[2], q.shape[1], q.device)) is not None]
        return torch.stack(masks).all(0, keepdim=True) if masks else None
