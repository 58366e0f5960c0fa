"""Probe R and the demo: heads of a fixed distance, periods, the control, and what the start token tells the model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from benchmarks.truth.attack import Attack
from tracer import data
from tracer.ablate.verdict_card import verdict
from tracer.analysis.induction_by_period import induction_by_period
from tracer.data.probes import per_token_loss, repeated
from tracer.data.sources import Mix, Text
from tracer.measures import MEASURES, Setting
from tracer.model import Transformer
from tracer.presets import preset
from tracer.store import Run
from tracer.training.loop import train

PERIODS = (8, 13, 17, 21, 25, 29)
PASSES = 0.4
"""What the card asks of prefix matching."""


def attacks() -> Iterator[Attack]:
    yield _fixed_distances()
    with tempfile.TemporaryDirectory() as folder:
        toy = preset("induction").config
        short = replace(toy, run=f"{folder}/toy", steps=300, data=replace(toy.data, period_min=25, period_max=25))
        yield _one_period(train(short, quiet=True))
        demo = train(replace(preset("demo").config, run=f"{folder}/demo"), quiet=True)
        yield from _of_demo(demo)


def _fixed_distances() -> Attack:
    """Every head that looks one distance back, by brute force over rows, queries and distances."""
    worst, apart = [], 0.0
    for d_vocab, n_ctx in ((1024, 64), (65, 64), (512, 16)):
        probe, best = repeated(d_vocab, n_ctx), 0.0
        for distance in range(1, probe.tokens.shape[1]):
            score = float((probe.periods - 1 == distance).double().mean())
            looked = [
                row[q - distance - 1] == row[q]
                for row in probe.tokens.tolist()
                for q in range(probe.second_copy.start, probe.second_copy.stop)
                if q > distance
            ]
            apart = max(apart, abs(sum(looked) / (len(probe.tokens) * probe.period) - score))
            best = max(best, score)
        worst.append(best)
    return Attack(
        "an induction score is not that of a fixed distance", "Heads, Training, tracer.probes.repeated",
        "heads that look exactly d tokens back, for every d, in 3 settings of context and vocabulary, by brute force",
        f"the best of them scores {max(worst[:2]):.2f} in 64 tokens and {worst[2]:.2f} in 16 (1.00 with one period); "
        f"{PASSES} is needed", max(worst) < PASSES and not apart,
    )  # fmt: skip


def _one_period(run: Run) -> Attack:
    model, last = run.model(), run.trace.isel(step=-1)
    found = induction_by_period(model, PERIODS)
    layer, head = np.unravel_index(found.score[4].argmax(), found.score.shape[1:])
    at = (int(layer), int(head))
    card = verdict(model, *at)
    shown = ", ".join(f"{score:.2f}" for score in found.score[:, *at])
    return Attack(
        "the card calls a head an induction head", "Ablate, tracer.ablate.verdict",
        "tracer train induction --steps 300 --data.period-min 25 --data.period-max 25; its best head at period 25",
        f"L{layer}H{head}: prefix matching {shown} at periods {', '.join(map(str, PERIODS))}, control at 25 "
        f"{found.control[4][at]:.2f}; in the trace {float(last['induction'][at]):.2f}, control "
        f"{float(last['induction_control'][at]):.2f}; the card: {card.headline}",
        not card.is_induction_head and float(last["induction"].max()) < PASSES,
    )  # fmt: skip


def _of_demo(run: Run) -> Iterator[Attack]:
    model, last = run.model(), run.trace.isel(step=-1)
    assert isinstance(model, Transformer)
    layer, head = np.unravel_index(int(last["induction"].values.argmax()), last["induction"].shape)
    at = (int(layer), int(head))
    score, control = float(last["induction"][at]), float(last["induction_control"][at])
    card, found = verdict(model, *at), induction_by_period(model)
    curve, without = found.score[:, *at], found.control[:, *at]
    yield Attack(
        "the demo has an induction head", "Heads, Ablate, tracer demo", "the demo of seed 0 at every period from 2 up",
        f"L{layer}H{head}: {score:.2f} in the trace, control {control:.2f}; {curve.min():.2f} to {curve.max():.2f} at "
        f"periods 2 to {len(curve) + 1}, control at most {without.max():.2f}; the card: {card.headline}",
        card.is_induction_head and score > 0.5 and curve.min() > PASSES and control < 0.1,
    )  # fmt: skip

    brute, chance = _by_hand(model, at)
    error = abs(brute - score)
    yield Attack(
        "the induction score of the trace", "tracer.measures", "by hand in float64, a query at a time",
        f"{brute:.6f} by hand, {score:.6f} in the trace", error < 1e-5,
    )  # fmt: skip
    said = MEASURES["induction"].at_chance(Setting.of(model.d_vocab, model.n_ctx)) or 0.0
    yield Attack(
        "its value at chance", "tracer.measures", "uniform attention on the same rows, a query at a time",
        f"{chance:.6f} by hand, {said:.6f} said", abs(chance - said) < 1e-9,
    )  # fmt: skip

    config = run.config
    held = data.build(config.data, model.n_ctx, config.seed).source
    text = held.main if isinstance(held, Mix) else held
    assert isinstance(text, Text)
    rows, bare = (torch.from_numpy(replace(text, start_token=on).held_out(256)) for on in (True, False))
    probe = repeated(model.d_vocab, model.n_ctx)
    copied = probe.predictable
    losses = [
        float(part.mean())
        for part in (
            _loss(model, rows)[:, 1:-1], _loss(model, bare)[:, 1:-1], _loss(model, probe.tokens)[:, copied],
            _loss(model, probe.tokens[:, 1:])[:, copied.start - 1 : copied.stop - 1],
        )
    ]  # fmt: skip
    first = data.build(config.data, model.n_ctx, config.seed).train(0, 4096)
    share = float((first[:, 0] == 0).double().mean())
    yield Attack(
        "the start token is no cue", "every page that takes a prompt",
        "loss with it and without it, on 256 held-out rows and on Probe R; 4096 rows of training",
        f"text {losses[0]:.2f} with, {losses[1]:.2f} without; repeated tokens {losses[2]:.2f} with, {losses[3]:.2f} "
        f"without (it was 4.74, 3.24, 0.56 and 4.03); {share:.0%} of training rows begin with it",
        share == 1 and losses[1] - losses[0] > -0.1 and abs(losses[3] - losses[2]) < 0.5,
    )  # fmt: skip


@torch.no_grad()
def _loss(model: Transformer, tokens: Tensor) -> Tensor:
    return per_token_loss(model(tokens[:, : model.n_ctx]), tokens)


@torch.no_grad()
def _by_hand(model: Transformer, head: tuple[int, int]) -> tuple[float, float]:
    """The score of a head, and that of uniform attention, from q and k and nothing else of ours."""
    probe = repeated(model.d_vocab, model.n_ctx)
    _, cache = model.run_with_cache(probe.tokens)
    q, k = (cache[f"blocks.{head[0]}.attn.hook_{x}"][:, :, head[1]].double().numpy() for x in "qk")
    masses, even = [], []
    for b, row in enumerate(probe.tokens.tolist()):
        for i in range(2 * probe.period + 1, len(row)):
            weights = np.exp(q[b, i] @ k[b, : i + 1].T * model.config.scale)
            keys = [j for j in range(1, i + 1) if row[j - 1] == row[i]]
            masses.append(weights[keys].sum() / weights.sum())
            even.append(len(keys) / (i + 1))
    return float(np.mean(masses)), float(np.mean(even))
