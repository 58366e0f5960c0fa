"""Gradient norms before and after clipping, beside the same ones taken by hand in the loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tracer
from tests.tiers import quick
from tests.watching.loops import batches
from tracer.store import open_run

LIMIT = 0.05
SCALE = 2.0**12
KINDS = [
    "no clip", "norm", "value", "by hand", "accumulation", "scaler", "scaler, norm", "fused scaler", "two optimizers",
    "closure", "imported before",
]  # fmt: skip


def whole(model: nn.Module, over: float = 1.0) -> list[float]:
    """The norm of every gradient, in float64."""
    grads = [torch.zeros(1) if p.grad is None else p.grad for p in model.parameters()]
    return [float((g.double() / over).square().sum().sqrt()) for g in grads]


def total(norms: Any) -> float:
    return float(np.linalg.norm(np.asarray(norms, np.float64)))


def train(gpt: Callable[..., Any], kind: str) -> tuple[Any, list[list[float]], list[list[float]]]:
    """A loop of one kind, recorded at every step, and both norms by hand."""
    clip = nn.utils.clip_grad_norm_
    model, before, after = gpt(dropout=0.0), [], []
    params = list(model.parameters())
    optimizer: Any = torch.optim.SGD(params, lr=0.1)
    if kind == "fused scaler":
        optimizer = torch.optim.Adam(params, lr=1e-3, fused=True)
    if kind == "two optimizers":
        optimizer = torch.optim.SGD(params[:3], lr=0.1)
    other = torch.optim.SGD(params[3:], lr=0.1) if kind == "two optimizers" else None
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE) if "scaler" in kind else None
    scale = SCALE if scaler else 1.0
    recorder = tracer.watch(model, run=kind.replace(" ", ""), every=1)
    for batch in batches(3):
        x, y = batch[:, :-1], batch[:, 1:]

        def backward(x: Tensor = x, y: Tensor = y) -> Tensor:
            for part, target in [(x[:2], y[:2]), (x[2:], y[2:])] if kind == "accumulation" else [(x, y)]:
                loss = model(part, target)[1]
                (scaler.scale(loss) if scaler else loss).backward()
            before.append(whole(model, scale))
            if scaler and kind != "fused scaler":
                scaler.unscale_(optimizer)
            if kind in ("norm", "scaler, norm", "accumulation", "two optimizers", "closure"):
                nn.utils.clip_grad_norm_(params, LIMIT)
            if kind == "imported before":
                clip(params, LIMIT)
            if kind == "value":
                nn.utils.clip_grad_value_(params, 1e-3)
            if kind == "by hand":
                for p in params:
                    p.grad.mul_(0.25)
            after.append(whole(model, scale if kind == "fused scaler" else 1.0))
            return loss

        model.zero_grad()
        if kind == "closure":
            optimizer.step(lambda: (model.zero_grad(), backward())[1])
        else:
            backward()
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
        if other is not None:
            optimizer.zero_grad()
            other.step()
        recorder.step()
    recorder.close()
    assert recorder.off is None
    return open_run(kind.replace(" ", "")).trace, before, after


@pytest.mark.parametrize("kind", quick(KINDS, ("no clip", "closure", "scaler")))
def test_both_norms_are_those_by_hand(here: Path, gpt: Callable[..., Any], kind: str) -> None:
    trace, before, after = train(gpt, kind)
    np.testing.assert_allclose(trace["grad_norm"][:-1], before, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(trace["grad_norm_clipped"][:-1], after, rtol=1e-5, atol=1e-9)
    factors = [min(1.0, total(b) / total(a)) for a, b in zip(before, after, strict=True)]
    np.testing.assert_allclose(trace["clip_factor"][:-1], factors, rtol=1e-5)
    clipped = kind not in ("no clip", "scaler", "fused scaler")
    assert (trace["clip_factor"][:-1] < 0.5).all() if clipped else (trace["clip_factor"][:-1] == 1).all()
    assert np.isnan(trace["grad_norm"][-1]).all() and np.isfinite(trace["update_ratio"][:-1].sum())


def test_a_step_that_a_scaler_skips_has_no_gradient(here: Path, gpt: Callable[..., Any]) -> None:
    model, scaler = gpt(dropout=0.0), torch.amp.GradScaler("cpu", init_scale=2.0**120)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = tracer.watch(model, run="skipped", every=1)
    for batch in batches(2):
        optimizer.zero_grad()
        scaler.scale(model(batch[:, :-1], batch[:, 1:])[1] * 1e8).backward()
        scaler.step(optimizer)
        scaler.update(SCALE)
        recorder.step(1.0)
    recorder.close()
    trace = open_run("skipped").trace
    assert np.isnan(trace["grad_norm"][0]).all() and np.isnan(float(trace["clip_factor"][0]))
    assert np.isfinite(trace["grad_norm"][1]).all() and float(trace["clip_factor"][1]) == 1


def test_a_linear_map_that_is_never_called_is_no_part_of_a_head(here: Path, gpt: Callable[..., Any]) -> None:
    """Beside those that are, and before them."""
    model = gpt(dropout=0.0)
    attn = model.h[0].attn
    attn._modules = {"unused": nn.Linear(24, 72), **attn._modules}
    batch = next(batches(1))
    with tracer.watch(model, run="r", every=1) as recorder:
        model(batch[:, :-1], batch[:, 1:])[1].backward()
        recorder.step()
    assert recorder.off is None and np.isfinite(open_run("r").trace["head_weight_norm"]).all()


def test_weights_may_be_frozen_on_the_way(here: Path, gpt: Callable[..., Any]) -> None:
    """Gradual freezing: the backward pass is the loop's own, and a frozen weight has no gradient."""
    model = gpt(dropout=0.0)
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1), tracer.watch(model, run="frozen", every=1)
    for step, batch in enumerate(batches(4)):
        if step == 2:
            model.ln_f.weight.requires_grad_(False)
        optimizer.zero_grad()
        loss = model(batch[:, :-1], batch[:, 1:])[1]
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    assert recorder.off is None and not any(p._post_accumulate_grad_hooks for p in model.parameters())
    norms = open_run("frozen").trace["grad_norm"].sel(param="ln_f.weight").values[:4]
    assert (norms[:2] > 0).all() and norms[3] == 0
