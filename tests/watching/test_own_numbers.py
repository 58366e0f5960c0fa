"""Numbers that a training loop logs by names of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tests.watching.loops import batches
from tracer.analysis.training_curves import course
from tracer.measures import in_trace
from tracer.measures.own_names import why_no_name
from tracer.store import open_run
from tracer.tracking.own_numbers import EVALUATED, value_of
from tracer.tracking.scalars import Readable

SAID = "does not keep"


def loop(model: Any, recorder: Any, steps: range, log: Callable[[int], dict[str, Any]]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, batch in zip(steps, list(batches())[steps.start :], strict=False):
        optimizer.zero_grad()
        loss = model(batch[:, :-1], batch[:, 1:])[1]
        loss.backward()
        optimizer.step()
        recorder.log(log(step))
        recorder.step(loss)


def test_numbers_stand_at_their_updates_and_in_the_next_record(here: Path, gpt: Callable[..., Any]) -> None:
    told: list[tuple[int, dict[str, float]]] = []

    def log(step: int) -> dict[str, Any]:
        return {"accuracy": torch.tensor(step / 16, requires_grad=True)} | (
            {"mass": np.full((2, 4), step), "depth_mass": [step, -step]} if step % 3 == 0 else {}
        )

    model = gpt()
    with tracer.watch(model, run="r", every=4, on_record=lambda step, flat: told.append((step, flat))) as recorder:
        loop(model, recorder, range(10), log)
        recorder.log({"accuracy": float("inf")})
    run = open_run("r")
    trace = run.trace
    assert recorder.off is None and run.updates is not None
    assert run.updates["accuracy"].values.tolist() == [step / 16 for step in range(10)]
    assert trace["step"].values.tolist() == [0, 1, 2, 4, 8, 10]
    assert trace["accuracy"].values.tolist() == [0, 1 / 16, 2 / 16, 4 / 16, 8 / 16, float("inf")]
    latest = [0, np.nan, np.nan, 3, 6, 9]  # of an array, since the record before
    np.testing.assert_array_equal(trace["mass"].values, np.tile(np.reshape(latest, (6, 1, 1)), (1, 2, 4)))
    np.testing.assert_array_equal(trace["depth_mass"].values, np.outer(latest, [1, -1]))
    assert trace["mass"].dims == ("step", "layer", "head") and trace["accuracy"].attrs["long_name"] == "Accuracy"
    step, flat = told[3]
    assert step == 4 and flat["own/accuracy"] == 0.25 and flat["layer/1/depth_mass"] == -3
    assert flat["attn/L1H2/mass"] == 3 and told[-1][1]["own/accuracy"] == float("inf")
    assert recorder.last == told[-1][1]
    assert [c.name for c in course(trace)][-3:] == ["accuracy", "depth_mass", "mass"]


def test_a_tracker_gets_them_among_what_it_can_show() -> None:
    shown = Readable()({"accuracy": 0.5, "mass": np.arange(4.0).reshape(2, 2), "mass_se": np.ones((2, 2))})
    assert shown == {"own/accuracy": 0.5, "attn/mean/mass": 1.5, "attn/min/mass": 0.0, "attn/max/mass": 3.0}


def test_what_is_said_of_a_number_stands_in_the_trace(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    share = {"label": "Right answers", "unit": "share"}

    def log(step: int) -> dict[str, Any]:
        said = share if step == 0 else {"label": "later"}  # what was said first stays
        return {
            "right": tracer.scalar(torch.tensor(step / 8), range=(0, 1), **said), "plain": step,
            "mass": tracer.scalar(np.full((2, 4), step), label="Mass", range=(0, float("inf"))),
            "odd": tracer.scalar(step, unit="nats", range=(1, 0) if step < 3 else (0, 10**400)),
        }  # fmt: skip

    words = r"leaves range=\(1, 0\) of odd out: it must rise"
    with pytest.warns(RuntimeWarning, match=words) as seen, tracer.watch(model, run="r", every=2) as recorder:
        loop(model, recorder, range(5), log)
    run = open_run("r")
    assert len(seen) == 1 and recorder.off is None and run.updates is not None
    assert run.updates["right"].values.tolist() == [step / 8 for step in range(5)]
    right, plain, mass, odd = (in_trace(run.trace, name) for name in ("right", "plain", "mass", "odd"))
    assert (right.label, right.unit, right.low, right.high) == ("Right answers", "share", 0, 1)
    assert (plain.label, plain.unit, plain.low, plain.high) == ("Plain", "", None, None)
    assert (mass.label, mass.low, mass.high) == ("Mass", 0, None) and run.trace["mass"].values[2, 1, 3] == 2
    assert (odd.label, odd.unit, odd.low, odd.high) == ("Odd", "nats", None, None)
    assert right.source == plain.source == "recorder.log" and right.formula == "Logged by the training loop"


def test_what_cannot_be_kept_is_said_once_and_the_training_goes_on(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    bad = {"val_loss": 1.0, "train loss": 1.0, "why": "words", "wide": [1, 2, 3], "cube": np.zeros((1, 1, 1))}
    with pytest.warns(RuntimeWarning, match=SAID) as seen, tracer.watch(model, run="r", every=2) as recorder:
        loop(model, recorder, range(5), lambda step: {**bad, "x": [1.0, 2.0] if step == 4 else 1.0})
    words = [str(one.message) for one in seen if SAID in str(one.message)]
    assert recorder.off is None and len(words) == len(bad) + 1
    assert all(sum(f"keep {name}:" in text.replace("'", "") for text in words) == 1 for name in [*bad, "x"])
    assert "recorder.evaluated" in words[0] and open_run("r").trace["x"].values[:3].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "why"),
    [("accuracy", ""), ("val_loss", "evaluated"), ("entropy", "every run"), ("step", "every run"), ("a_se", "every"),
     ("2x", "letters"), ("a b", "letters"), ("ä", "letters"), (3, "letters"), ("a" * 81, "80")],
)  # fmt: skip
def test_names(name: Any, why: str) -> None:
    said = EVALUATED.get(name) or why_no_name(name)
    assert (why in said) if why else said == ""


@pytest.mark.parametrize("given", [True, np.float32(1), torch.tensor(1), torch.tensor(1.0, dtype=torch.bfloat16)])
def test_numbers(given: Any) -> None:
    assert value_of(given) == 1.0


@pytest.mark.parametrize("given", [None, "1", [[1], [1, 2]], 10**400, object()])
def test_no_numbers(given: Any) -> None:
    with pytest.raises(ValueError, match="neither a number nor an array"):
        value_of(given)
