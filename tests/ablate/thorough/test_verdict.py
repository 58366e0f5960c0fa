"""What takes long of tests/ablate/test_verdict.py."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import torch

from tests.ablate.test_verdict import (
    CTX,
    VOCAB,
    induction_circuit,
    needs_two_back,
    run,  # noqa: F401
)
from tracer.ablate import verdict
from tracer.data import probes
from tracer.export.to_huggingface import to_huggingface
from tracer.huggingface.loading import load_hf
from tracer.huggingface.wrapped import WrappedModel
from tracer.store import Run


def test_the_snippet_computes_the_card_again(run: Run) -> None:
    found = verdict(run, 1, 0, sequences=8)
    done = subprocess.run(
        [sys.executable, "-c", found.snippet], capture_output=True, text=True, cwd=run.dir,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[3])}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(found)
    assert "it's one at step 30 is not an induction head" in found.headline and "step=30" in found.snippet


def test_a_head_that_looks_a_fixed_distance_back_is_none() -> None:
    """On rows of one period it looks like one; on mixed periods it does not, and the control says why."""
    model = induction_circuit()
    second = model.blocks[1].attn
    second.W_Q[0], second.W_K[0] = 0, 0
    second.W_Q[0, 27:78], second.W_K[0, 27:78] = 200 * torch.eye(CTX).double().roll(-7, 1), torch.eye(CTX).double()
    one_period = probes.repeated(VOCAB, CTX, at=8).tokens
    on_one = verdict(model, 1, 0, tokens=one_period).tests[0]
    assert on_one.passed and "no control" in on_one.sentence and "always looking 7 back" in on_one.sentence
    prefix = verdict(model, 1, 0).tests[0]
    assert not prefix.passed and prefix.value < 0.3 and "where nothing repeats" in prefix.sentence


def test_partners_are_none_where_the_control_breaks_as_much() -> None:
    """A set is found, and without what it brings from two tokens back even more of the prefix matching goes."""
    partners = verdict(needs_two_back(induction_circuit(partners=2)), 1, 0).tests[4]
    assert 0.5 < partners.low < partners.value < partners.chance <= 1 and "No set of" not in partners.sentence
    assert partners.passed is False


def test_a_trained_model_of_transformers_gets_the_card_of_its_run(
    trained_toy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    run = Run(trained_toy)
    to_huggingface(run, tmp_path / "theirs")
    model, theirs = run.model(), load_hf(str(tmp_path / "theirs"))
    for head in ((1, 0), (1, 1), (0, 0)):
        ours, other = verdict(model, *head), verdict(theirs, *head)
        assert isinstance(theirs, WrappedModel) and ours.is_induction_head == other.is_induction_head == (head[0] == 1)
        assert [test.passed for test in ours.tests] == [test.passed for test in other.tests]
        assert ours.partners == other.partners
        for mine, same in zip(ours.tests, other.tests, strict=True):
            assert same.value == pytest.approx(mine.value, abs=1e-3, nan_ok=True), mine.name
