"""The largest logits of training passes: which passes are looked at, what a step had, and what a record has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tracer.hooks.discovered import DiscoveredAttention
from tracer.watching.pace import Pace
from tracer.watching.ranks import Ranks, side_by_side
from tracer.watching.training_passes import TrainingPasses, unseen_because

Looks = Literal["share", "every", "never"]
"""Which training passes are looked at for their largest logits: those that half of `share` pays for, each, or none."""


class LargestLogits:
    """Of somebody's training passes, once `watch` has been told where their attention is."""

    def __init__(self, looks: Looks, pace: Pace, ranks: Ranks) -> None:
        if looks not in get_args(Looks):
            raise ValueError(f"max_logits={looks!r} is none of {', '.join(map(repr, get_args(Looks)))}")
        self._looks, self._pace, self._ranks = looks, pace, ranks
        self._passes: TrainingPasses | None = None
        self._since_record: Tensor | None = None
        self.unseen = ""
        """Why no training pass can be looked at; empty where they are."""

    def watch(
        self, model: nn.Module, found: DiscoveredAttention, quietly: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        if self._looks != "never":
            self._passes = TrainingPasses(model, found, self._pace.device, quietly)

    def pass_begins(self, at: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called, in a hook of this module."""
        passes = self._passes
        if passes is None or not torch.is_grad_enabled() or not (self._looks == "every" or self._pace.may_look()):
            return
        if unseen := unseen_because(passes.model):
            self.unseen, self._passes = unseen, None
            return
        with self._pace.looks():
            passes.begin(at, args, kwargs)

    def of_step(self) -> Float[Tensor, "layer head"] | None:
        """Of the passes since this was last asked; over all processes where all look at each."""
        found = None if self._passes is None else self._passes.take()
        if found is None:
            return None
        self._since_record = found if self._since_record is None else torch.fmax(self._since_record, found)
        if self._looks == "every" and self._ranks.world > 1:
            with self._pace.timed():
                every = self._ranks.all({"largest": found.cpu().numpy(), "place": np.array(self._ranks.place)})
                found = torch.from_numpy(side_by_side(every)).to(found)
        return found

    def of_record(self) -> Float[Tensor, "layer head"] | None:
        """Of the steps since this was last asked, in this process."""
        found, self._since_record = self._since_record, None
        return found

    def end(self) -> None:
        """Look no more, at the pass that is under way neither."""
        if self._passes is not None:
            self._passes.end()
            self._passes = None
