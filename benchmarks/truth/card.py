"""Attacks on which head is called an induction head: the strongest one, and the numbers of its card."""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.truth.attack import Attack
from tracer.ablate import verdict
from tracer.ablate.behind_text import BEHIND
from tracer.measures.strongest import induction_head
from tracer.model import Transformer
from tracer.model.protocol import HeadModel
from tracer.presets import PRESETS
from tracer.specimens.paper_folder import load
from tracer.training.loop import train

UNTRAINED, STEPS = 20, 700
FRONT, COPIES = (0, 11, 27, 31), 120
"""Tokens in front of the first copy, and rows, of papers/kawata's own test."""
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
    load("kawata")
    anywhere = importlib.import_module("kawata.copies").ManyAnywhere
    settings = replace(toy, run=str(folder / "anywhere"), steps=900, device="cpu", record=record)
    yield _behind_text(model, train(settings, quiet=True, corpus=anywhere).model())
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


def _behind_text(early: Transformer, anywhere: HeadModel) -> Attack:
    """Models that were trained on copies in the first places and on copies behind 0 to 24 tokens."""
    found = []
    for model in (early, anywhere):
        heads = [(layer, head) for layer in range(model.n_layers) for head in range(model.n_heads)]
        cards = [card for card in (verdict(model, *head) for head in heads) if card.is_induction_head]
        rows = [next(test for test in card.tests if test.name == BEHIND) for card in cards]
        said = sum("but not behind other text" in card.headline for card in cards)
        found.append((rows, said, [_copied(model, front) for front in FRONT]))
    (fail, said, near), (stay, never, all_over) = found
    holds = not any(row.passed for row in fail) and said == len(fail) > 0 and near[0] > 0.9 and near[-1] < 0.05
    holds &= all(row.passed for row in stay) and never == 0 < len(stay) and min(all_over) > 0.5
    copied = "; ".join(" ".join(f"{share:.2f}" for share in of) for of in (near, all_over))
    return Attack(
        "An induction head that works near the start of a row only is said to be none behind other text",
        "the card, behind other text; tracer.verdict",
        "the toy of 700 steps, whose copies begin in the first 30 places, and one of 900 steps behind 0 to 24 random "
        f"tokens; beside the share right in {COPIES} rows of papers/kawata at distance 20, behind "
        f"{', '.join(map(str, FRONT))} tokens",
        f"{sum(row.passed is True for row in fail)} of {len(fail)} induction heads pass (prefix matching "
        f"{max(row.value for row in fail):.2f} at most), and {sum(row.passed is True for row in stay)} of {len(stay)} "
        f"({min(row.value for row in stay):.2f} at least); right {copied}",
        holds,
    )  # fmt: skip


def _copied(model: HeadModel, front: int) -> float:
    """The share of the tokens of a second copy that are the likeliest, by the rows of papers/kawata."""
    copies = importlib.import_module("kawata.copies")
    rows, begins = copies.copied(np.random.default_rng(front), np.full(COPIES, front), np.full(COPIES, 10))
    at = copies.wanted(begins)
    with torch.no_grad():
        said = model(torch.from_numpy(rows[:, :-1])).argmax(-1).numpy()
    return float((np.take_along_axis(said, at - 1, 1) == np.take_along_axis(rows, at, 1)).mean())
