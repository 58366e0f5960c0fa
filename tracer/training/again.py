"""A run's training in this process, as it was before a step, to look at what its rows do to a head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from tracer.data.own_probe import Probes
from tracer.data.own_source import Make
from tracer.heads.own_measures import Measures
from tracer.interventions.own_clamps import Given
from tracer.interventions.replacements import head_of
from tracer.measures.aliases import Head
from tracer.store import Run, open_run
from tracer.store.stretch import stretch
from tracer.tracking.scalar_functions import Scalars
from tracer.training.clamping import named_again
from tracer.training.extras import Extras
from tracer.training.interrupts import one_process
from tracer.training.job import Job, forward_backward, hold, load_state, prepare, state_of, update
from tracer.training.loop import on_corpus
from tracer.training.probe_recorder import ProbeRecorder

Tensors = dict[str, Tensor]


class Again:
    """Begins at the nearest state that is kept at or before step `first`; `go_to` trains on, as the run did.

    `measures`, `probes`, `scalars`, `corpus`, `clamp`: those of the run, named again. ValueError for steps that were
    not trained, a head that is not there, a loss of one's own, and in one of several processes.
    """

    def __init__(
        self, run: Run | str | Path, first: int, last: int, head: Head, *, measures: Measures = (),
        probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (), corpus: str | Make | None = None,
        clamp: Given = (),
    ) -> None:  # fmt: skip
        one_process("tracer rows")
        self.parent = parent = run if isinstance(run, Run) else open_run(run)
        layer, at = self.head = head_of(head)
        model = parent.config.model
        if not (0 <= layer < model.n_layers and 0 <= at < model.n_heads):
            raise ValueError(f"L{layer}H{at} is not there: {model.n_layers} layers of {model.n_heads} heads")
        extras = Extras.given(measures, probes, scalars)
        if parent.meta.get("loss"):
            raise ValueError(f"{parent.name} is trained on a loss of its own, of which no part is a row's")
        if (reparam := parent.config.optim.reparam) != "none":
            raise ValueError(
                f"optim.reparam={reparam} stands between the gradients of rows and the weights, and what a row does is "
                f"not followed through it"
            )
        self.start = self.step = stretch(parent, first, last).start
        extras.check(parent)
        named_again(parent.name, parent.config, clamp)
        self.job: Job = prepare(on_corpus(parent.config, corpus))
        if self.start in parent.state_steps:
            load_state(self.job, parent.state(self.start))
        self.recorder = ProbeRecorder(self.job.raw, parent.config.record, self.job.data, extras.own)
        self.job.raw.train()

    def go_to(self, step: int) -> None:
        """Updates up to there."""
        for earlier in range(self.step, step):
            hold(self.job, earlier)
            forward_backward(self.job, earlier)
            update(self.job, earlier)
        self.step = step

    def kept(self) -> Tensors:
        """A copy of weights and optimizer state; `back` goes there."""
        return {name: tensor.detach().clone() for name, tensor in state_of(self.job).items()}

    def back(self, kept: Tensors, step: int) -> None:
        load_state(self.job, {name: tensor.clone() for name, tensor in kept.items()})
        self.step = step

    def same(self, step: int, weights: Tensors, batch_loss: float | None = None) -> list[tuple[str, bool]]:
        """What the run kept of a step, in words, and whether that is equal to the bit to what was had again."""
        found: list[tuple[str, bool]] = []
        if step in self.parent.steps:
            kept = self.parent.model(step, clamps=False).state_dict()  # pyrefly: ignore[missing-attribute]
            found.append(("weights", all(bool((kept[name].cpu() == weights[name].cpu()).all()) for name in kept)))
        recorded = self.parent.trace["train_loss"]
        if batch_loss is not None and step in recorded["step"].values:
            found.append(("loss of the batch", bool(np.float32(recorded.sel(step=step)) == np.float32(batch_loss))))
        return found
