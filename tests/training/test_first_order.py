"""First order: held against finite differences through torch's own optimizers, and a record's own score."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiers import quick
from tests.training.test_which_rows import of_kind
from tracer.config import OptimConfig
from tracer.training import loop
from tracer.training.first_order import before_update, row_derivatives
from tracer.training.head_score import SCORES, HeadScore
from tracer.training.job import Job, forward_backward, hold, load_state, prepare, state_of, update
from tracer.training.optim import build
from tracer.training.probe_recorder import ProbeRecorder

OPTIMS: dict[str, dict[str, Any]] = {
    "sgd": {"momentum": 0.9}, "adamw": {"name": "adamw", "lr": 1e-3},
    "muon": {"name": "muon", "lr": 1e-2, "momentum": 0.9},
    "adamw, clipped": {"name": "adamw", "lr": 1e-3, "clip": 0.05}, "sgd, clipped": {"clip": 0.05},
    "adamw, logits clipped": {"name": "adamw", "lr": 1e-3, "qk_clip": 0.05},
}  # fmt: skip


def begun(directory: Path, **optim: Any) -> Job:
    """A training in float64 after three updates, with the gradients of the fourth."""
    job = prepare(of_kind(directory, optim=optim))
    job.raw.double()
    job.optimizers = build(job.raw, job.config.optim)
    for step in range(3):
        forward_backward(job, step)
        update(job, step)
    forward_backward(job, 3)
    return job


@pytest.mark.parametrize("kind", quick(OPTIMS, ("adamw, clipped", "muon")))
def test_a_gradient_goes_back_through_an_update(tmp_path: Path, kind: str) -> None:
    job = begun(tmp_path / "r", **OPTIMS[kind])
    params = dict(job.raw.named_parameters())
    grads = {name: p.grad.clone() for name, p in params.items()}
    kept = {name: tensor.clone() for name, tensor in state_of(job).items()}
    generator = torch.Generator().manual_seed(0)

    def like(one: torch.Tensor) -> torch.Tensor:
        return torch.randn(one.shape, generator=generator, dtype=one.dtype)

    number = {name: like(p) for name, p in params.items()}
    more = {name: like(p) * 1e-3 for name, p in params.items()}

    def after(share: float) -> float:
        load_state(job, {name: tensor.clone() for name, tensor in kept.items()})
        for name, p in params.items():
            p.grad = grads[name] + share * more[name]
        update(job, 3)
        return sum(float((number[name] * p.detach()).sum()) for name, p in params.items())

    small = 1e-4
    by_hand = (after(small) - after(-small)) / (2 * small)
    after(0.0)
    back = before_update(job, grads, number)
    assert back.keys() == params.keys()
    assert sum(float((back[name] * more[name]).sum()) for name in back) == pytest.approx(by_hand, rel=2e-4)


@pytest.mark.parametrize("kind", quick({"plain": {}, "accumulated": {"accumulate": 2}}, ("accumulated",)))
def test_derivatives_of_rows_are_those_of_their_gradients(tmp_path: Path, kind: str) -> None:
    job = begun(tmp_path / "r", **({"accumulate": 2} if kind == "accumulated" else {}))
    job.left_out = {3: [1]}
    for p in job.raw.parameters():
        p.grad = None
    forward_backward(job, 3)
    params = {name: p.detach().clone() for name, p in job.raw.named_parameters()}
    direction = {name: torch.sin(torch.arange(p.numel())).view_as(p).to(p) for name, p in params.items()}
    found = row_derivatives(job, 3, params, direction)
    whole = sum(float((p.grad * direction[name]).sum()) for name, p in job.raw.named_parameters())
    assert found.shape == (job.config.optim.batch_size,) and float(found[1]) == 0
    assert float(found.sum()) == pytest.approx(whole, rel=1e-5)  # logits are float32
    with torch.no_grad():
        moved = []
        for sign in (1, -1):
            for name, p in job.raw.named_parameters():
                p.copy_(params[name] + sign * 1e-5 * direction[name])
            rows = job.data.train(3, len(found))
            logits = job.raw(rows[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none").sum(1)
            moved.append(loss / rows[:, 1:].numel())
    by_hand = (moved[0] - moved[1]) / 2e-5
    by_hand[1] = 0
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("measure", quick(SCORES, ("induction", "entropy_normalised")))
def test_a_score_is_the_records_and_its_gradient_is_that_of_finite_differences(tmp_path: Path, measure: str) -> None:
    run = loop.train(of_kind(tmp_path / "r"), quiet=True)
    model: Any = run.model(4)
    job = prepare(run.config)
    score = HeadScore(ProbeRecorder(job.raw, run.config.record, job.data), (1, 2), measure)
    assert score.read(model) == pytest.approx(float(run.trace[measure].sel(step=4)[1, 2]), rel=2e-6)
    model = model.double().requires_grad_(True)
    value, found = score.gradient(model)
    assert value == pytest.approx(score.read(model), rel=1e-12)
    direction = {name: torch.cos(torch.arange(p.numel())).view_as(p).to(p) for name, p in model.named_parameters()}
    kept = {name: p.detach().clone() for name, p in model.named_parameters()}
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(kept[name] + sign * 1e-6 * direction[name])
        ends.append(score.read(model))
    along = sum(float((found[name] * direction[name]).sum()) for name in found)
    assert along == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-9)


def test_a_maximum_has_no_first_order(tmp_path: Path) -> None:
    job = prepare(replace(of_kind(tmp_path / "r"), optim=OptimConfig(batch_size=8)))
    hold(job, 0)
    with pytest.raises(ValueError, match="'max_logit' is no mean over rows"):
        HeadScore(ProbeRecorder(job.raw, job.config.record, job.data), (0, 0), "max_logit")
