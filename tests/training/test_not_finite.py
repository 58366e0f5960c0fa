"""Six causes of a NaN in a run of ours, put in between two jobs or into the loss: the first bad value is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tracer
from tests.tiers import quick
from tests.training.test_own_loss import each
from tests.trainings import tiny
from tests.watching.test_first_bad import NanGradient
from tracer.diagnosis.growth import BEFORE
from tracer.files.sealed import pack
from tracer.store.layout import resume_path
from tracer.store.snapshots import load_tensors
from tracer.training import loop
from tracer.training.own_loss import LossBatch

FIRST, AT = 6, 8
"""The update at which weights are changed, and that of which a loss is none."""
State = dict[str, Tensor]


def infinite_w_v(state: State) -> None:
    state["model.blocks.1.attn.W_V"][2, 0, 0] = torch.inf


def huge_w_q_and_w_k(state: State) -> None:
    state["model.blocks.1.attn.W_Q"] *= 1e20
    state["model.blocks.1.attn.W_K"] *= 1e20


def nan_row(state: State) -> None:
    state["model.embed.W_E"][7] = torch.nan


def overflow(state: State) -> None:
    """The first moment of W_Q of layer 0 is huge where the second is nothing."""
    name = "optimizer.0.3.exp_avg"
    state[name].fill_(3e38)
    state[name + "_sq"].zero_()


def no_number(logits: Tensor, batch: LossBatch) -> Tensor:
    return each(logits, batch) * (torch.nan if batch.step == AT else 1)


def no_gradient(logits: Tensor, batch: LossBatch) -> Tensor:
    return each(NanGradient.apply(logits) if batch.step == AT else logits, batch)


STOOD, FORWARD = "which stood there before anything was computed", "in the forward pass"
CAUSES: dict[str, tuple[Callable[[State], None] | None, Any, str, tuple[int, int] | None, int, str]] = {
    "an infinite W_V": (infinite_w_v, None, "blocks.1.attn.W_V" + BEFORE, (1, 2), FIRST, STOOD),
    "W_Q and W_K x 1e20": (huge_w_q_and_w_k, None, "blocks.1.attn.hook_attn_scores", (1, 0), FIRST, FORWARD),
    "a NaN row": (nan_row, None, "embed.W_E" + BEFORE, None, FIRST, STOOD),
    "an overflow in the optimiser": (overflow, None, "blocks.0.attn.W_Q (weight)", (0, 0), FIRST, "in the optimizer's"),
    "loss x NaN": (None, no_number, "loss", None, AT, FORWARD),
    "a NaN gradient": (None, no_gradient, "unembed.W_U (gradient)", None, AT, "in the backward pass"),
}
"""What is put into the state, or the loss; then the place, its head, its step and the part of the step."""


@pytest.mark.parametrize("cause", quick(CAUSES, ("an infinite W_V", "a NaN gradient")))
def test_each_cause_has_its_answer(tmp_path: Path, cause: str) -> None:
    put, loss, where, head, step, part = CAUSES[cause]
    run = loop.train(tiny(tmp_path / "r", steps=FIRST), quiet=True, loss=loss)
    if put is not None:
        path = resume_path(run.dir, FIRST)
        state = {name: tensor.clone() for name, tensor in load_tensors(path).items()}
        put(state)
        path.write_bytes(pack(state))
    run = loop.resume(run.dir, steps=12, quiet=True, loss=loss)
    found = run.meta["divergence"]
    first = found["non_finite"]
    assert run.status == "diverged" and first is not None, found
    assert (first["where"], first["step"]) == (where, step)
    assert head is None or (first["layer"], first["head"]) == head
    finding = tracer.diagnose(run)[0]
    assert finding.kind == "divergence" and part in finding.evidence and f"at step {step}" in finding.evidence
    assert finding.heads == ((head,) if head else ())
    kept = int(finding.evidence.rpartition("are of step ")[2].replace(",", ""))
    weights: Any = run.model(kept)
    assert all(bool(p.isfinite().all()) for p in weights.parameters())
    assert ("writes to this weight" in str(finding.advice)) is where.endswith(BEFORE)
