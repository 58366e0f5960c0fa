"""Who trains with our loop hears of each record and finding while it goes on, and may stop it."""

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracer
from tests.trainings import tiny
from tracer.store import Run
from tracer.tracking.telling import Telling
from tracer.training import loop

Heard = list[tuple[int, dict[str, float]]]


def checked(heard: Heard, run: Run, steps: list[int]) -> None:
    """All that was heard is what the trace says of these steps."""
    assert [step for step, _ in heard] == steps
    for step, flat in heard:
        row = run.trace.sel(step=step)
        assert flat["loss/train"] == pytest.approx(float(row["train_loss"]))
        for layer, head in np.ndindex(row["induction"].shape):
            said = flat[f"attn/L{layer}H{head}/induction"]
            assert said == pytest.approx(float(row["induction"][layer, head]), rel=1e-6)


def hot(folder: Path) -> Any:
    """A rate at which scores leave the softmax in a few updates; nothing of it is not finite for long."""
    config = tiny(folder, steps=100_000)
    return replace(config, optim=replace(config.optim, lr=0.3, clip=1.0))


def kinds(run: Run) -> list[str]:
    return [json.loads(line)["kind"] for line in (run.dir / "findings.jsonl").read_text().splitlines()]


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Telling", functools.partial(Telling, share=1.0))


@tracer.rule(needs=("entropy",), severity="bad", text="Found at each step.")
def always(trace: Any) -> Any:
    yield int(trace.step[-1]), [(0, 1)], "as ever"


@tracer.rule
def broken(trace: Any) -> Any:
    yield 0, [], trace.nowhere


def test_rules_of_ones_own_are_looked_for_while_it_trains(tmp_path: Path, looks_often: None) -> None:
    told: list[Any] = []
    with pytest.warns(RuntimeWarning, match="broken raised AttributeError.*: the rule broken is left out from") as said:
        run = loop.train(
            tiny(tmp_path / "a", steps=8), quiet=True, on_finding=told.append, rules=[f"{__name__}:always", broken]
        )
    own = [(one.kind, one.severity, one.heads, one.evidence) for one in told if one.kind == "always"]
    assert len(said) == 1 and own == [("always", "bad", ((0, 1),), "as ever")] and kinds(run).count("always") == 1
    again = loop.resume(run.dir, steps=12, quiet=True, on_finding="stop", rules=always)
    assert again.status == "stopped" and again.meta["step"] < 12
    config = replace(run.config, run=str(tmp_path / "b"), steps=16)
    assert loop.fork(run, 8, config, quiet=True, on_finding="stop", rules=always).status == "stopped"
    with pytest.raises(ValueError, match="rules=math:pi: make it with tracer.rule"):
        loop.train(tiny(tmp_path / "c", steps=8), quiet=True, rules=["math:pi"])
    assert not (tmp_path / "c").exists()


def test_what_cannot_be_told_is_refused_before_anything_is_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="track='nobody' is not one of"):
        loop.train(tiny(tmp_path / "a"), quiet=True, track="nobody")
    assert not (tmp_path / "a").exists()
    run = loop.train(tiny(tmp_path / "b", steps=4), quiet=True)
    before = run.meta
    with pytest.raises(ValueError, match="rules"):
        loop.resume(run.dir, steps=6, quiet=True, rules="nosuch:x")
    assert run.meta == before
