"""Attacks on which head is called an induction head: the strongest one, and the numbers of its card."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.truth.attack import Attack
from tracer.ablate import verdict
from tracer.measures.strongest import induction_head
from tracer.model import Transformer
from tracer.presets import PRESETS
from tracer.training.loop import train

UNTRAINED, STEPS = 20, 700
SHARES = ("prefix matching", "copying")
"""Tests of the card whose number is a share."""
LITTLE = 0.02
"""A lead over the control that no one would call a head's job."""


def attacks() -> Iterator[Attack]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        yield from _strongest(Path(folder))


def _strongest(folder: Path) -> Iterator[Attack]:
    leads, fixed, right, asked = [], 0, 0, 0
    toy = PRESETS["induction"].config
    record = replace(toy.record, every=STEPS, snapshot_every=STEPS)
    for seed in range(UNTRAINED):
        settings = replace(toy, run=str(folder / f"u{seed}"), seed=seed, steps=1, device="cpu", record=record)
        trace = train(settings, quiet=True).trace
        score, control = (trace[name].values[0] for name in ("induction", "induction_control"))
        head = induction_head(score, control)
        leads.append(0.0 if head is None else float(score[head] - control[head]))
    run = train(replace(toy, run=str(folder / "toy"), steps=STEPS, device="cpu", record=record), quiet=True)
    model, trace = run.model(), run.trace
    assert isinstance(model, Transformer)
    score, control = (trace[name].values[-1].copy() for name in ("induction", "induction_control"))
    best = induction_head(score, control)
    for layer in range(model.n_layers):
        for head in range(model.n_heads):  # as a head that looks a fixed distance back has it
            held, other = score.copy(), control.copy()
            held[layer, head] = other[layer, head] = 1.0
            asked += (layer, head) != best
            fixed += (layer, head) != best and induction_head(held, other) == (layer, head)
            right += (layer, head) != best and induction_head(held, other) == best
    yield Attack(
        "The strongest induction head stands out against its own control", "the finder, Training, Runs, the log",
        f"{UNTRAINED} untrained models of 8 heads; then the trained one, of which each other head in turn gets the "
        "highest score possible together with a control of the same, as a head has that looks a fixed distance back",
        f"untrained: the head named leads its control by {max(leads):.4f} at most; trained: {fixed} of {asked} such "
        f"heads named, {right} times the one that leads by {score[best] - control[best]:.2f}",
        max(leads) < LITTLE and fixed == 0 and right == asked,
    )  # fmt: skip
    outside = unsure = numbers = 0
    untrained = [Transformer(model.config) for _ in range(3)]
    for one in (model, *untrained):
        for layer in range(one.n_layers):
            for head in range(one.n_heads):
                card = verdict(one, layer, head)
                for test in (test for test in card.tests if test.defines):
                    known = [x for x in (test.value, test.low, test.high, test.chance) if not math.isnan(x)]
                    numbers += len(known)
                    lowest = 0 if test.name in SHARES else -1
                    outside += sum(not lowest <= x <= 1 for x in known)
                    unsure += math.isnan(test.value) and test.passed is not None
    yield Attack(
        "What defines an induction head stays in its range, intervals too, and what was not measured is no failure",
        "the card; tracer.verdict",
        f"every head of a trained and of {len(untrained)} untrained models, {numbers} numbers of 3 tests",
        f"{outside} outside, {unsure} tests passed or failed without a number", outside == unsure == 0,
    )  # fmt: skip
