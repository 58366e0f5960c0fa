"""Verdicts follow from figures made by hand, and what cannot be a claim is refused in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracer
from tracer.specimens.paper_verdicts import SeedAnswer, ask, decide, exit_status

NAN = math.nan


def figure(runs: object) -> float:
    return 1.0


def claim(**fields: Any) -> tracer.Claim:
    return tracer.Claim(**dict[str, Any](text="c", needs=("a",), figure=figure, within=(0.0, 1.0)) | fields)


def said(*figures: float, controls: tuple[float, ...] = ()) -> dict[int, SeedAnswer]:
    return {i: SeedAnswer(one, controls[i] if controls else None) for i, one in enumerate(figures)}


CONTROL = tracer.Control("not trivial", figure, (0.0, 1.0))
TOO_SMALL = SeedAnswer(NAN, too_small="no head formed")


@pytest.mark.parametrize(
    ("fields", "seeds", "verdict"),
    [
        ({}, {}, "not tested"),
        ({}, said(0.5), "holds"),
        ({}, said(1.0), "holds"),  # ends are included
        ({}, said(1.1), "fails"),
        ({}, said(NAN), "too close to tell"),
        ({}, said(*[0.5] * 9, 2.0), "holds"),  # 9 of 10
        ({}, said(*[0.5] * 8, 2.0, 2.0), "fails"),
        ({"share": 0.8}, said(*[0.5] * 8, 2.0, 2.0), "holds"),
        ({}, said(*[0.5] * 8, 2.0, NAN), "too close to tell"),  # the unknown one decides
        ({}, said(*[0.5] * 7, 2.0, 2.0, NAN), "fails"),  # and here it could not
        ({"weaker": (0.0, 3.0)}, said(2.0, 2.0, 0.5), "weaker"),
        ({"weaker": (0.0, 3.0)}, said(2.0, 4.0), "fails"),
        ({"weaker": (2.0, 3.0)}, said(0.5), "holds"),
        ({"weaker": (2.0, 3.0)}, said(0.5, 2.5), "weaker"),  # what holds, holds in a weaker form as well
        ({"control": CONTROL}, said(0.5, controls=(0.5,)), "holds"),
        ({"control": CONTROL}, said(0.5, controls=(2.0,)), "fails"),
        ({"control": CONTROL}, said(0.5, controls=(NAN,)), "too close to tell"),
        ({}, {0: TOO_SMALL}, "not at this size"),
        ({}, {0: TOO_SMALL, **said(0, 2.0)}, "fails"),
        ({"order": True}, said(*[0.5] * 5), "not tested"),  # the smallest p of 5 seeds is 0.0625
        ({"order": True}, said(*[0.5] * 6), "holds"),
        ({"order": True}, said(*[2.0] * 6), "fails"),
        ({"order": True}, said(*[0.5] * 5, 2.0), "too close to tell"),
        ({"order": True}, said(*[0.5] * 5, NAN), "too close to tell"),
        ({"order": True}, said(*[0.5] * 8, 2.0), "weaker"),  # p = 0.039, and 8 of 9 are below 90 %
        ({"order": True, "share": 0.8}, said(*[0.5] * 8, 2.0), "holds"),
    ],
)
def test_verdicts(fields: dict[str, Any], seeds: dict[int, SeedAnswer], verdict: str) -> None:
    assert decide(claim(**fields), seeds).verdict == verdict


NOISE = 0.06


@pytest.mark.parametrize(
    ("gaps", "no_worse", "better"),
    [
        ([-1.1 * NOISE], "holds", "holds"),
        ([-0.9 * NOISE], "holds", "too close to tell"),
        ([0.0], "holds", "too close to tell"),
        ([0.9 * NOISE], "too close to tell", "too close to tell"),
        ([1.1 * NOISE], "fails", "fails"),
        ([0.6 * NOISE] * 4, "fails", "fails"),  # four seeds: half the noise
        ([1.1 * NOISE, -1.1 * NOISE], "holds", "too close to tell"),
    ],
)
def test_a_mean_differs_when_seeds_alone_would_not(gaps: list[float], no_worse: str, better: str) -> None:
    for margin, verdict in ((0, no_worse), (1, better)):
        found = decide(claim(within=(None, 0.0), noise=NOISE, margin=margin, unit="nats"), said(*gaps))
        assert (found.verdict, found.counted) == (verdict, len(gaps)) and found.mean is not None
        assert found.mean[0] == pytest.approx(np.mean(gaps))
        assert found.why == f"seeds alone make {NOISE / math.sqrt(len(gaps)):.3f}"
    mirrored = decide(claim(within=(0.0, None), noise=NOISE), said(*[-gap for gap in gaps]))
    assert mirrored.verdict == better


def gap(runs: Any) -> float:
    """As a paper writes that one loss is below another: a run that diverged is worse, and nothing is better than it."""
    ours, theirs = (math.inf if runs[name].status == "diverged" else runs[name].loss for name in "ab")
    return NAN if theirs == math.inf else ours - theirs


@pytest.mark.parametrize(
    ("losses", "verdict", "why"),
    [
        ([(3.0, NAN)], "not tested", "b diverged at step 100: nothing to compare with"),
        ([(NAN, NAN)], "not tested", "a diverged at step 100; b diverged at step 100: nothing to compare with"),
        ([(NAN, 3.0)], "fails", "a diverged at step 100"),
        ([(3.0, NAN), (3.0, 4.0)], "holds", "seeds alone make 0.060; not counted: b diverged at step 100"),
        ([(NAN, 3.0), (3.0, 4.0)], "fails", "a diverged at step 100"),
    ],
)
def test_a_run_that_diverged_is_worse_and_nothing_is_better_than_it(
    losses: list[tuple[float, float]], verdict: str, why: str
) -> None:
    def run(loss: float) -> Any:
        return SimpleNamespace(loss=loss, status="diverged" if math.isnan(loss) else "finished", meta={"step": 100})

    compared = claim(needs=("a", "b"), figure=gap, within=(None, 0.0), noise=NOISE)
    seeds = {i: ask(compared, {"a": run(one), "b": run(other)}) for i, (one, other) in enumerate(losses)}
    found = decide(compared, seeds)
    assert (found.verdict, found.why) == (verdict, why)


def test_several_orders_ask_for_more_seeds() -> None:
    assert decide(claim(order=True), said(*[0.5] * 6), orders=2).verdict == "not tested"
    found = decide(claim(order=True), said(*[0.5] * 7), orders=2)
    assert found.verdict == "holds" and found.p == pytest.approx(2 * 2 / 2**7)
    assert found.share == pytest.approx((0.5904, 1), abs=1e-4)  # 0.025 ** (1 / 7)


def test_a_mean_has_an_interval_from_two_seeds_on() -> None:
    mean = decide(claim(), said(0.0, 1.0, NAN)).mean
    assert mean == pytest.approx((0.5, 0.5 - 12.7062 * 0.5, 0.5 + 12.7062 * 0.5), abs=1e-3)
    one = decide(claim(), said(0.5)).mean
    assert one is not None and one[0] == 0.5 and math.isnan(one[1])
    assert decide(claim(), said(NAN)).mean is None


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (["holds", "holds"], 0),
        (["holds", "fails", "not tested"], 1),
        (["weaker"], 1),
        (["holds", "not tested"], 3),
        (["too close to tell"], 3),
        (["not at this size", "holds"], 3),
        (["error", "holds"], 3),
        (["error", "fails"], 1),
    ],
)
def test_exit_statuses(verdicts: list[Any], status: int) -> None:
    answer = decide(claim(), said(0.5))
    assert exit_status([type(answer)(**{**vars(answer), "verdict": one}) for one in verdicts]) == status


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: claim(needs="a"), ["needs='a' must be a tuple"]),
        (lambda: claim(within=(2.0, 1.0)), ["(2.0, 1.0) must be two ends that rise"]),
        (lambda: claim(weaker=(None, None)), ["two ends that rise"]),
        (lambda: claim(published="0.5"), ["published= and place= go together"]),
        (lambda: claim(noise=0.1, order=True), ["noise=0.1 must", "goes no order, weaker or control"]),
        (lambda: claim(noise=-1.0), ["noise=-1 must be above 0"]),
        (lambda: claim(share=0.4), ["share=0.4 must be above 0.5"]),
        (lambda: tracer.PaperRun("r", tracer.TrainConfig(), {"lr": 3}), ["has lr; it may have corpus, scalars"]),
        (lambda: tracer.PaperRun("r", tracer.TrainConfig(), preset="demi"), ["there is no preset 'demi'"]),
        (
            lambda: tracer.Paper(
                "t", "s", dict.fromkeys("ab", tracer.PaperRun("r", tracer.TrainConfig(), preset="demo")), (claim(),)
            ),
            ["two runs are of the preset demo"],
        ),
        (lambda: tracer.Paper("t", "s", {}, (claim(),)), ["one run and one claim at least"]),
        (
            lambda: tracer.Paper("t", "s", {"b": tracer.PaperRun("r", tracer.TrainConfig())}, (claim(),)),
            ["claim 'c' names a; the runs are b"],
        ),
        (
            lambda: tracer.Paper(
                "t", "s", {"a": tracer.PaperRun("r", tracer.TrainConfig())}, (claim(),), tests=(figure,)
            ),
            ["make it with tracer.head_test"],
        ),
    ],
)
def test_what_cannot_be_a_claim_is_refused(make: Callable[[], object], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert all(word in str(error.value) for word in words)
