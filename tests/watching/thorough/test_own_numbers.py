"""Numbers that a training loop logs by names of its own: what the first tier leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracer
from tests.watching.test_own_numbers import SAID, loop
from tracer.store import open_run


def test_a_number_outside_the_range_that_was_said_is_told_once_and_kept(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()

    def log(step: int) -> dict[str, Any]:
        return {
            "share": tracer.scalar(5.0 if step >= 3 else 1.00001, range=(0, 1)),
            "mass": tracer.scalar(np.full((2, 4), -2.0 if step == 1 else 0.5), range=(0, None)),
            "fine": tracer.scalar(float("nan") if step == 2 else 1.0, range=(0, 1)),
            "open": tracer.scalar(9.0),
        }

    with pytest.warns(RuntimeWarning, match="range=") as seen, tracer.watch(model, run="r", every=2) as recorder:
        loop(model, recorder, range(6), log)
    run = open_run("r")
    assert recorder.off is None and run.updates is not None
    assert [str(one.message) for one in seen] == [
        "mass is -2, and its range= says 0 to inf: it is kept as it is",
        "share is 5, and its range= says 0 to 1: it is kept as it is",
    ]
    assert run.updates["share"].values.tolist()[2:4] == [1.00001, 5.0]


def test_an_array_that_no_name_here_knows_is_left_as_it_is(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.measures.own_names.TAKEN", set())  # as of a run of a later version
    model = gpt()
    with pytest.warns(RuntimeWarning, match=SAID) as seen, tracer.watch(model, run="r", every=2) as recorder:
        loop(model, recorder, range(5), lambda step: {"prompt_tokens": 1.0, "x": 1.0})
    assert len(seen) == 1 and "prompt_tokens: this run has" in str(seen[0].message) and recorder.off is None
    assert open_run("r").trace["prompt_tokens"].dims == ("prompt", "query_pos")


def test_a_job_that_goes_on_goes_on_with_them(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    with pytest.raises(KeyError), tracer.watch(model, run="r", every=2) as recorder:
        loop(model, recorder, range(6), lambda step: {"accuracy": step})
        raise KeyError
    with tracer.watch(model, run="r", every=2, start_step=4) as recorder:
        loop(model, recorder, range(4, 8), lambda step: {"accuracy": -step} | ({"new": step} if step > 5 else {}))
    run = open_run("r")
    assert run.updates is not None and run.updates["accuracy"].values.tolist() == [0, 1, 2, 3, -4, -5, -6, -7]
    assert run.trace["accuracy"].values.tolist() == [0, 1, 2, -4, -6, -7]
    np.testing.assert_array_equal(run.trace["new"].values, [np.nan] * 4 + [6, 7])


def test_what_no_record_comes_after_is_said(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    recorder = tracer.watch(model, run="r", every=4)
    loop(model, recorder, range(7), lambda step: {"accuracy": step, "mass": [step, step]})
    with pytest.warns(RuntimeWarning, match="kept no mass of what was logged last"):  # accuracy stands at its update
        recorder.close(KeyError("a mistake"))
