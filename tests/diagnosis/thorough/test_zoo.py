"""Every run of the zoo, sick and healthy: none missed, none false, and no remedy that is in force already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.lessons import SICK as LESSONS
from tests.diagnosis.zoo import HEALTHY, SICK, ZOO, Animal
from tracer.diagnosis import RULES, Finding, Kind, examine
from tracer.store import open_run

IN_FORCE = {
    "sqrt(d_head)": ("model", "attn_scale", lambda value: value != "none"),
    "optim.clip": ("optim", "clip", lambda value: value is not None),
    "optim.warmup": ("optim", "warmup", lambda value: value > 0),
    "model.norm": ("model", "norm", lambda value: value != "none"),
    "nothing decays W": ("optim", "weight_decay", lambda value: value > 0),
    "residual connection": ("model", "residual", bool),
}  # fmt: skip
"""Words of a remedy, and the setting that makes it needless."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


def needless(settings: dict[str, Any], text: str) -> list[str]:
    """The remedies in a text that the run's settings hold already."""
    known = IN_FORCE if settings else {}
    return [word for word, (part, name, holds) in known.items() if word in text and holds(settings[part][name])]


def advice_of(found: list[Finding], animal: Animal) -> list[Finding]:
    return [one for one in found if one.kind in animal.expected]


@pytest.mark.parametrize("animal", ZOO.values(), ids=ZOO)
def test_none_missed_and_none_false(animal: Animal, folder: Path) -> None:
    run = animal.train(folder)
    diagnosis = examine(run)
    kinds = {one.kind for one in diagnosis.findings}
    assert animal.expected <= kinds <= animal.expected | animal.may, diagnosis.findings
    for one in diagnosis.findings:
        text = " ".join(one.advice.texts().values())
        assert needless(run.meta.get("config", {}), text) == []
        assert bool(one.advice.remedy) != (len(one.advice.candidates) > 1 and bool(one.advice.tell))
    about = advice_of(diagnosis.findings, animal)
    if animal.expected:
        assert any(one.advice.remedy for one in about) == animal.remedy, about
        assert any(animal.says in " ".join(one.advice.texts().values()) for one in about), about
    named = [RULES[one.kind].name for one in diagnosis.findings]
    assert set(named) <= set(diagnosis.looked_for) and not set(diagnosis.looked_for) & set(diagnosis.not_measured)


def test_what_a_watched_run_cannot_say_is_said(folder: Path) -> None:
    found = examine(ZOO["watched-healthy"].train(folder, seed=9))
    unknown: tuple[Kind, ...] = ("overfit", "mismatch", "flat", "stands-in", "idle")
    assert found.not_measured == [RULES[kind].name for kind in unknown]


def test_a_run_from_before_counting_was_recorded(folder: Path) -> None:
    run = ZOO["silent-sgd"].train(folder, seed=9)
    file = run.dir / "run.json"
    meta = json.loads(file.read_text())
    assert meta.pop("references")["unigram"] > 2
    file.write_text(json.dumps(meta))
    found = examine(open_run(run.dir))
    assert {one.kind for one in found.findings} == {"dead"} and RULES["unigram"].name in found.not_measured


def test_the_zoo_is_large_and_every_sickness_is_in_it() -> None:
    assert len(SICK) >= 25 and len(HEALTHY) >= 25 and len(ZOO) == len(SICK) + len(HEALTHY)
    assert not any(one.expected or one.may for one in HEALTHY)
    shown = {kind for one in SICK for kind in one.expected} | {kind for kind, _, _ in LESSONS.values()}
    elsewhere = {"idle", "vanishing", "collapse", "mismatch", "flat"}  # a sweep, what rounding may decide, three curves
    assert set(RULES) - shown == elsewhere


@pytest.mark.parametrize(
    ("text", "found"),
    [("divide by sqrt(d_head)", ["sqrt(d_head)"]), ("set optim.clip", []), ("lower the learning rate", [])],
)
def test_a_remedy_that_is_in_force_is_noticed(text: str, found: list[str]) -> None:
    settings = {"model": {"attn_scale": "d_head"}, "optim": {"clip": None}}
    assert needless(settings, text) == found and needless({}, text) == []
