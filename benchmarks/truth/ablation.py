"""Attacks on ablation: what is put in a head's place, how sure an effect is, and the card of an induction head."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.truth.attack import Attack
from tracer import data
from tracer.ablate import effect, estimate, losses, null, verdict
from tracer.ablate.parts import name
from tracer.ablate.planner import reference_z
from tracer.data.probes import ProbeR, per_token_loss, repeated
from tracer.interventions.edits import Edit, applied
from tracer.measures.aliases import Head
from tracer.model import Transformer
from tracer.presets import PRESETS
from tracer.store import Run
from tracer.training.loop import train

BATCHES, LARGE, STEPS = 300, 4096, 700
MANY = 3000
"""Batches of few sequences, which cost little: what the intervals hold is then known to half a per cent."""
LOW, HIGH = 0.93, 0.97
FEW = 100
"""Steps at which no induction exists yet."""


def attacks() -> Iterator[Attack]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        toy = PRESETS["induction"].config
        record = replace(toy.record, every=FEW, snapshot_every=FEW)
        run = train(replace(toy, run=str(Path(folder) / "toy"), steps=STEPS, device="cpu", record=record), quiet=True)
        model = run.model()
        assert isinstance(model, Transformer)
        with torch.no_grad():
            yield from _mean(model)
            yield from _card(run, model)
            yield _random_sets(model)
            yield from _coverage(model)
            yield from _coverage_of_sets(model)
        yield from _coverage_of_text(Path(folder))


def _rows(model: Transformer, n: int, seed: int) -> ProbeR:
    return repeated(model.d_vocab, model.n_ctx, seed=seed, batch=n)


def _heads(model: Transformer) -> list[Head]:
    return [(layer, head) for layer in range(model.n_layers) for head in range(model.n_heads)]


def _changes(
    model: Transformer, probe: ProbeR, mode: str, sets: list[list[Head]] | None = None, **how: Any
) -> np.ndarray:
    """Change in loss of each sequence with each head off, or each of these sets, [set batch]."""
    sets = [[], *(sets or ([head] for head in _heads(model)))]
    found = losses(model, probe.tokens, sets, mode, **how)[..., probe.predictable].mean(-1).double()
    return (found[1:] - found[0]).numpy()


def _mean(model: Transformer) -> Iterator[Attack]:
    """The head for which it matters most, by edits of its own, against the mean over a large batch."""
    large, small = _rows(model, LARGE, 1), [_rows(model, 32, seed) for seed in range(100, 120)]
    tap, head = "blocks.0.attn.hook_z", int(_changes(model, small[0], "zero")[: model.n_heads].mean(1).argmax())
    mean = reference_z(model, large.tokens)[tap].mean(0, keepdim=True)

    def cost(probe: ProbeR, instead: Tensor) -> float:
        clean = per_token_loss(model(probe.tokens), probe.tokens)
        with applied([Edit(tap, (head,), instead=instead)]):
            after = per_token_loss(model(probe.tokens), probe.tokens)
        return float((after - clean)[:, probe.predictable].mean())

    truth = cost(large, mean)
    with_itself, others, by_hand, wide = [], [], [], []
    for probe in small:
        z = reference_z(model, probe.tokens)[tap]
        with_itself.append(cost(probe, z.mean(0, keepdim=True)))
        by_hand.append(cost(probe, torch.stack([z[np.arange(32) != row].mean(0) for row in range(32)])))
        others.append(effect(model, probe.tokens, [(0, head)], "mean").over(probe.predictable).mean)
        reference = _rows(model, 256, int(probe.tokens.sum())).tokens
        wide.append(effect(model, probe.tokens, [(0, head)], "mean", reference=reference).over(probe.predictable).mean)
    apart = max(abs(one - other) for one, other in zip(others, by_hand, strict=True))
    yield Attack(
        "Mean ablation puts the mean of the other sequences in place", "tracer.ablate.effect, mode mean",
        "the mean over the other 31 rows, taken row by row by hand, 20 batches of 32",
        f"largest difference {apart:.1e} nats", apart < 1e-5,
    )  # fmt: skip
    yield Attack(
        "A mean over few sequences is a replacement of its own: pages average 8 times as many", "Ablate",
        f"L0H{head} against the mean over {LARGE} sequences, 20 batches of 32",
        f"truth {truth:.3f} nats; with 256 sequences {np.mean(wide):.3f}, with the other 31 {np.mean(others):.3f}, "
        f"with the row itself among 32 {np.mean(with_itself):.3f}", bool(abs(np.mean(wide) - truth) < 0.05 * truth),
    )  # fmt: skip


def _coverage(model: Transformer) -> Iterator[Attack]:
    """Of one head: each batch is drawn anew, with the reference that a page would give it."""
    large = _rows(model, LARGE, 1)
    modes = [(mode, frozen) for frozen in (False, True) for mode in ("zero", "mean", "resample")]
    for n, (mode, frozen) in itertools.product((8, 32), modes):
        others = None if mode == "zero" else _rows(model, 2 * LARGE, 7).control
        truth, held = _changes(model, large, mode, frozen=frozen, reference=others).mean(1), []
        batches = MANY if n == 8 else BATCHES
        for batch in range(batches):
            wide = _rows(model, 8 * n, 10**6 + batch).control if mode != "zero" else None
            found = _changes(model, _rows(model, n, 1000 + batch), mode, frozen=frozen, reference=wide, seed=batch)
            held.append(_holds(found, truth))
        what = f"{mode}{', frozen patterns' if frozen else ''}, {n} sequences"
        yield _covered(what, f"{batches} batches, every head, truth from {LARGE} sequences", held)


def _coverage_of_sets(model: Transformer) -> Iterator[Attack]:
    """Heads that are off together, each batch a part of one large sample; what zero does to a row is its own."""
    probe, rng = _rows(model, LARGE, 2), np.random.default_rng(0)
    pairs = [[(0, head), (1, head)] for head in range(model.n_heads)]
    layers = [[(layer, head) for head in range(model.n_heads)] for layer in range(model.n_layers)]
    changes = _changes(model, probe, "zero", sets=[*pairs, *layers])
    for n in (8, 32):
        drawn = [rng.choice(LARGE, n, replace=False) for _ in range(BATCHES)]
        yield _covered(
            f"sets of two and of all heads of a layer, {n} sequences", f"{BATCHES} batches, {len(changes)} sets, truth "
            f"from {LARGE} sequences", [_holds(changes[:, rows], changes.mean(1)) for rows in drawn],
        )  # fmt: skip


def _coverage_of_text(folder: Path) -> Iterator[Attack]:
    """Rows evenly spread over held-out text, as pages have them: each batch begins a little further on."""
    config = PRESETS["demo"].config
    record = replace(config.record, every=STEPS, snapshot_every=STEPS)
    run = train(replace(config, run=str(folder / "text"), steps=STEPS, device="cpu", record=record), quiet=True)
    model, n_rows = run.model(), 4 * LARGE
    assert isinstance(model, Transformer)
    tokens = data.build(config.data, config.model.n_ctx, config.seed).val(n_rows)
    with torch.no_grad():
        found = losses(model, tokens, [[], *([head] for head in _heads(model))], "zero").mean(-1).double()
    changes = (found[1:] - found[0]).numpy()
    for n in (16, 64):
        apart = n_rows // n
        starts = np.linspace(0, apart - 1, min(BATCHES, apart)).astype(int)
        yield _covered(
            f"zero, {n} rows of held-out text", f"{len(starts)} batches of rows as far apart, every head of the demo "
            f"after {STEPS} steps, truth from {n_rows} rows",
            [_holds(changes[:, start::apart], changes.mean(1)) for start in starts],
        )  # fmt: skip


def _holds(found: np.ndarray, truth: np.ndarray) -> list[bool]:
    """Is the truth in the interval of a batch, of each change [set batch]?"""
    return [e.low <= true <= e.high for e, true in zip(map(estimate, found), truth, strict=True)]


def _covered(what: str, how: str, held: list[list[bool]]) -> Attack:
    each = np.mean(held, 0)
    return Attack(
        f"95 % interval of an effect: {what}", "Ablate, the card; tracer.ablate.estimate", how,
        f"holds the truth {each.mean():.1%} of the times (single ones {each.min():.1%} to {each.max():.1%})",
        bool(LOW <= each.mean() <= HIGH),
    )  # fmt: skip


def _card(run: Run, model: Transformer) -> Iterator[Attack]:
    early = run.model(FEW)
    assert isinstance(early, Transformer)
    cards = [verdict(early, *head) for head in _heads(early)]
    sure = sum(all(one.low > 0 for one in card.effects.values()) for card in cards)
    passed = sum(card.tests[3].passed is True for card in cards)
    yield Attack(
        "A head is needed for repetition only where repetition gains something", "the card, ablation",
        f"a model of {FEW} steps, before induction: {len(cards)} heads",
        f"{passed} pass; of {sure} the intervals of all replacements exclude 0", passed == 0,
    )  # fmt: skip
    cards = {head: verdict(model, *head) for head in _heads(model)}
    found = [card for card in cards.values() if card.is_induction_head]
    parts = [card.tests[4] for card in found]
    yield Attack(
        "The card finds the heads of the last layer, and none of the first", "the card",
        f"every head of a toy that learned induction, {STEPS} steps",
        f"{len(found)} of {model.n_heads} in layer 1, {sum(card.head[0] == 0 for card in found)} of {model.n_heads} in "
        f"layer 0; copying {min(c.tests[1].value for c in found):.2f} and more, of layer 0 at most "
        f"{max(c.tests[1].value for h, c in cards.items() if h[0] == 0):.2f} (chance 0.5)",
        {card.head for card in found} == {(1, head) for head in range(model.n_heads)},
    )  # fmt: skip
    yield Attack(
        "Partners that share the work are found as a set", "the card, previous-token partners",
        "what the set brings from one token back cut from the head's keys; control: from two tokens back",
        "; ".join(
            f"{' '.join(map(name, card.partners))}: {part.value:.2f} gone, control {part.chance:.2f}"
            for card, part in zip(found, parts, strict=True)
        ), all(part.passed for part in parts),
    )  # fmt: skip


def _random_sets(model: Transformer) -> Attack:
    probe = _rows(model, 8, 3)
    found = [null(model, probe.tokens, [(1, head)]) for head in range(model.n_heads)]
    return Attack(
        "The p-value of random sets stands beside the smallest that is possible", "Ablate; tracer.ablate.null",
        "each head of a layer against all others: p must be each of 1/4 .. 4/4 once",
        f"p = {', '.join(f'{p:.2f}' for p in sorted(one.p for one in found))}; smallest possible {found[0].smallest_p}",
        sorted(one.p for one in found) == [0.25, 0.5, 0.75, 1.0] and found[0].smallest_p == 0.25,
    )  # fmt: skip
