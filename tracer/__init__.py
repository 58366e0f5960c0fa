"""manyeyes: train transformers and see every attention head, at every step of training.

    import tracer

    run = tracer.open_run("checkpoints/demo-0")
    run.trace.induction.max(["layer", "head"])     # an xarray.Dataset with named dimensions
    model = run.model(step=500)
    logits = model(model.to_tokens("def f(self"))

Names load when they are first used, so that `import tracer` costs nothing.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# Before torch is loaded: its idle threads sleep, after some microseconds of spinning. On two cores, a step of the demo
# takes 41 ms alone and 98 ms beside a second training; 60 and 74 if they sleep at once; 38 and 100 to 2,000 if they
# spin as torch lets them (benchmarks/threads.py).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

if TYPE_CHECKING:
    from tracer import ablate, data, diagnosis, heads, measures, pictures, store
    from tracer.ablate.own_tests import head_test
    from tracer.ablate.patching import patch
    from tracer.analysis.head_roles import role, roles
    from tracer.analysis.logit_attribution import logit_attribution, logit_lens
    from tracer.analysis.notebook import show
    from tracer.analysis.row_dates import dates_moved
    from tracer.analysis.run_sweep import sweep_run
    from tracer.analysis.seeds import seeds
    from tracer.analysis.survey import survey
    from tracer.analysis.why import why
    from tracer.config import DataConfig, ModelConfig, OptimConfig, RecordConfig, TrainConfig
    from tracer.data import probes
    from tracer.data.own_probe import Probe
    from tracer.diagnosis import diagnose, rule
    from tracer.export.bridge import to_bridge
    from tracer.export.to_huggingface import to_huggingface
    from tracer.heads.own_measures import measure
    from tracer.heads.row_block import RowBlock
    from tracer.hooks.declarations import attends
    from tracer.huggingface.architectures import Layout
    from tracer.huggingface.loading import load_hf
    from tracer.interventions import clamps as clamp
    from tracer.interventions.own_clamps import ClampedHead
    from tracer.measures.halfway import halfway
    from tracer.model import Transformer
    from tracer.presets import PRESETS, preset
    from tracer.site.publish import publish
    from tracer.specimens.paper import Claim, Control, Paper, PaperRun
    from tracer.specimens.paper_chart import PaperChart
    from tracer.specimens.reproduction import reproduce
    from tracer.specimens.systems import Check, Exercise, System
    from tracer.store import Run, list_runs, open_run
    from tracer.tracking.own_numbers import scalar
    from tracer.training.loop import fork, resume
    from tracer.training.own_loss import LossBatch
    from tracer.training.remedy import remedy
    from tracer.training.replay import replay
    from tracer.training.stretch_rows import stretch_rows
    from tracer.training.which_rows import which_rows
    from tracer.watching.callbacks import LightningCallback, TrainerCallback
    from tracer.watching.opening import open_hf
    from tracer.watching.train import train
    from tracer.watching.watch import watch

_HOME = {
    "DataConfig": "config", "ModelConfig": "config", "OptimConfig": "config", "RecordConfig": "config",
    "TrainConfig": "config", "Transformer": "model", "PRESETS": "presets", "preset": "presets", "Run": "store",
    "LightningCallback": "watching.callbacks", "TrainerCallback": "watching.callbacks",
    "logit_attribution": "analysis.logit_attribution", "logit_lens": "analysis.logit_attribution",
    "head_test": "ablate.own_tests", "patch": "ablate.patching", "role": "analysis.head_roles",
    "roles": "analysis.head_roles", "load_hf": "huggingface.loading", "open_hf": "watching.opening",
    "Claim": "specimens.paper", "Control": "specimens.paper", "Paper": "specimens.paper",
    "PaperRun": "specimens.paper", "PaperChart": "specimens.paper_chart", "reproduce": "specimens.reproduction",
    "Check": "specimens.systems", "Exercise": "specimens.systems", "System": "specimens.systems",
    "Layout": "huggingface.architectures", "watch": "watching.watch", "list_runs": "store", "open_run": "store",
    "fork": "training.loop", "remedy": "training.remedy", "replay": "training.replay", "resume": "training.loop",
    "train": "watching.train", "which_rows": "training.which_rows", "stretch_rows": "training.stretch_rows",
    "dates_moved": "analysis.row_dates", "halfway": "measures.halfway",
    "sweep_run": "analysis.run_sweep", "diagnose": "diagnosis", "to_bridge": "export.bridge",
    "to_huggingface": "export.to_huggingface",
    "attends": "hooks.declarations", "ClampedHead": "interventions.own_clamps", "LossBatch": "training.own_loss",
    "Probe": "data.own_probe",
    "RowBlock": "heads.row_block", "measure": "heads.own_measures", "rule": "diagnosis",
    "publish": "site.publish",
    "scalar": "tracking.own_numbers", "seeds": "analysis.seeds", "show": "analysis.notebook",
    "survey": "analysis.survey", "why": "analysis.why",
}  # fmt: skip
_MODULES = {
    "ablate": "ablate", "clamp": "interventions.clamps", "data": "data", "diagnosis": "diagnosis", "heads": "heads",
    "measures": "measures", "pictures": "pictures", "probes": "data.probes", "store": "store",
}  # fmt: skip

__all__ = [
    "PRESETS", "Check", "Claim", "ClampedHead", "Control", "DataConfig", "Exercise", "Layout", "LightningCallback",
    "LossBatch", "ModelConfig", "OptimConfig", "Paper", "PaperChart", "PaperRun", "Probe", "RecordConfig", "RowBlock",
    "Run", "System", "TrainConfig", "TrainerCallback", "Transformer", "ablate", "attends", "clamp", "data",
    "dates_moved", "diagnose", "diagnosis", "fork", "halfway", "head_test", "heads", "list_runs", "load_hf",
    "logit_attribution", "logit_lens", "measure", "measures", "open_hf", "open_run", "patch", "pictures", "preset",
    "probes", "publish", "remedy", "replay", "reproduce", "resume", "role", "roles", "rule", "scalar", "seeds", "show",
    "store", "stretch_rows", "survey", "sweep_run", "to_bridge", "to_huggingface", "train", "watch", "which_rows",
    "why",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"tracer.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"tracer has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"tracer.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
