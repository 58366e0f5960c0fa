"""Events of a run: curves for which no limit was tuned, the highest of many heads, orders in two units, seeds.

What has no change is drawn from processes that the detector's model does not hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr

from benchmarks.truth.attack import Attack
from benchmarks.truth.phases import DEMO, DENSE, Curves
from tracer.analysis import when_causal
from tracer.analysis.order_over_seeds import LINKS, Precedence, share_interval
from tracer.analysis.seeds import why_no_peak
from tracer.analysis.training_curves import course, order
from tracer.measures.change_points import phase_changes

N, PAIRS = 200, 80
FEW = np.arange(0, 2500, 100.0)
GRIDS = (DEMO, DENSE, FEW)
Draw = Callable[[np.random.Generator, Curves], Curves]


def ratio(rng: np.random.Generator, low: float, high: float) -> Curves:
    """One number a curve, its logarithm uniform."""
    return np.exp(rng.uniform(np.log(low), np.log(high), (N, 1)))


def noise(rng: np.random.Generator, u: Curves, more: int = 0) -> Curves:
    return rng.normal(size=(N, u.size + more))


def walk(rng: np.random.Generator, u: Curves, free: float = np.inf) -> Curves:
    steps = noise(rng, u) if free == np.inf else rng.standard_t(free, (N, u.size))
    return steps.cumsum(1)


def means(curves: Curves, width: int) -> Curves:
    return np.lib.stride_tricks.sliding_window_view(curves, width, axis=1).mean(-1)


def slow(curves: Curves, keep: float) -> Curves:
    """Each value keeps a share of the smoothed one before; the first 40 are left out."""
    found = curves.copy()
    for i in range(1, curves.shape[1]):
        found[:, i] = keep * found[:, i - 1] + (1 - keep) * curves[:, i]
    return found[:, 40:]


def second_order(rng: np.random.Generator, u: Curves, radius: float, period: float) -> Curves:
    values = noise(rng, u, 300)
    for i in range(2, values.shape[1]):
        values[:, i] += 2 * radius * np.cos(2 * np.pi / period) * values[:, i - 1] - radius**2 * values[:, i - 2]
    return values[:, 300:]


def logistic(curves: Curves) -> Curves:
    return 1 / (1 + np.exp(-np.clip(curves, -60, 60)))


def mirrored(curves: Curves) -> Curves:
    return 1 - np.abs(np.mod(curves, 2) - 1)


def held(rng: np.random.Generator, u: Curves, step: float) -> Curves:
    """A walk that stays at 0 or 1 until it turns."""
    found, at = np.zeros((N, u.size)), rng.uniform(size=N)
    for i in range(u.size):
        found[:, i] = at = np.clip(at + step * rng.normal(size=N), 0, 1)
    return found


def excursion(rng: np.random.Generator, u: Curves, low: float, high: float) -> Curves:
    start, length = rng.uniform(0.1, 0.5, (N, 1)), rng.uniform(low, high, (N, 1))
    return (u >= start) * (u < start + length) * rng.choice([-1, 1], (N, 1)) + 0.02 * noise(rng, u)


def hump(rng: np.random.Generator, u: Curves) -> Curves:
    return np.exp(-(((u - rng.uniform(0.25, 0.75, (N, 1))) / ratio(rng, 0.03, 0.15)) ** 2)) + 0.02 * noise(rng, u)


def outlying(rng: np.random.Generator, curves: Curves) -> Curves:
    curves[np.arange(N), rng.integers(curves.shape[1], size=N)] += 10 * rng.choice([-1, 1], N)
    return curves


def learned(u: Curves, end: Curves) -> Curves:
    """A learning rate that rises linearly until `end`, summed."""
    return np.where(u < end, u**2 / (2 * end), u - end / 2)


def behind(rng: np.random.Generator, u: Curves, s: float) -> Curves:
    return np.exp(-learned(u, rng.uniform(0.02, 0.12, (N, 1))) / ratio(rng, 0.03, 0.5)) + s * noise(rng, u)


def peak(rng: np.random.Generator, u: Curves) -> Curves:
    end = rng.uniform(0.02, 0.12, (N, 1))
    fall = np.exp(-np.maximum(u - end, 0) / ratio(rng, 0.05, 0.7))
    return np.minimum(u / end, 1) * fall + 0.01 * noise(rng, u)


KINDS: dict[str, list[Draw]] = {
    "walks whose steps have tails: Student's t with 5, 3 and 2 degrees of freedom, Laplace": [
        *(lambda rng, u, free=free: walk(rng, u, free) for free in (5, 3, 2)),
        lambda rng, u: rng.laplace(size=(N, u.size)).cumsum(1),
    ],
    "smoothed walks: means of 5 and 10, exponential means that keep .8 and .9": [
        *(lambda rng, u, w=w: means(noise(rng, u, w - 1).cumsum(1), w) for w in (5, 10)),
        *(lambda rng, u, k=k: slow(noise(rng, u, 40).cumsum(1), k) for k in (0.8, 0.9)),
    ],
    "noise smoothed twice": [lambda rng, u: slow(slow(noise(rng, u, 80), 0.9), 0.9)],
    "AR(2): cycles of 12, 20 and 40 records, and of none": [
        *(lambda rng, u, r=r, p=p: second_order(rng, u, r, p) for r, p in ((0.9, 12), (0.95, 20), (0.97, 40))),
        lambda rng, u: second_order(rng, u, 0.85, np.inf),
    ],
    "scores in [0, 1] that wander: logistic of a walk or of AR(1), mirrored at the ends, held there": [
        *(lambda rng, u, s=s: logistic(rng.normal(0, 2, (N, 1)) + s * walk(rng, u)) for s in (0.2, 0.5, 1)),
        lambda rng, u: logistic(2 * slow(noise(rng, u, 40), 0.9) / 0.23),
        *(lambda rng, u, s=s: mirrored(rng.uniform(size=(N, 1)) + s * walk(rng, u)) for s in (0.05, 0.1)),
        *(lambda rng, u, s=s: held(rng, u, s) for s in (0.05, 0.1)),
    ],
    "noise, or the steps of a walk, that die out": [
        lambda rng, u: np.exp(-u / ratio(rng, 0.03, 0.5)) * noise(rng, u),
        lambda rng, u: (np.exp(-u / ratio(rng, 0.05, 0.5)) * noise(rng, u)).cumsum(1),
    ],
    "spikes and bumps that go back": [
        *(lambda rng, u, a=a, b=b: excursion(rng, u, a, b) for a, b in ((0.03, 0.08), (0.1, 0.4))), hump,
    ],
    "warm-up, then decay: a loss that falls with the learning rate, and a norm that peaks": [
        *(lambda rng, u, s=s: behind(rng, u, s) for s in (0.0, 0.01, 0.05)), peak,
    ],
    "one period of a sine": [
        lambda rng, u: np.sin(2 * np.pi * (u + rng.uniform(size=(N, 1)))),
        lambda rng, u: np.sin(2 * np.pi * (u + rng.uniform(size=(N, 1)))) + 0.05 * noise(rng, u),
    ],
    "one outlier of 10 standard deviations: in white noise, on a walk": [
        lambda rng, u: outlying(rng, noise(rng, u)), lambda rng, u: outlying(rng, walk(rng, u)),
    ],
}  # fmt: skip
ALIKE = [name for name in KINDS if name.startswith(("walks", "smoothed", "noise smoothed", "AR", "scores", "one per"))]
"""Kinds that part no more at one step than at others; all else parts where it jumps, bumps, warms up or dies out."""
LIMITS: dict[str, Draw] = {
    "walks of Cauchy steps": lambda rng, u: walk(rng, u, 1),
    "of Student's t with 1.5": lambda rng, u: walk(rng, u, 1.5),
    "walks summed once more": lambda rng, u: walk(rng, u).cumsum(1),
}
HEADS: dict[str, Draw] = {
    "walks": walk,
    "walks of Student's t with 3": lambda rng, u: walk(rng, u, 3),
    "AR(1) that keeps nine tenths": lambda rng, u: slow(noise(rng, u, 40), 0.9),
    "smoothed walks": lambda rng, u: means(noise(rng, u, 9).cumsum(1), 10),
    "scores that wander": lambda rng, u: logistic(-2 + 0.5 * walk(rng, u)),
}


def attacks() -> Iterator[Attack]:
    yield from no_event()
    yield from highest_of_many()
    yield from dates()
    yield from one_event_twice()
    yield from seeds()


def share_dated(x: Curves, curves: Curves, tried: int = 1) -> float:
    return 100 * float(np.mean([one is not None for one in phase_changes(x, curves, tried=tried)]))


def no_event() -> Iterator[Attack]:
    rng = np.random.default_rng(3)
    for name, draws in KINDS.items():
        rates = [share_dated(x, draw(rng, x / x[-1])) for x in GRIDS for draw in draws]
        yield Attack(
            "A curve without a change is dated at most 5 times in 100, also of kinds for which no limit was tuned",
            "Phases, phase_change", name, f"{np.mean(rates):.1f} %, in the worst of {len(rates)} settings "
            f"{max(rates):.1f} % ({N} curves each; the demo's records, 101 and 25 even ones)", max(rates) <= 5,
        )  # fmt: skip
    said = [
        f"{name} {', '.join(f'{share_dated(x, draw(rng, x / x[-1])):.0f}' for x in GRIDS)} %"
        for name, draw in LIMITS.items()
    ]
    yield Attack(
        "Kinds of which more than 5 in 100 may be dated are named", "phase_change", "what goes beyond that promise",
        f"{'; '.join(said)} (the demo's records, 101 and 25 even ones)", True,
    )  # fmt: skip


def highest_of_many() -> Iterator[Attack]:
    rng = np.random.default_rng(4)
    for name, draw in HEADS.items():
        rates = []
        for x in (DEMO, DENSE):
            drawn = [draw(rng, x / x[-1])[:144] for _ in range(N)]
            last = max(3, x.size // 10)
            highest = np.stack([one[np.median(one[:, -last:], axis=1).argmax()] for one in drawn])
            rates.append(share_dated(x, highest, tried=144))
        yield Attack(
            "Looking at the head that ends highest makes no change", "Phases, training_curves.course",
            f"the highest of 144 heads, none of which changes: {name}",
            f"dated in {rates[0]:.1f} % (the demo's records) and {rates[1]:.1f} % (101 even ones) of {N} models",
            max(rates) <= 5,
        )  # fmt: skip


def dates() -> Iterator[Attack]:
    rng = np.random.default_rng(5)
    u, x = DENSE / DENSE[-1], DENSE
    cases: list[tuple[str, Callable[[Curves], Curves], float]] = [
        ("slows down, an exponential of 2 % of the run", lambda past: 1 - np.exp(-past / 0.02), 0.02 * np.log(2)),
        ("slows down, an exponential of 5 % of the run", lambda past: 1 - np.exp(-past / 0.05), 0.05 * np.log(2)),
        ("comes at once, then decays by a fifth", lambda past: 0.8 + 0.2 * np.exp(-past / 0.1), 0.0),
        ("is a straight line over 10 % of the run", lambda past: np.minimum(past / 0.1, 1), 0.05),
    ]
    for name, shape, middle in cases:
        starts = rng.uniform(0.2, 0.7, (N, 1))
        past = u - starts
        curves = np.where(past >= 0, shape(np.maximum(past, 0)), 0) + 0.01 * noise(rng, u)
        found = [(one, at) for one, at in zip(phase_changes(x, curves), starts[:, 0], strict=True) if one]
        inside = [one.low <= (at + middle) * x[-1] <= one.high for one, at in found]
        width = np.median([one.high - one.low for one, _ in found])
        yield Attack(
            "The 95 % interval of a date holds the middle of a rise that is no logistic", "Phases, phase_change",
            f"a rise that {name}; noise of 1 % of it, 101 records in 2,000 steps",
            f"found {100 * len(found) / N:.0f} %; interval holds the truth {100 * np.mean(inside):.0f} % "
            f"(median width {width:.0f} steps)", bool(np.mean(inside) >= 0.93),
        )  # fmt: skip


def seen(score: Curves, loss: Curves) -> xr.Dataset:
    heads = np.repeat(score[:, None, None], 2, axis=1)
    steps = {"step": np.arange(len(score)) * 10}
    return xr.Dataset(
        {"induction": (("step", "layer", "head"), heads), "repeat_loss": ("step", loss),
         "learning_rate": ("step", np.ones(len(score)))}, steps,
    )  # fmt: skip


def one_event_twice() -> Iterator[Attack]:
    rng, at = np.random.default_rng(6), np.arange(130) * 10.0
    apart, said, causal, right = [], [], [], []
    for _ in range(PAIRS):
        low, high, width = rng.uniform(0.01, 0.1), rng.uniform(0.7, 0.95), rng.uniform(10, 50)
        p, q = (low + (high - low) * logistic((at - mid) / width) for mid in rng.uniform(400, 800, 2))
        errors = 0.004 * rng.normal(size=(2, at.size))
        for other, seen_twice in ((p, True), (q, False)):
            trace = seen(p + errors[0], -np.log(other) + 3 * errors[1])
            score, loss = ({c.name: c for c in course(trace)}[name] for name in ("induction", "repeat_loss"))
            if score.change is None or loss.change is None:
                continue
            found = order(score, loss)
            if seen_twice:
                apart.append(not score.change.overlaps(loss.change))
                said.append(found in ("before", "after"))
            elif found in ("before", "after"):
                middles = [float(np.interp((low + high) / 2, one, at)) for one in (p, q)]
                right.append((found == "before") == (middles[0] < middles[1]))
        sentence = when_causal.sentence("L1H2", at.astype(int), p, np.log(p / p[0]))
        causal.append("rose together" not in sentence)
    yield Attack(
        "One event is one event, seen as a score or as a loss", "Phases, training_curves.order",
        "a score p and a loss of -ln p with noise of their own",
        f"an order is said of {100 * np.mean(said):.0f} % of {len(said)} pairs; the dates in their own units part in "
        f"{100 * np.mean(apart):.0f} %", bool(np.mean(said) <= 0.05),
    )  # fmt: skip
    yield Attack(
        "An order of two curves in two units is right where it is said", "Phases, training_curves.order",
        "a score p and a loss of -ln q, p and q alike but for their middles",
        f"said of {len(right)} of {PAIRS} pairs, right in {100 * np.mean(right):.1f} %", bool(np.mean(right) >= 0.95),
    )  # fmt: skip
    yield Attack(
        "One event is one event, seen as a score or as an effect", "Ablate, when_causal.sentence",
        "a score p and an effect of ln p above its start",
        f"an order is said of {100 * np.mean(causal):.0f} % of {PAIRS} pairs",
        bool(np.mean(causal) <= 0.05),
    )  # fmt: skip


def seeds() -> Iterator[Attack]:
    rng, names = np.random.default_rng(7), ("previous_token", "composition", "induction", "repeat_loss")
    rates: list[str] = []
    worst = 0.0
    for runs in (3, 4, 6, 8, 12, 20):
        dates = rng.random((2000, runs, 4)).argsort(-1)
        called = np.zeros(2000, bool)
        for one, other in LINKS:
            before = (dates[..., names.index(one)] < dates[..., names.index(other)]).sum(1)
            called |= np.array([Precedence(int(b), runs - int(b), 0).p(len(LINKS)) <= 0.05 for b in before])
        worst = max(worst, float(called.mean()))
        rates.append(f"{100 * called.mean():.1f} % of {runs}")
    yield Attack(
        "Seeds without an order have none", "Phases, other seeds; order_over_seeds.Precedence",
        "the four events of a circuit in an order of chance, 2,000 times each: is any of the four orders called?",
        f"{', '.join(rates)} seeds", worst <= 0.05,
    )  # fmt: skip
    by_kind, settings = [], []
    for name in ALIKE:
        here = []
        for x, draw, n in itertools.product(GRIDS, KINDS[name], (3, 5, 10)):
            drawn = draw(rng, x / x[-1])[: N // n * n].reshape(N // n, n, -1)
            here.append(float(np.mean([not why_no_peak(of.var(0, ddof=1), n) for of in drawn])))
        by_kind.append(float(np.mean(here)))
        settings += here
    yield Attack(
        "The variance over seeds seldom has a peak where they part no more at one step than at others",
        "Phases, other seeds; seeds.why_no_peak", f"{'; '.join(ALIKE)}: 3, 5 and 10 runs of a kind",
        f"a peak in {100 * np.mean(by_kind):.1f} % on average, {100 * max(by_kind):.1f} % of the worst kind, "
        f"{100 * max(settings):.0f} % in the worst of {len(settings)} settings (of 20 to 66 sets of runs each)",
        max(by_kind) <= 0.05,
    )  # fmt: skip
    u, found = np.linspace(0, 1, 101), []
    for n in (3, 5, 10):
        when = 0.4 + 0.05 * rng.normal(size=(200, n, 1))
        jumps = 1 / (1 + np.exp(-40 * (u - when))) + 0.01 * rng.normal(size=(200, n, u.size))
        apart = jumps.var(1, ddof=1)
        late = [100 * (u[of.argmax()] - float(np.median(at))) for of, at in zip(apart, when, strict=True)]
        seen = float(np.mean([not why_no_peak(of, n) for of in apart]))
        found.append((seen, float(np.mean(late)), float(np.std(late)), n))
    yield Attack(
        "The peak of the variance over seeds dates their transition", "Phases, other seeds; seeds.why_no_peak",
        "200 times: sigmoids of 101 records, two fifths of the way along, their dates' deviation a twentieth",
        "; ".join(f"of {n} a peak in {100 * seen:.0f} %, {mean:+.1f} +- {sd:.1f} records from their median date"
                  for seen, mean, sd, n in found), all(seen > 0.9 and abs(mean) < 1 for seen, mean, *_ in found),
    )  # fmt: skip
    held = []
    for n, share in itertools.product((3, 5, 10), (0.1, 0.5, 0.8)):
        intervals = [share_interval(int(hits), n) for hits in rng.binomial(n, share, 1000)]
        held.append(float(np.mean([low <= share <= high for low, high in intervals])))
    yield Attack(
        "The interval of a share of seeds holds it 95 times in 100 or more", "Phases, other seeds; share_interval",
        "shares of .1, .5 and .8, 1,000 draws each of 3, 5 and 10 seeds",
        f"holds it in {100 * min(held):.1f} % at least, {100 * np.mean(held):.1f} % on average", min(held) >= 0.94,
    )  # fmt: skip
