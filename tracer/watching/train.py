"""`tracer.train`: our model, or one of somebody's own, through our loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracer.config import TrainConfig
from tracer.data.own_probe import Probes
from tracer.data.own_source import Make as MakeData
from tracer.diagnosis.own_rules import Rules
from tracer.heads.own_measures import Measures
from tracer.huggingface.architectures import Layout
from tracer.interventions.own_clamps import Given
from tracer.store import Run, resolve
from tracer.tracking.scalar_functions import Scalars
from tracer.tracking.telling import OnFinding, OnRecord
from tracer.training import loop
from tracer.training.clamping import with_these
from tracer.training.own_loss import Loss
from tracer.watching.own_model import Make, train_own


def train(
    config: TrainConfig, preset: str | None = None, quiet: bool = False, track: str | Sequence[str] = (),
    overwrite: bool = False, *, on_record: OnRecord | None = None, on_finding: OnFinding | None = None,
    measures: Measures = (), probes: Probes = None, scalars: Scalars | Sequence[Scalars] = (),
    settings: Mapping[str, Any] | None = None, note: str = "", tags: Sequence[str] = (),
    corpus: str | MakeData | None = None, rules: Rules = (), clamp: Given = (), loss: Loss | None = None,
    build: str | Make | None = None, layout: Layout | str | Path | None = None,
) -> Run:  # fmt: skip
    """Train a new run and return it; a Ctrl-C stops it cleanly, and `resume` goes on from there.

    `track`: experiment trackers that are told what is recorded (`tracer.tracking.TRACKERS`). What the directory holds
    is never replaced, unless `overwrite` says so. As in `watch`, `on_record` is called with the step of each record and
    its numbers by readable names (`attn/L1H2/induction`), and `on_finding` with each kind of finding as it comes up;
    where it returns "stop", or is the word "stop" and the finding is bad, the training stops. `resume` can go on.
    `measures`: measures of heads of one's own (`tracer.measure`), recorded beside ours; `probes`: rows of tokens of
    one's own (`tracer.Probe`) by name. `scalars`: functions f(model, step) that give at each record numbers by their
    names: {name: number, or an array of [layer] or [layer, head]}; they run in eval mode without gradients, and random
    states are put back. Each as objects or as `module:name`; run.json has the names, and `resume` is given the same
    again. `settings`: facts of your own besides the config, by which runs are found and compared, as by `tags`; `note`
    is the one that the page Runs shows.
    `corpus`: a function of (n_ctx, seed) that makes a source of tokens, or its `module:name` (docs/own.md); or any
    other corpus. A `config.data.corpus` that names a function runs only where it is given here.
    `rules`: failure modes of one's own (`tracer.rule`), looked for beside ours while it trains.
    `clamp`: what is held while training, beside `config.clamp`: "L0H1 off", "L1H2 = module:function" or
    {"L1H2": function} (docs/own.md). Functions run only where they are given here.
    `loss`: a function (logits, batch), or its `module:name`, that is trained on instead of the next-token loss: it
    returns one number, or one for each target [batch pos]; `batch` is a `tracer.LossBatch`. It is recorded beside the
    others, which stay what they are, next-token losses.
    `build`: a function of the config that makes a model to train instead of ours, or its `module:name`: it takes tokens
    [batch pos] and gives logits [batch pos d_vocab]. The run is as one of `tracer.watch(build=..., layout=...)`, which
    can be trained anew, not gone on with.
    """
    if build is None:
        if layout is not None:
            raise ValueError("layout= says where a model of your own keeps what writes to its stream: give build= too")
        return loop.train(
            config, preset, quiet, track, overwrite, on_record=on_record, on_finding=on_finding, measures=measures,
            probes=probes, scalars=scalars, settings=settings, note=note, tags=tags, corpus=corpus, rules=rules,
            clamp=clamp, loss=loss,
        )  # fmt: skip
    directory = resolve(config.run or f"{preset or 'run'}-{config.seed}")
    return train_own(
        with_these(loop.on_corpus(config, corpus), clamp), build, directory, preset, quiet, overwrite, loss,
        track=track or None, on_record=on_record, on_finding=on_finding, measures=measures, probes=probes,
        scalars=scalars, settings=settings, note=note, tags=tags, layout=layout, rules=rules,
    )  # fmt: skip
