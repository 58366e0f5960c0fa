"""The processes of a launcher that share one piece of work by turns, or this one alone."""

from __future__ import annotations

import os
from typing import Any


class Turns:
    """`rank` of `world`; what is gathered or said is there in every process."""

    def __init__(self) -> None:
        self.rank, self.world = 0, 1
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            import torch
            from accelerate import PartialState

            state = PartialState(cpu=not torch.accelerator.is_available())
            self.rank, self.world = state.process_index, state.num_processes

    @property
    def alone(self) -> bool:
        return self.world == 1

    def all(self, mine: Any) -> list[Any]:
        """What each process has, in their order."""
        if self.alone:
            return [mine]
        from accelerate.utils import gather_object

        return gather_object([mine])

    def any(self, asked: bool) -> bool:
        """Does one of them say so?"""
        return any(self.all(asked))
