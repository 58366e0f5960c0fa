"""Claims on the page of specimens where a run diverged: it is worse than others, and nothing is better than it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dashboard.views.specimens import data as specimens
from dashboard.views.specimens.claims import evidence
from tracer.store import Run


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("multi-head", ("not tested", "multi-head diverged at step 4: nothing to compare with")),
        ("two-blocks", ("fails", "two-blocks diverged at step 4")),
    ],
)
def test_one_of_two_diverged(copy_run: Callable[..., Run], broken: str, expected: tuple[str, str]) -> None:
    runs = {
        name: copy_run(name, **({"status": "diverged", "step": 4} if name == broken else {}))
        for name in ("two-blocks", "multi-head")
    }
    found = {one.claim.text: one for one in specimens.readings(runs)}["two-blocks is better than multi-head"]
    assert (found.verdict, evidence(found)) == expected
