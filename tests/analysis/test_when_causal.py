"""Before, with or after: what is said of two curves that are known."""

from __future__ import annotations

import numpy as np
import pytest

from tracer.analysis import when_causal
from tracer.analysis.when_causal import Rise

STEPS = [0, 10, 20, 30, 40]
EARLY, LATE, FLAT = [0.0, 0.5, 0.9, 1.0, 1.0], [0.0, 0.0, 0.0, 0.4, 1.0], [0.01, 0.0, 0.02, 0.01, 0.02]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (EARLY, Rise(10, 1.0, 0, 20)),
        (LATE, Rise(40, 1.0, 20, 40)),
        (FLAT, Rise(None, 0.02)),
        ([0.0, 0.9, 0.0, 0.9, 1.0], Rise(30, 1.0, 20, 30)),  # what fell back has not passed yet
        ([1.0, 1.0, 1.0, 1.0, 1.0], Rise(None, 1.0)),  # it was there from the start
        ([0.0, 0.9, 1.0, 0.4, 0.02], Rise(None, 0.02)),  # it came and went
        ([0.0, -0.5, -1.0, -1.0, -1.0], Rise(None, -1.0)),
        ([np.nan, 0.0, np.nan, 0.9, 1.0], Rise(30, 1.0, 10, 30)),
    ],
)
def test_the_step_from_which_a_curve_is_past_half_of_its_end(values: list[float], expected: Rise) -> None:
    assert when_causal.rise(STEPS, values, least=0.05) == expected


def test_a_curve_of_nothing_has_no_rise() -> None:
    found = when_causal.rise([0, 1], [np.nan, np.nan], 0.1)
    assert found.step is None and np.isnan(found.final)


@pytest.mark.parametrize(
    ("score", "effect", "said"),
    [
        (EARLY, LATE, "score rose before its effect: the score from step 0 to 20 (final 1.00), the effect from step 20 "
         "to 40 (final +1.00 nats)."),
        (LATE, EARLY, "score rose after its effect"),
        (EARLY, EARLY, "score and its effect rose together: the score from step 0 to 20"),
        (EARLY, [0.0, 0.05, 0.3, 0.7, 1.0], "score and its effect rose together"),  # it begins where the other is half
        (FLAT, LATE, "its induction score never rose (it ends at 0.02)"),
        (EARLY, FLAT, "alone never came to cost much (it ends at +0.02 nats)"),
        (FLAT, [0.0, 0.0, 0.0, 0.0, -0.5], "rose in neither: its score ends at 0.02, its effect at −0.50 nats"),
    ],
)  # fmt: skip
def test_the_sentence(score: list[float], effect: list[float], said: str) -> None:
    found = when_causal.sentence("L1H2", STEPS, score, effect)
    assert found.startswith("L1H2") and said in found


@pytest.mark.parametrize(
    ("score", "effect", "said"),
    [
        (0.11, 0.06, "rose together"),
        (0.09, 0.06, "never rose"),
        (0.11, 0.04, "never came to cost"),
        (0.09, 0.04, "in neither"),
    ],
)
def test_what_counts_as_a_rise(score: float, effect: float, said: str) -> None:
    assert said in when_causal.sentence("L1H2", [0, 10], [0, score], [0, effect])


@pytest.mark.parametrize("low", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("width", [20, 60, 150])
def test_one_event_seen_as_a_probability_and_in_nats_is_one_event(low: float, width: int) -> None:
    """A score p and an effect of ln(p / its first value) nats, or of -ln(1 - p): each has its middle elsewhere."""
    steps = np.arange(0, 1000, 10)
    p = low + (0.95 - low) / (1 + np.exp(-(steps - 500) / width))
    for effect in (np.log(p / p[0]), -np.log(1 - p)):
        assert "score and its effect rose together" in when_causal.sentence("L1H2", steps, p, effect)
        assert "score and its effect rose together" in when_causal.sentence("L1H2", steps, effect, p)
    later = low + (0.95 - low) / (1 + np.exp(-(steps - 800) / min(width, 20)))
    if width == 20:
        assert "rose before its effect" in when_causal.sentence("L1H2", steps, p, np.log(later / later[0]))


def test_heads_that_deceive() -> None:
    score, effect = [[0.41, 0.41, 0.39, 0.39]], [[0.24, 0.26, 0.24, 0.26]]
    assert when_causal.lookalikes(score, effect) == [(0, 0)] and when_causal.hidden(score, effect) == [(0, 3)]

    score, effect = [[0.9, 0.9], [0.1, np.nan]], [[0.1, 3.0], [2.0, 1.0]]
    assert when_causal.lookalikes(score, effect) == [(0, 0)]
    assert when_causal.hidden(score, effect) == [(1, 0)]
