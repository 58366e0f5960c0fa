"""Where checks run: the second device, a folder, and the demo trained there, once for all checks that ask for it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.table import NotHere
from tracer.config import TrainConfig
from tracer.data import probes
from tracer.model import Transformer
from tracer.presets import preset
from tracer.store import Run, open_run
from tracer.training.loop import train

CPU = torch.device("cpu")
SMALL_STEPS = 6


@dataclass
class Place:
    """`small`: sizes with which a test takes seconds, the demo's training among them."""

    device: torch.device
    out: Path
    small: bool = False
    threads: int | None = None
    """Of the training on the CPU that goes on beside the checks; None: torch's own number."""
    _beside: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def wait(self) -> None:
        """Until the device has done what it was given, so that a clock may be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def need_cuda(self, what: str) -> None:
        if self.device.type != "cuda":
            raise NotHere(f"{what} needs CUDA")

    def config(self, name: str, **changes: Any) -> TrainConfig:
        """A preset on the second device."""
        kind: Any = self.device.type
        config = replace(preset(name).config, device=kind)
        if self.small:
            few = replace(config.record, every=2, snapshot_every=2, log_every=4, val_rows=8, repeat_rows=16)
            optim = replace(config.optim, batch_size=8)
            data = replace(config.data, corpus="repeated-random", mix=None, mix_share=0.0, start_token=False)
            config = replace(config, steps=SMALL_STEPS, record=few, optim=optim, data=replace(data, vocab_size=65))
        return replace(config, **changes)

    def trained(self, config: TrainConfig, name: str) -> Run:
        return train(replace(config, run=str(self.out / "runs" / name)), quiet=True, overwrite=True)

    @property
    def demo_config(self) -> TrainConfig:
        """A test takes the toy, whose heads do something before they have learned."""
        return self.config("induction" if self.small else "demo")

    @cached_property
    def demo(self) -> Run:
        """The demo on the second device, at the precision that a user gets there."""
        return self.trained(self.demo_config, "demo")

    @cached_property
    def demo_in_float32(self) -> Run:
        return self.trained(self.precise(self.demo_config), "demo-float32")

    def precise(self, config: TrainConfig) -> TrainConfig:
        """In float32."""
        return replace(config, optim=replace(config.optim, precision="no"))

    @cached_property
    def model(self) -> Transformer:
        """The demo after its last update, on the CPU."""
        return _model(self.demo)

    @cached_property
    def there(self) -> Transformer:
        """The same on the second device."""
        return _model(self.demo).to(self.device)

    @cached_property
    def tokens(self) -> Tensor:
        """Random tokens that repeat: rows on which heads of the demo have something to do."""
        model = self.model
        return probes.repeated(model.d_vocab, model.n_ctx, batch=8 if self.small else 32).tokens

    def begin_beside(self) -> None:
        """Train the demo on the CPU in a process of its own, while this one goes on."""
        call = [
            sys.executable,
            "-m",
            "benchmarks.gpu.beside",
            str(self.out),
            str(int(self.small)),
            str(self.threads or 0),
        ]
        with (self.out / "beside.txt").open("wb") as log:
            self._beside = subprocess.Popen(call, stdout=log, stderr=log)

    def beside(self, patience: float) -> Run:
        """That run, once it is finished."""
        if self._beside is None:
            self.begin_beside()
        assert self._beside is not None
        try:
            code = self._beside.wait(patience)
        except subprocess.TimeoutExpired:
            raise NotHere(f"the CPU was still training after {patience:.0f} s more") from None
        if code:
            raise RuntimeError(f"training on the CPU ended with {code}: {self.out / 'beside.txt'}")
        return open_run(self.out / "runs" / "demo-cpu")

    def close(self) -> None:
        if self._beside is not None and self._beside.poll() is None:
            self._beside.kill()
            self._beside.wait()


def _model(run: Run) -> Transformer:
    found = run.model()
    assert isinstance(found, Transformer)
    return found.eval().requires_grad_(False)


def off(found: Any, reference: Any) -> float:
    """||found - reference|| / ||reference||, in float64; nan must stand in the same places, or it is nan."""
    a, b = (
        np.asarray(x.detach().double().cpu() if isinstance(x, Tensor) else x, np.float64) for x in (found, reference)
    )
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return float("nan")
    there = ~np.isnan(b)
    return float(np.linalg.norm(a[there] - b[there]) / max(float(np.linalg.norm(b[there])), 1e-30))


def apart(found: Any, reference: Any) -> float:
    """The largest |found - reference|, in float64; nan as in `off`."""
    a, b = (
        np.asarray(x.detach().double().cpu() if isinstance(x, Tensor) else x, np.float64) for x in (found, reference)
    )
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return float("nan")
    return float(np.nanmax(np.abs(a - b), initial=0.0))


def seconds(run: Callable[[], object], wait: Callable[[], None]) -> float:
    """Wall seconds of one call, the device's work included."""
    wait()
    began = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - began
