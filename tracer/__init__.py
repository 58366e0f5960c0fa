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

# before torch is loaded: its idle threads then sleep; spinning, on cores that others use too, makes a step 40x slower
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from tracer.adapters.callbacks import LightningCallback, TrainerCallback
    from tracer.adapters.huggingface import load_hf, open_hf
    from tracer.adapters.watch import watch
    from tracer.config import DataConfig, ModelConfig, OptimConfig, RecordConfig, TrainConfig
    from tracer.diagnosis import diagnose
    from tracer.model import Transformer
    from tracer.presets import PRESETS, preset
    from tracer.showing import show
    from tracer.store import Run, list_runs, open_run
    from tracer.sweeping import sweep_run
    from tracer.training import fork, resume, train

_HOME = {
    "DataConfig": "config", "ModelConfig": "config", "OptimConfig": "config", "RecordConfig": "config",
    "TrainConfig": "config", "Transformer": "model", "PRESETS": "presets", "preset": "presets", "Run": "store",
    "LightningCallback": "adapters.callbacks", "TrainerCallback": "adapters.callbacks",
    "load_hf": "adapters.huggingface", "open_hf": "adapters.huggingface", "watch": "adapters.watch",
    "list_runs": "store", "open_run": "store", "fork": "training", "resume": "training", "train": "training",
    "sweep_run": "sweeping", "diagnose": "diagnosis", "show": "showing",
}  # fmt: skip

__all__ = [
    "PRESETS", "DataConfig", "LightningCallback", "ModelConfig", "OptimConfig", "RecordConfig", "Run", "TrainConfig",
    "TrainerCallback", "Transformer", "diagnose", "fork", "list_runs", "load_hf", "open_hf", "open_run", "preset",
    "resume", "show", "sweep_run", "train", "watch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"tracer has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"tracer.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
