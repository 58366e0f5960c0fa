"""Where a training is recorded: a folder of its own, or the one of the job that it resumes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from tracer.store import ROOT, newest, unused
from tracer.store.places import is_path
from tracer.tracking.tracking import say
from tracer.watching import lifetime


@dataclass(frozen=True)
class RunPlace:
    """The folder of one run."""

    named: Path
    """What a person asked for,"""
    dir: Path
    """and what it is: that, or the first free one beside it; of a run that goes on the last of these."""
    resumes: bool
    """Is there a run that goes on?"""

    @classmethod
    def of(cls, run: str | Path, start_step: int | None) -> RunPlace:
        named = Path(run) if is_path(run) else ROOT / run
        before = newest(named) if start_step else None
        return cls(named, before or unused(named), before is not None)

    def take(self, model: nn.Module, rank: int) -> None:
        """Nobody else records this model from now on; say so, and where it is recorded if not where it was asked."""
        taken = self.dir != self.named and not self.resumes and rank == 0
        for other in lifetime.others_of(model):
            if other.begun:
                taken = False
                say(f"manyeyes records this model in {self.dir.name} from now on: {other.dir.name} ends here")
            other.close(InterruptedError("the model is recorded anew"))
        if taken:
            say(f"manyeyes records into {self.dir}: {self.named} holds something already, and is left as it is")
