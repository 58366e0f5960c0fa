"""The six causes, where the model returns the loss, and where only a sample of its numbers is read at every update."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tests.watching.loops import batches
from tests.watching.test_first_bad import AT, CAUSES, huge_w_q_and_w_k, train
from tracer.store import open_run
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


def test_what_had_grown_is_compared_with_the_last_finite_record(here: Path, gpt: Callable[..., Any]) -> None:
    with pytest.warns(RuntimeWarning, match=r"c_attn.weight had grown 8.\de\+19-fold since the record of step 10"):
        train(gpt(dropout=0.0), "W_Q and W_K x 1e20", huge_w_q_and_w_k)


def test_a_loop_that_skips_an_update_with_a_bad_loss_is_recorded_on(here: Path, gpt: Callable[..., Any]) -> None:
    model: Any = gpt(dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tracer.watch(model, run="r", every=2) as recorder:
        for step, batch in enumerate(batches(8)):
            loss = model(batch[:, :-1], batch[:, 1:])[1] * (torch.nan if step == 4 else 1.0)
            if bool(loss.isfinite()):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            recorder.step(loss)
    run = open_run("r")
    assert recorder.off is None and run.status == "finished" and run.trace["step"].values.tolist() == [0, 1, 2, 4, 6, 8]
    assert run.updates is not None and run.updates["train_loss"].isnull().values.tolist() == [i == 4 for i in range(8)]


def test_weights_that_were_overwritten_are_no_layer_0(here: Path, gpt: Callable[..., Any]) -> None:
    """A closure runs the backward pass inside the optimiser's step: nobody can look between them."""
    model: Any = gpt(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.warns(RuntimeWarning, match="not finite at step 3, first in layer unknown"),
        tracer.watch(model, run="r", every=2) as recorder,
    ):
        for step, batch in enumerate(batches(6)):

            def closure(step: int = step, batch: torch.Tensor = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(batch[:, :-1], batch[:, 1:])[1] * (torch.nan if step == 3 else 1.0)
                loss.backward()
                return loss

            recorder.step(optimizer.step(closure))
    run = open_run("r")
    found = run.meta["divergence"]
    assert (found["step"], found["non_finite"]["layer"], found["cause"]) == (3, None, "unknown")
    assert "layer unknown" in tracer.diagnose(run)[0].evidence
