"""Changes of curves over training: how often noise is called one, how often one is found, and whether its date holds.

Every curve is drawn here, with a change at a place that is known, or with none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from benchmarks.truth.attack import Attack
from tracer import data
from tracer.data import probes
from tracer.measures.change_points import phase_changes
from tracer.model import Transformer
from tracer.presets import preset

Curves = np.ndarray
DEMO = np.array(sorted({*range(0, 1301, 25), 1, 2, 4, 8, 16}), float)
"""The recorded steps of the demo."""
DENSE = np.arange(0, 2001, 20.0)
N, ROUNDS = 200, 3


def red(rng: np.random.Generator, shape: tuple[int, int], keep: float) -> Curves:
    values = rng.normal(size=shape)
    for i in range(1, shape[1]):
        values[:, i] += keep * values[:, i - 1]
    return values


def decay(rng: np.random.Generator, u: Curves, noise: float) -> Curves:
    curves = np.exp(-u / np.exp(rng.uniform(np.log(0.01), 0, (N, 1))))
    return curves + noise * rng.normal(size=curves.shape)


def two_decays(rng: np.random.Generator, u: Curves, noise: float) -> Curves:
    first, share = np.exp(rng.uniform(np.log(0.01), 0, (N, 1))), rng.uniform(0.1, 0.9, (N, 1))
    second = first * rng.uniform(3, 10, (N, 1))
    curves = share * np.exp(-u / first) + (1 - share) * np.exp(-u / second)
    return curves + noise * rng.normal(size=curves.shape)


def power_law(rng: np.random.Generator, u: Curves, noise: float) -> Curves:
    curves = (u + np.exp(rng.uniform(np.log(0.003), np.log(0.2), (N, 1)))) ** -rng.uniform(0.2, 1.5, (N, 1))
    return curves / np.ptp(curves, axis=1, keepdims=True) + noise * rng.normal(size=curves.shape)


NOISES = (0.0, 0.02, 0.1)
NULLS: dict[str, list[Callable[[np.random.Generator, Curves], Curves]]] = {
    "white noise": [lambda rng, u: rng.normal(size=(N, u.size))],
    "noise that keeps half, or nine tenths, of itself": [
        lambda rng, u, keep=keep: red(rng, (N, u.size), keep) for keep in (0.5, 0.9)
    ],
    "random walks": [lambda rng, u: rng.normal(size=(N, u.size)).cumsum(1)],
    "slow drift, alone, with noise, or as a walk": [
        *(lambda rng, u, s=s: u + s * rng.normal(size=(N, u.size)) for s in NOISES),
        lambda rng, u: u + 0.02 * rng.normal(size=(N, u.size)).cumsum(1),
    ],
    "exponential decay": [lambda rng, u, s=s: decay(rng, u, s) for s in NOISES],
    "two decays, one slower": [lambda rng, u, s=s: two_decays(rng, u, s) for s in NOISES],
    "power laws": [lambda rng, u, s=s: power_law(rng, u, s) for s in NOISES],
}


def change(rng: np.random.Generator, x: Curves, width: float, noise: float) -> tuple[Curves, Curves]:
    """Steps of height 1 that take `width` of the run from 10 % to 90 %, and their middles."""
    middles = x[0] + (x[-1] - x[0]) * rng.uniform(0.2, 0.8, (N, 1))
    steep = 2 * np.log(9) / max(width * (x[-1] - x[0]), 1e-9)
    shapes = 1 / (1 + np.exp(-np.clip((x - middles) * steep, -60, 60)))
    return shapes + noise * rng.normal(size=shapes.shape), middles[:, 0]


def attacks() -> Iterator[Attack]:
    yield from no_change()
    yield from found()
    yield from context_score()


def no_change() -> Iterator[Attack]:
    rng = np.random.default_rng(0)
    for name, draws in NULLS.items():
        rates = [
            100 * float(np.mean([one is not None for one in phase_changes(x, draw(rng, x / x[-1]))]))
            for x in (DEMO, DENSE) for draw in draws
        ]  # fmt: skip
        yield Attack(
            "A curve that has no change is called one at most 5 times in 100", "Phases, phase_change", name,
            f"{np.mean(rates):.1f} %, in the worst of {len(rates)} settings {max(rates):.1f} % ({N} curves each; the "
            f"demo's records and 101 even ones)", max(rates) <= 5,
        )  # fmt: skip


def found() -> Iterator[Attack]:
    rng = np.random.default_rng(1)
    for width, shape in ((0.0, "a step at once"), (0.1, "a sigmoid over 10 % of the run"), (0.25, "over 25 %")):
        for noise in (0.02, 0.08, 0.15, 0.25):
            drawn = [change(rng, DENSE, width, noise) for _ in range(ROUNDS)]
            curves, middles = np.concatenate([one for one, _ in drawn]), np.concatenate([at for _, at in drawn])
            seen = [(one, at) for one, at in zip(phase_changes(DENSE, curves), middles, strict=True) if one]
            power = 100 * len(seen) / (ROUNDS * N)
            held = 100 * float(np.mean([one.low <= at <= one.high for one, at in seen])) if seen else float("nan")
            early = float(np.median([one.onset - (at - width * 1000) for one, at in seen])) if seen else float("nan")
            width_of = float(np.median([one.high - one.low for one, _ in seen])) if seen else float("nan")
            yield Attack(
                "A change is found, and the 95 % interval of its date holds it", "Phases, phase_change",
                f"{shape}, noise of {noise:.0%} of the move, 101 records in 2,000 steps",
                f"found {power:.0f} %; interval holds the truth {held:.0f} % (median width {width_of:.0f} steps); "
                f"onset {early:+.0f} steps off (median of {len(seen)})", held >= 93 and (power >= 80 or noise > 0.1),
            )  # fmt: skip
    curves, middles = change(rng, DENSE, 0.1, 0.08)
    pairs = [
        (a, b, p, q) for a, b, p, q in zip(
            phase_changes(DENSE, curves[::2]), phase_changes(DENSE, curves[1::2]), middles[::2], middles[1::2],
            strict=True,
        ) if a and b
    ]  # fmt: skip
    apart = [((a.high < b.low) == (p < q)) for a, b, p, q in pairs if not a.overlaps(b)]
    yield Attack(
        "A before B is said only where it is so", "Phases, training_curves.order",
        "pairs of sigmoids at places of their own, noise of 8 % of the move",
        f"order said of {len(apart)} of {len(pairs)} pairs, right in {100 * np.mean(apart):.0f} %",
        float(np.mean(apart)) >= 0.95,
    )  # fmt: skip


def context_score() -> Iterator[Attack]:
    """A model that has learned word pairs and no context: 400 steps on text, against 1,500 rows."""
    toy = preset("demo").config
    config = replace(toy, steps=1, seed=0)
    corpus = data.build(config.data, config.model.n_ctx, 0)
    torch.manual_seed(0)
    model = Transformer(replace(config.model, d_vocab=corpus.d_vocab), 0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(200):
        rows = corpus.train(step, 16)
        loss = probes.per_token_loss(model(rows[:, :-1]), rows).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        probe = probes.in_context(corpus.val(1500), corpus.bos)
        late, early = (probe.losses(model(rows[:, :-1], last=probe.width)) for rows in (probe.full, probe.short))
        scores = probes.icl_score(late, early).double().numpy()
        whole = probes.per_token_loss(model(probe.full[:, :-1]), probe.full).double().numpy()
    n_ctx = config.model.n_ctx
    single = whole[:, round(0.98 * n_ctx) - 2] - whole[:, round(0.1 * n_ctx) - 2]
    rng, n = np.random.default_rng(2), config.record.icl_rows
    picks = rng.permutation(1500)[: 1500 // n * n].reshape(-1, n)
    means, errors = scores[picks].mean(1), scores[picks].std(1, ddof=1) / n**0.5
    held = 100 * float(np.mean(np.abs(means - scores.mean()) <= 1.96 * errors))
    yield Attack(
        "The in-context learning score is far surer than what it measures", "Training, Phases, icl_score",
        f"batches of {n} rows against 1,500 held-out rows, after 200 steps on text",
        f"standard error {scores.std() / n**0.5:.3f} nats, {single.std() / 4:.2f} for one token of 16 rows, as it was; "
        f"score {scores.mean():+.3f}; 1.96 standard errors hold it in {held:.0f} % of {len(picks)} batches",
        bool(scores.std() / n**0.5 < 0.1),
    )  # fmt: skip
