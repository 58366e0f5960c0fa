"""What a user adds to each record of our training, and that it is named again by whoever goes on with the run."""

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


@dataclass
class Extras:
    """Measures, probes and functions of one training."""

    own: OwnRecord
    functions: ScalarFunctions

    @classmethod
    def given(cls, measures: Measures, probes: Probes, scalars: Scalars | Sequence[Scalars]) -> Extras:
        return cls(OwnRecord.given(measures, probes, say), ScalarFunctions(scalars))

    @property
    def facts(self) -> dict[str, Any]:
        return {**self.own.facts, "scalars": self.functions.names}

    def check(self, run: Run, corpus: tuple[list[str], list[str]] = ([], []), more: bool = False) -> None:
        """ValueError where those that the run was begun with are not all there; `more` may be. `corpus`: the function
        that made its data, and the one that is given."""
        scalars = list(run.meta.get("scalars", ())), self.functions.names
        all_same(run.name, {**self.own.named(run.meta), "scalars": scalars, "corpus": corpus}, more)
        self.own.check_probes(run.name, run.meta)
