"""`tracer diagnose RUN`: what it prints, and its exit status."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiers import quick
from tracer.diagnosis import RULES, Kind, examine
from tracer.diagnosis.findings import Advice, Diagnosis, Finding
from tracer.diagnosis.words import WIDTH, heads, report
from tracer.presets import preset
from tracer.store import Run
from tracer.training.loop import train


def one(kind: str = "scores", count: int = 1, evidence: str = "it is so") -> Finding:
    places = tuple((0, head) for head in range(count))
    return Finding(kind, "watch", "A title", 1200, places, evidence, Advice("do this"), "ours")  # pyrefly: ignore[bad-argument-type]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, "L0H0"), (2, "L0H0, L0H1"), (9, ", ".join(f"L0H{i}" for i in range(8)) + " and 1 more head")],
)
def test_heads_in_words(count: int, expected: str) -> None:
    assert heads(one(count=count)) == expected


def test_the_report_by_hand() -> None:
    assert report("run", Diagnosis([one()], ["divergence"], ["idle heads"])) == (
        "run: 1 to watch\n\nwatch: A title, since step 1,200, L0H0\n  it is so\n  what helps: do this\n"
        "  source: ours\n\nLooked for divergence.\nNot measured: idle heads."
    )
    unsure = replace(one(), advice=Advice("", ("this", "that"), "look"))
    assert "  it may be: this; or that\n  to tell which: look\n" in report("run", Diagnosis([unsure], [], []))
    assert report("run", Diagnosis([], ["idle heads"], [])) == "run: healthy\n\nLooked for idle heads."
    assert report("run", Diagnosis([], ["divergence"], [])) == "run: not measured\n\nLooked for divergence."


def test_why_adds_the_rule_and_no_line_is_too_long() -> None:
    texts: dict[Kind, str] = {kind: rule.text for kind, rule in RULES.items()}
    text = report("run", Diagnosis([one()], [], [], texts), why=True)
    assert "why: Found when" in text and RULES["scores"].text.split()[-1] in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_name_cannot_write_to_the_terminal() -> None:
    assert "\x1b" not in report("a \x1b[0m run", Diagnosis([one(evidence="a \x1b[31mred\x1b[0m name")], [], []))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a few steps: one healthy, one of which the attention is one-hot."""
    folder = tmp_path_factory.mktemp("diagnose")
    toy = preset("induction").config
    for name, scale in (("well", "d_head"), ("sick", "none")):
        init = toy.model.init if scale == "d_head" else replace(toy.model.init, attn=3.0)
        config = replace(
            toy, run=str(folder / "checkpoints" / name), steps=20, device="cpu",
            model=replace(toy.model, d_model=32, n_ctx=24, attn_scale=scale, init=init),
            data=replace(toy.data, period_min=4, period_max=10), optim=replace(toy.optim, batch_size=8),
            record=replace(toy.record, every=5, snapshot_every=20, val_rows=4),
        )  # fmt: skip
        train(config, quiet=True)
    return folder


@pytest.mark.parametrize(("name", "status"), quick([("well", 0), ("sick", 5)], [("sick", 5)]))
def test_the_command_says_what_the_function_does(folder: Path, name: str, status: int) -> None:
    run = Run(folder / "checkpoints" / name)
    done = subprocess.run(
        [sys.executable, "-m", "tracer", "diagnose", name], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert done.stdout == report(name, examine(run)) + "\n"
    assert ("attention is stuck on one key" in done.stdout) == (name == "sick")


def test_a_run_that_is_not_there_is_one_line_of_error(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tracer", "diagnose", "gone"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
