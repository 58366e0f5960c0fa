"""The Ablate page's proofs: the smallest circuit, and activations patched from one prompt into another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracer.ablate
from dashboard.loading import ablation
from dashboard.views.ablate import data
from tracer import ablate
from tracer.ablate.search import Found, Step
from tracer.data.probes import new_tokens
from tracer.interventions.edits import recording
from tracer.store import Run

CLEAN, CORRUPTED = ((0, 3, 4, 5), (0, 6, 7, 8), (0, 9, 1, 2)), ((0, 4, 3, 7), (0, 7, 6, 3), (0, 1, 9, 30))


def test_the_verdict_of_a_head(small_run: Run) -> None:
    found, expected = data.verdict(small_run, 30, (1, 2)), ablate.verdict(small_run, 1, 2, 30)
    assert (found.headline, found.passed, found.snippet) == (expected.headline, expected.passed, expected.snippet)


@pytest.mark.parametrize(("mode", "frozen"), [("mean", False), ("zero", True)])
def test_a_circuit_with_the_losses_that_it_keeps(
    mode: str, frozen: bool, small_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 steps teach no copying, so what the search would find is given."""
    steps = [Step((0, 1), True, 0.4), Step((1, 3), True, 0.7), Step((0, 1), False, 0.6)]
    given, batches, asked = Found([(1, 3), (1, 0)], 0.6, True, 0.1, steps, 2.0), ablation.batches(small_run), []
    probe, reference = batches.repeat, batches.reference("repeat", mode)

    def search(model: object, tokens: torch.Tensor, *rest: object, **how: object) -> Found:
        asked.append((tokens is probe.tokens, rest, how))
        return given

    monkeypatch.setattr(tracer.ablate, "build_up", search)
    progress: Callable[[int, int], object] = lambda done, of: None  # noqa: E731
    found = data.circuit(small_run, 20, mode, frozen, 0.5, progress)
    assert asked == [(True, (mode,), {"target": 0.5, "progress": progress, "frozen": frozen, "reference": reference})]
    assert (found.heads, found.share, found.reached) == (given.heads, 0.6, True)
    assert found.curve == given.curve and found.choices == [
        ((0, 1), True, 0.4),
        ((1, 3), True, 0.7),
        ((0, 1), False, 0.6),
    ]
    off = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    effect = ablate.effect(small_run.model(20), probe.tokens, off, mode, reference=reference, frozen=frozen)
    for name, losses in enumerate((effect.clean, effect.ablated)):
        assert found.repeated[name] == pytest.approx(float(losses[:, probe.predictable].mean()), abs=1e-5)
        assert found.new[name] == pytest.approx(float(losses[:, new_tokens(probe.period)].mean()), abs=1e-5)
    assert data.circuit(small_run, 20, mode, frozen, 0.5, progress) is found and len(asked) == 1
    data.circuit(small_run, 20, mode, frozen, 0.6, progress)
    assert len(asked) == 2, "another target is another question"


def test_what_patching_restores(small_run: Run) -> None:
    """Heads' outputs of the corrupted run put into the clean one, by hooks on a model of its own."""
    found = data.patched(small_run, 30, CLEAN, CORRUPTED, "z", "clean")
    pairs = [torch.tensor(rows) for rows in (CLEAN, CORRUPTED)]
    with torch.no_grad():
        logits = [small_run.model(30)(tokens)[:, -1] for tokens in pairs]
    right, wrong = (one.argmax(-1) for one in logits)
    assert found.right == right.tolist() and found.wrong == wrong.tolist() and found.right != found.wrong

    def difference(last: torch.Tensor) -> float:
        rows = torch.arange(3)
        return float((last[rows, right] - last[rows, wrong]).mean())

    clean, corrupted = map(difference, logits)
    assert (found.clean, found.corrupted) == pytest.approx((clean, corrupted), abs=1e-5)
    with torch.no_grad(), recording("blocks.0.attn.hook_z") as seen:
        small_run.model(30)(pairs[1])
    given = seen["blocks.0.attn.hook_z"][:, :, 2]
    model: Any = small_run.model(30)

    def replaced(_module: Any, _given: Any, z: torch.Tensor) -> torch.Tensor:
        z = z.clone()
        z[:, :, 2] = given
        return z

    model.blocks[0].attn.hook_z.register_forward_hook(replaced)
    with torch.no_grad():
        patched = difference(model(pairs[0])[:, -1])
    assert found.share[0, 2] == pytest.approx((patched - corrupted) / (clean - corrupted), abs=1e-4)
    assert found.share.shape == (2, 4)
    into = data.patched(small_run, 30, CLEAN, CORRUPTED, "z", "corrupted")
    assert not np.allclose(into.share, found.share)


def test_pairs_that_are_none(small_run: Run) -> None:
    def refused(clean: Any, corrupted: Any) -> str:
        with pytest.raises(ValueError) as error:
            data.patched(small_run, 30, clean, corrupted, "z", "clean")
        return str(error.value)

    assert refused(CLEAN, CORRUPTED[:2]).startswith("3 clean prompts and 2 corrupted ones")
    uneven = (CLEAN[0], CLEAN[1][:3], CLEAN[2])
    assert refused(uneven, CORRUPTED).startswith("line 2 has 3 and 4 tokens, and the first clean prompt 4:")
    assert refused(CLEAN, (*CORRUPTED[:2], CORRUPTED[2][:2])).startswith("line 3 has 4 and 2 tokens")
    short = (*CLEAN[:2], CLEAN[2][:2]), (*CORRUPTED[:2], CORRUPTED[2][:2])
    assert refused(*short).startswith("line 3 has 2 and 2 tokens, and the first clean prompt 4:")
    assert refused(CLEAN, (CORRUPTED[0], CLEAN[1], CLEAN[2])).startswith("line 2: the likeliest next token is the same")
    assert data.LONGEST_PAIR == 64
