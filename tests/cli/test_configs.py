"""Settings from a file, and many from one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tracer.cli.configs import many, read
from tracer.config import TrainConfig
from tracer.config.fields import to_dict
from tracer.presets import PRESETS

DEMO = PRESETS["demo"].config


@pytest.mark.parametrize(
    ("name", "text", "preset", "expected"),
    [
        ("a.yaml", "steps: 5\noptim:\n  lr: 1e-3\n", None,
         replace(TrainConfig(), steps=5, optim=replace(TrainConfig().optim, lr=1e-3))),
        ("b.yaml", "preset: demo\nrun: mine\nclamp: [L0H1 off]\nmodel: {dropout: 0.1}\n", "demo",
         replace(DEMO, run="mine", clamp=("L0H1 off",), model=replace(DEMO.model, dropout=0.1))),
        ("run.json", json.dumps({"format": 1, "preset": "demo", "step": 3,
                                 "config": to_dict(replace(DEMO, run="old", seed=7))}), "demo", replace(DEMO, seed=7)),
        ("words.yaml", "optim: {precision: no, compile: true}\n", None,
         replace(TrainConfig(), optim=replace(TrainConfig().optim, precision="no", compile=True))),
    ],
)  # fmt: skip
def test_a_file_says(name: str, text: str, preset: str | None, expected: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert read(tmp_path / name)[:2] == (expected, preset)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [", "not readable"), ("steps", "holds no settings"), ("stpes: 3", "no field stpes; it has run, steps"),
        ("preset: demon", "'demon' is not one of"), ("optim: {lr: fast}", "c.yaml: "), ("model: 3", "c.yaml: "),
        ("!!python/object/apply:os.system ['true']", "not readable"), ("preset: [demo]", "is not one of demo"),
        ("{format: 1, config: null}", "no configuration of ours"), ("{format: 2, kind: watched}", "did not make"),
        ("steps: {a: 1}", "must be a whole number"),
    ],
)  # fmt: skip
def test_a_file_that_says_nothing_of_use(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "c.yaml")


def test_every_combination_has_a_name_of_its_own() -> None:
    found = list(many(DEMO, "demo", (0, 1), ["optim.lr=1e-3,0.01", "model.n-layers=2"]))
    assert [(one.run, one.seed, one.optim.lr, one.model.n_layers) for one in found] == [
        ("demo-lr-0.001-n_layers-2-0", 0, 1e-3, 2), ("demo-lr-0.001-n_layers-2-1", 1, 1e-3, 2),
        ("demo-lr-0.01-n_layers-2-0", 0, 1e-2, 2), ("demo-lr-0.01-n_layers-2-1", 1, 1e-2, 2),
    ]  # fmt: skip
    assert [one.run for one in many(DEMO, "demo", (), ["data.corpus=a/b,c"])] == [
        "demo-corpus-a-b-0",
        "demo-corpus-c-0",
    ]
    assert [one.optim.precision for one in many(DEMO, "demo", (), ["optim.precision=no,bf16"])] == ["no", "bf16"]
    assert [one.run for one in many(DEMO, "mine/hot", (), ["steps=3"])] == ["mine/hot-steps-3-0"]
    with pytest.raises(ValueError, match="optim.lr=1,2"):
        list(many(DEMO, "demo", (), ["optim.lr=1", "optim.lr=2"]))
    for wrong, message in (
        ("optim.lr", "write optim.lr=1e-3,3e-3"),
        ("optim.lrr=1", "no field lrr"),
        ("steps.x=3", "must be a whole"),
        ("seed=1,2", "write --seeds 1 2"),
        ("run=a,b", "write --run NAME"),
        ("data.corpus=a/b,a-b", "two of these runs would be called demo-corpus-a-b-0"),
    ):
        with pytest.raises(ValueError, match=message):
            list(many(DEMO, "demo", (), [wrong]))
