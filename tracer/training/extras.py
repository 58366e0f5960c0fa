"""The code that a user gives to our training, and that it is named again by whoever goes on with the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracer.data.own_probe import OwnRecord, Probes
from tracer.heads.own_measures import Measures
from tracer.named_code import all_same
from tracer.store import Run
from tracer.tracking.scalar_functions import ScalarFunctions, Scalars
from tracer.tracking.tracking import say
from tracer.training.own_loss import Loss, OwnLoss, given_loss


@dataclass
class Extras:
    """Measures, probes, functions and the loss of one training."""

    own: OwnRecord
    functions: ScalarFunctions
    loss: OwnLoss | None = None
    """None: the next-token loss."""
    says_loss: bool = False
    """Did a person name a loss, were it that of the next token?"""

    @classmethod
    def given(
        cls, measures: Measures, probes: Probes, scalars: Scalars | Sequence[Scalars], loss: Loss | None = None
    ) -> Extras:  # fmt: skip
        own, trained_on = OwnRecord.given(measures, probes, say), given_loss(loss)
        if trained_on and trained_on.variable in (row.name for row in own.rows):
            raise trained_on.wrong(f"a measure or a probe has the name {trained_on.variable}: call one of them another")
        return cls(own, ScalarFunctions(scalars), trained_on, loss is not None)

    @property
    def facts(self) -> dict[str, Any]:
        found = {**self.own.facts, "scalars": self.functions.names}
        return found if self.loss is None else {**found, "loss": self.loss.name}

    def check(self, run: Run, corpus: tuple[list[str], list[str]] = ([], []), more: bool = False) -> None:
        """ValueError where those that the run was begun with are not all there; `more` may be, and another loss, where
        it is named. `corpus`: the function that made its data, and the one that is given."""
        scalars = list(run.meta.get("scalars", ())), self.functions.names
        now = [] if self.loss is None else [self.loss.name]
        loss = now if more and self.says_loss else [run.meta["loss"]] if run.meta.get("loss") else [], now
        all_same(run.name, {**self.own.named(run.meta), "scalars": scalars, "corpus": corpus, "loss": loss}, more)
        self.own.check_probes(run.name, run.meta)
