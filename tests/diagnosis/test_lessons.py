"""Loops that are wrong in one way each, and loops that are right: what Health says of real watched runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.diagnosis.lessons import SICK, WELL, Lesson
from tests.tiers import quick
from tracer.diagnosis import RULES, examine

ALSO = {
    "a rate of 1": {"one-hot", "vanishing", "collapse", "residual", "updates", "scores", "dead", "uniform"},
    "a tiny rate": {"unigram"},  # true of both: nothing is learned
    "float16": {"unigram", "updates", "frozen"},
    "no step": {"unigram"},
    "minus forgotten": {"one-hot", "scores", "residual", "updates"},  # the loss has no lower end
}  # fmt: skip
"""What is true of it as well."""
USUAL = ("labels not shifted", "a mask one place off", "padding counted", "a rate of 1", "a block frozen", "one batch")
"""What a student's loop is sick with most often, and one of each kind: data, mask, loss, rate, weights."""


@pytest.mark.parametrize("name", quick(SICK, USUAL))
def test_what_is_wrong_in_a_watched_loop_is_named(name: str, tmp_path: Path) -> None:
    kind, says, lesson = SICK[name]
    found = examine(lesson.train(tmp_path / "run"))
    kinds = {one.kind for one in found.findings}
    assert kind in kinds and kinds <= {kind} | ALSO.get(name, set()), found.findings
    (about,) = [one for one in found.findings if one.kind == kind]
    assert says in " ".join(about.advice.texts().values())
    assert bool(about.advice.remedy) != (len(about.advice.candidates) > 1 and bool(about.advice.tell))
    assert RULES[about.kind].name in found.looked_for


@pytest.mark.parametrize("name", quick(WELL, ("usual",)))
def test_a_healthy_watched_loop_gets_no_finding(name: str, tmp_path: Path) -> None:
    assert examine(WELL[name].train(tmp_path / "run")).findings == []


def test_only_what_could_be_seen_was_looked_for(tmp_path: Path) -> None:
    """Without held-out data nobody sees overfitting, in eight updates no batch that comes back, in three records no
    update ratio."""
    found = examine(Lesson(steps=8, every=4).train(tmp_path / "run"))
    unseen = ("overfit", "mismatch", "repeated", "updates", "unigram", "vanishing", "collapse", "stands-in", "idle")
    assert {RULES[kind].name for kind in unseen} <= set(found.not_measured)
    assert {RULES[kind].name for kind in ("divergence", "positions", "scores", "dead")} <= set(found.looked_for)
