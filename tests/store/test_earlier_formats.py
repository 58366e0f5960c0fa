"""Runs that were made before there was one format: they open, say what they said, resume and fork.

earlier_formats.tar.gz holds runs as commit e39fb599 wrote them, of format 1 (`tracer train`, with a clamp) and of 2 (a
GPT-2 and a `tracer.Transformer` in loops), and said.json, what that commit said of each.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import tracer
from tracer.measures.abilities import Asked
from tracer.store import FORMAT, Run, choosing, open_run
from tracer.store.check import check
from tracer.store.upgrade import upgraded
from tracer.training.loop import fork, resume

KEPT = Path(__file__).with_name("earlier_formats.tar.gz")
NAMES = ("trained", "transformer", "watched")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    with tarfile.open(KEPT) as kept:
        kept.extractall(tmp_path, filter="data")
    return tmp_path


def said(run: Run) -> dict[str, Any]:
    """What a run says of itself, as JSON holds it; no sentences, which may be written anew."""
    about = {name: x for name, x in asdict(run.about).items() if name != "reasons"}
    found = {
        "about": about, "can": [what for what in get_args(Asked) if run.can(what)], "steps": run.steps,
        "settings": choosing.settings(run), "states": run.state_steps, "log": run.log(), "clamp": clamps(run),
        "diagnosis": [[one.kind, one.severity, one.step] for one in tracer.diagnose(run)],
        "references": run.meta.get("references", {}), "damaged": check(run.dir).damaged,
    }  # fmt: skip
    if run.can("prompts"):
        tokens = torch.arange(10)[None] % 7 + 1
        with torch.no_grad():
            output: Any = run.model()(tokens)
        found["logits"] = output.double().mean((0, 2)).tolist()
    return json.loads(json.dumps(found))


def clamps(run: Run) -> list[str]:
    return list(run.meta.get("config", run.meta).get("clamp", []))


@pytest.mark.parametrize("name", NAMES)
def test_they_say_what_they_said(runs: Path, name: str) -> None:
    before, now = json.loads((runs / "said.json").read_text())[name], said(open_run(runs / name))
    np.testing.assert_allclose(now.pop("logits"), before.pop("logits"), rtol=1e-4)
    now["settings"] = {name: now["settings"][name] for name in before["settings"]}  # there are more by now
    assert now == before


def test_training_goes_on_in_today_s_format(runs: Path) -> None:
    """A fork from the kept state of step 6 makes the weights of step 12, and both go on alike.

    Not to the bit: those of step 12 are of the machine that made the file (tests/training resumes to the bit).
    """
    old, before = runs / "trained", open_run(runs / "trained").trace.load()
    assert json.loads((old / "run.json").read_text())["format"] == 1
    fork(old, 6, replace(open_run(old).config, run=str(runs / "forked")), quiet=True)
    for one in (old, runs / "forked"):
        resume(one, steps=14, quiet=True)
    run, forked = open_run(old), open_run(runs / "forked")
    kept = json.loads((old / "run.json").read_text())
    assert kept["format"] == FORMAT and kept["kind"] == "trained" and run.status == "finished"
    assert check(old).damaged == check(runs / "forked").damaged == {}
    now = run.trace.isel(step=slice(before.sizes["step"])).loss_by_position.values
    np.testing.assert_array_equal(now[:-1], before.loss_by_position.values[:-1])
    np.testing.assert_allclose(now, before.loss_by_position.values, rtol=1e-5)  # step 12 is measured anew, here
    mine, theirs = run.resume_state(), forked.resume_state()
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert forked.meta["parent"]["step"] == 6


def test_what_was_edited_by_hand_stays_so(runs: Path) -> None:
    path = runs / "trained" / "run.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    assert list(check(path.parent).damaged) == ["run.json"]


def test_the_loss_of_counting_was_alone_once() -> None:
    old = {"format": 1, "config": {"steps": 7}, "unigram_loss": 2.5}
    now = {"format": FORMAT, "kind": "trained", "bos": 0, "config": {"steps": 7}}
    assert upgraded(old) == now | {"references": {"unigram": 2.5}}
    known = {"references": {"unigram": 2.0, "bigram": 1.0}}
    assert upgraded(old | known) == now | known
    assert upgraded(old | {"unigram_loss": None}) == now
    assert upgraded({"format": 2, "kind": "opened", "bos": None}) == {"format": FORMAT, "kind": "opened", "bos": None}
