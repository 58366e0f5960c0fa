"""The six causes, where the model returns the loss, and where only a sample of its numbers is read at every update."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.watching.test_first_bad import AT, CAUSES, train
from tracer.watching import finite_check


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if "not counted" not in cause])  # only a whole look tells
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("every", [1, 100])
def test_six_causes_in_a_sample(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, cause: str, inside: bool, every: int
) -> None:
    monkeypatch.setattr(finite_check, "SMALL", 0)
    put, kind, where, layer, head, _ = CAUSES[cause]
    with pytest.warns(RuntimeWarning, match=f"not finite at step {AT}, first in {where}"):
        run, made = train(gpt(dropout=0.0), cause, put, "stop", inside, every)
    found = run.meta["divergence"]
    first = found["non_finite"]
    assert (found["step"], found["cause"]) == (AT, kind), found
    assert (first["where"], first["layer"], first["head"]) == (where, layer, head), found
    assert made == AT + 1
