"""The demo trained on the second device: does it learn what it learns on the CPU, and go on to the bit?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.place import Place, off
from benchmarks.gpu.table import Line, at_most
from tracer.ablate import Verdict, verdict
from tracer.config import TrainConfig
from tracer.store import Run
from tracer.training.job import forward_backward, prepare, update
from tracer.training.loop import resume

EARLY = {"induction": ("AdamW", 1e-3), "demo": ("Muon", 2e-2)}
"""Presets whose first losses are compared, and how far they may be apart, relative: rounding, 1e-7 of a float32 sum,
grows with every update; and torch orthogonalises for Muon in bfloat16 on a GPU, ours on a CPU in float32."""
STEPS = 50
LOSS_BAND, SCORE_BAND = 0.05, 0.15
"""How far the ends of two trainings that round differently may be apart: nats of held-out loss, the largest induction
score."""


def early_losses(config: TrainConfig, steps: int) -> list[float]:
    """Of the first batches, without recording."""
    job = prepare(config)
    job.raw.train()
    found = []
    for step in range(steps):
        found.append(forward_backward(job, step))
        update(job, step)
    return torch.stack(found).tolist()


def early(place: Place) -> dict[str, list[float]]:
    """By preset, in float32."""
    steps = 3 if place.small else STEPS
    return {name: early_losses(place.precise(place.config(name)), steps) for name in EARLY}


def strongest(run: Run) -> tuple[int, int]:
    scores = run.trace["induction"].isel(step=-1).values
    layer, head = np.unravel_index(int(scores.argmax()), scores.shape)
    return int(layer), int(head)


def demo(place: Place) -> Iterator[Line]:
    run = place.demo
    cost = run.meta["cost"]
    update_ms = 1000 * cost["training_seconds"] / run.config.steps
    took = f"{run.status} in {cost['seconds']:.1f} s, {update_ms:.2f} ms an update"
    yield Line(f"demo trained on {run.meta['device']}", took, "finished", run.status == "finished")
    card = verdict(run, *strongest(run))
    yield Line("verdict card of its strongest head", card.headline, "an induction head", _learns(place, card))
    run = place.demo_in_float32
    card = verdict(run, *strongest(run))
    yield Line("the same, trained in float32", card.headline, "an induction head", _learns(place, card))


def _learns(place: Place, card: Verdict) -> bool | None:
    return None if place.small else card.is_induction_head


def resumed(place: Place) -> Iterator[Line]:
    half, whole = (2, 4) if place.small else (20, 40)
    for name, config in (
        ("AdamW, float32", place.precise(place.config("induction", steps=whole))),
        ("Muon, the precision of the device", place.config("demo", steps=whole)),
    ):
        ends = [_weights(place.trained(config, f"whole-{i}")) for i in range(2)]
        resume(place.trained(replace(config, steps=half), "halves").dir, steps=whole, quiet=True)
        again, went_on = (all(torch.equal(a, b) for a, b in zip(ends[0], one, strict=True))
                          for one in (ends[1], _weights(Run(place.out / "runs" / "halves"))))  # fmt: skip
        yield Line(
            f"resumed at step {half} of {whole}, {name}", "equal" if went_on else "differs", "to the bit", went_on
        )
        yield Line(f"trained twice, {name}", "equal" if again else "differs", "to the bit", again)


def _weights(run: Run) -> list[Any]:
    return list(run.model().state_dict().values())  # pyrefly: ignore[missing-attribute]


def curves(place: Place) -> Iterator[Line]:
    """Last of the trainings' checks: it waits for the CPU."""
    run = place.beside(patience=240)
    theirs = json.loads((place.out / "early.json").read_text())
    for name, losses in early(place).items():
        optimiser, bound = EARLY[name]
        apart = max(abs(a - b) / b for a, b in zip(losses, theirs[name], strict=True))
        yield at_most(f"first {len(losses)} losses against the CPU's, {optimiser}, float32, relative", apart, bound)
    for name, ours in (("", place.demo), (" in float32", place.demo_in_float32)):
        a, b = ours.trace, run.trace
        gaps = np.abs(a["val_loss"].values - b["val_loss"].values)
        yield Line(f"held-out loss curve{name} against the CPU's, {len(gaps)} records",
                   f"mean {gaps.mean():.3f}, largest {gaps.max():.3f} nats apart", f"mean at most {LOSS_BAND}",
                   bool(gaps.mean() <= LOSS_BAND))  # fmt: skip
        ends = [float(x["val_loss"][-1]) for x in (a, b)]
        yield Line(f"held-out loss at the end{name}, CPU", f"{ends[0]:.3f}, {ends[1]:.3f}",
                   f"{LOSS_BAND} apart at most", abs(ends[0] - ends[1]) <= LOSS_BAND)  # fmt: skip
        best = [float(x["induction"][-1].max()) for x in (a, b)]
        heads = ["L{}H{}".format(*strongest(x)) for x in (ours, run)]
        yield Line(f"strongest induction score{name}, CPU", f"{best[0]:.2f} {heads[0]}, {best[1]:.2f} {heads[1]}",
                   f"{SCORE_BAND} apart at most", abs(best[0] - best[1]) <= SCORE_BAND)  # fmt: skip
    start = off(place.demo.trace["val_loss"][0], run.trace["val_loss"][0])
    yield at_most("held-out loss before training against the CPU's, relative", start, 1e-5)
