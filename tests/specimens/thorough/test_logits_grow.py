"""The paper on exploding logits in a few steps of training: what grows, what remedies hold, what changes nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tracer
from tests.specimens.test_logits import module


def test_logits_grow_with_the_rate_and_remedies_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps of runs of the paper, on random tokens."""
    monkeypatch.chdir(tmp_path)
    paper, numbers = module("paper"), module("numbers")

    def trained(name: str) -> Any:
        of = paper.runs[name].config
        data = tracer.DataConfig(corpus="repeated-random", vocab_size=32)
        return tracer.train(replace(of, run=name, steps=12, data=data), quiet=True)

    runs = {name: trained(name) for name in ("none-02", "none-30", "clip-30")}
    last = {name: float(numbers.largest(one)[1][-1]) for name, one in runs.items()}
    assert last["none-30"] > 3 * last["none-02"] and last["clip-30"] < 25
    assert numbers.entropy(runs["none-30"]) < numbers.entropy(runs["none-02"])
    held = runs["none-30"].config
    never = tracer.train(replace(held, run="never", optim=replace(held.optim, qk_clip=1e9)), quiet=True)
    assert numbers.same(runs["none-30"].model(), never.model()) == 0
    assert numbers.same(runs["none-30"].model(), runs["clip-30"].model()) > 0.01
    assert numbers.zhai(runs["none-02"].model(), "1 2 3 4 5 6").shape == (2, 4)
