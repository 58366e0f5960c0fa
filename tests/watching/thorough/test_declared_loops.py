"""Attention that a person declared, in a recorded training: as if it had been recognised, and never in its way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracer
from tests.hooks.quotients import VOCABULARY, Stack, kind, told
from tests.trainings import tiny
from tests.watching.headless import next_token_loss
from tracer import ablate


def record(model: Any, name: str, before: Any = None, **options: Any) -> list[float]:
    """A loop of 6 updates on rows that repeat; what is done before each is told its step and the recorder."""
    optimizer, dice, losses = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(2), []
    with tracer.watch(model, run=name, every=2, rows=3, **options) as recorder:
        for step in range(6):
            if before is not None:
                before(step, recorder)
            loss = next_token_loss(model, torch.randint(VOCABULARY, (8, 16), generator=dice))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            losses.append(loss.item())
        assert recorder.off is None
    return losses


def test_a_run_has_what_that_of_recognised_attention_has(here: Path) -> None:
    asked: list[bool] = []

    def counted(module: Any, inputs: Any, output: Any) -> Any:
        asked.append(module.training)
        return told(module, inputs, output)

    losses = record(Stack(layer=kind(counted)), "mine", max_logits="every")
    assert asked and not any(asked)  # in no step of the training
    assert losses == record(Stack(), "not-said", max_logits="every") and record(Stack(None), "fused")
    found, expected = tracer.open_run("mine"), tracer.open_run("fused")
    assert found.meta["attends"] == [f"{__name__}:{counted.__qualname__}"] and expected.meta["attends"] == []
    assert [one["name"] for one in found.meta["layers"]] == ["blocks.0", "blocks.1"]
    same = {str(name) for name in expected.trace.variables} - {
        "max_logit",
        "step_ms",
        "tokens_per_second",
        "wall_time",
        "pattern",
    }
    assert {"entropy", "induction_se", "head_grad_norm", "repeat_loss"} <= same == same & set(found.trace.variables)
    for name in sorted(same):
        if expected.trace[name].dtype.kind == "f":
            np.testing.assert_allclose(found.trace[name], expected.trace[name], 1e-4, 1e-5, err_msg=name)
    np.testing.assert_allclose(found.trace.pattern, expected.trace.pattern, atol=2e-3)
    assert np.isnan(found.trace.max_logit).all()


def test_a_function_that_fails_later_is_left_out_from_there(here: Path) -> None:
    now = [0]

    def fails(module: Any, inputs: Any, output: Any) -> Any:
        if now[0] > 2:
            raise RuntimeError("no more")
        return told(module, inputs, output)

    model = Stack(layer=kind(fails))
    model.blocks[0] = type(model.blocks[0]).__mro__[1](None)  # recognised
    with pytest.warns(RuntimeWarning, match="no more. Its heads are left out from here on") as said:
        losses = record(model, "r", lambda step, _: now.__setitem__(0, step))
    assert len([one for one in said if "no more" in str(one.message)]) == 1 and len(losses) == 6
    entropy = tracer.open_run("r").trace.entropy
    there = np.isfinite(entropy.values).all(-1)
    assert there[:, 0].all() and there[0, 1] and not there[-1, 1]


def test_no_clamp_is_held_on_a_pattern_that_is_only_said(here: Path) -> None:
    def hold(step: int, recorder: Any) -> None:
        if step == 3:
            recorder.clamp({"L1H0 z": lambda head: head.z})

    with pytest.raises(
        ValueError, match=r"the pattern of blocks.1 cannot be held, frozen or changed: it is what .*told"
    ):
        record(Stack(layer=kind()), "r", hold)


MINE = """
import torch
import tracer
from tests.hooks.quotients import Quotient, Stack, linear, told

class Linear(Quotient):
    pass

tracer.attends(Linear, told, out="proj")

def make(config):
    return Stack(linear, layer=Linear, layers=config.model.n_layers, vocabulary=config.model.d_vocab)
"""


def test_in_our_own_loop_and_in_the_model_of_its_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that `build` names says it."""
    (here / "declared_mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(here))
    run = tracer.train(tiny(here / "r", steps=8), quiet=True, build="declared_mine:make")
    assert run.status == "finished" and run.meta["attends"] == ["tests.hooks.quotients:told"]
    assert np.isfinite(run.trace.induction).all() and not run.why_not("heads")
    model = run.model(build="declared_mine:make")
    ids = torch.randint(1, 40, (2, 20), generator=torch.Generator().manual_seed(0))
    swept = ablate.sweep(model, ids)
    assert swept.shape == (2, 4) and (swept != 0).all()
    card = ablate.verdict(model, 1, 0)
    assert len(card.tests) >= 4
    with pytest.raises(ValueError, match="the pattern of blocks.1 cannot be held, frozen or changed"):
        ablate.effect(model, ids, [(0, 1)], frozen=True)
    assert float(ablate.effect(model, ids, [(1, 1)], frozen=True).delta.abs().max()) > 0  # nothing comes after it
