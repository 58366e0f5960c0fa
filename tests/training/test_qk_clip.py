"""QK-clip: nothing where no logit is too large, to the bit; else exactly the heads whose are, by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainings import tiny
from tracer.config import ModelConfig, OptimConfig, TrainConfig
from tracer.store import Run
from tracer.training import loop
from tracer.training.job import Job, forward_backward, prepare, update
from tracer.training.qk_clip import factors

MODEL = ModelConfig(n_layers=2, n_heads=3, d_model=24, d_head=8, n_ctx=40)


def config(directory: Path, **optim: Any) -> TrainConfig:
    made = replace(tiny(directory), steps=6, model=MODEL)
    record = replace(made.record, every=1, snapshot_every=1, state_every=3)
    return replace(made, record=record, optim=replace(made.optim, **optim))


def weights(run: Run, step: int) -> dict[str, torch.Tensor]:
    model: Any = run.model(step)
    return model.state_dict()


def one_update(directory: Path, **optim: Any) -> tuple[Job, dict[str, np.ndarray]]:
    """The weights before, and the job after its first update."""
    job = prepare(config(directory, **optim))
    before = {name: weight.detach().double().numpy().copy() for name, weight in job.raw.named_parameters()}
    forward_backward(job, 0)
    update(job, 0)
    return job, before


def largest_by_hand(job: Job, w: dict[str, np.ndarray]) -> np.ndarray:
    """[head] of the first layer: q . k / sqrt(d_head) over each token and those before it, one row at a time."""
    rows = job.data.train(0, job.config.optim.batch_size)[:, :-1].numpy()
    found = np.full(MODEL.n_heads, -np.inf)
    for row in rows:
        x = w["embed.W_E"][row] + w["pos_embed.W_pos"][: len(row)]
        x = x / np.sqrt((x**2).mean(1, keepdims=True) + MODEL.norm_eps) * w["blocks.0.ln1.w"]
        for head in range(MODEL.n_heads):
            q, k = (x @ w[f"blocks.0.attn.W_{letter}"][head] for letter in "QK")
            scores = [k[: i + 1] @ q[i] / 8**0.5 for i in range(len(row))]
            found[head] = max(found[head], *(float(s.max()) for s in scores))
    return found


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_heads_whose_logits_are_too_large_are_scaled_down_by_hand(tmp_path: Path, accumulate: int) -> None:
    free, before = one_update(tmp_path / "r", accumulate=accumulate)
    largest = largest_by_hand(free, before)
    low, limit, high = np.sort(largest)
    assert low > 0 and free.largest is None
    job, _ = one_update(tmp_path / "r", accumulate=accumulate, qk_clip=float(limit + high) / 2)
    assert job.largest is not None
    np.testing.assert_allclose(job.largest[0], largest, rtol=1e-5)
    kept, too_large = dict(free.raw.named_parameters()), largest == high
    for name, weight in job.raw.named_parameters():
        by_head = name.endswith(("W_Q", "W_K"))
        if not by_head:
            assert torch.equal(weight, kept[name]), name
        elif name.startswith("blocks.0"):
            gamma = (limit + high) / 2 / high
            assert torch.equal(weight[~too_large], kept[name][~too_large]), name
            torch.testing.assert_close(weight[too_large], kept[name][too_large] * gamma**0.5)
    q, k = (getattr(job.raw.blocks[0].attn, f"W_{letter}").detach().double() for letter in "QK")
    free_q, free_k = (kept[f"blocks.0.attn.W_{letter}"].detach().double() for letter in "QK")
    ratio = (q @ k.mT).norm(dim=(1, 2)) / (free_q @ free_k.mT).norm(dim=(1, 2))
    np.testing.assert_allclose(ratio, np.where(too_large, gamma, 1), rtol=1e-6)


def test_what_is_not_too_large_is_not_touched_to_the_bit(tmp_path: Path) -> None:
    plain, held = (loop.train(config(tmp_path / name, qk_clip=clip), quiet=True)
                   for name, clip in (("plain", None), ("held", 1e4)))  # fmt: skip
    assert plain.steps == held.steps
    for step in plain.steps:
        theirs = weights(held, step)
        assert all(torch.equal(weight, theirs[name]) for name, weight in weights(plain, step).items())
    assert torch.equal(factors(torch.tensor([[2.0, -3.0, float("-inf"), float("nan")]]), 2.0), torch.ones(1, 4))


def test_logits_stay_near_the_limit_and_training_goes_on_to_the_bit(tmp_path: Path) -> None:
    options = {"lr": 0.05, "qk_clip": 1.5, "warmup": 0}
    clipped = loop.train(config(tmp_path / "clipped", **options), quiet=True)
    wild = loop.train(config(tmp_path / "wild", **options | {"qk_clip": None}), quiet=True)
    last, unchecked = (float(run.trace["max_logit"].isel(step=-1).max()) for run in (clipped, wild))
    assert last < 3 < 6 < unchecked
    again = loop.fork(clipped, 3, replace(clipped.config, run=str(tmp_path / "again")), quiet=True)
    theirs = weights(clipped, 6)
    assert all(torch.equal(weight, theirs[name]) for name, weight in weights(again, 6).items())


def test_what_cannot_be_clipped_is_refused() -> None:
    with pytest.raises(ValueError, match="qk_clip reads q and k of each batch, which compile=True hides"):
        OptimConfig(qk_clip=30, compile=True)
    with pytest.raises(ValueError, match="qk_norm=True undoes what optim.qk_clip scales"):
        TrainConfig(model=replace(MODEL, qk_norm=True), optim=OptimConfig(qk_clip=30))
    with pytest.raises(ValueError, match=r"model.sink and optim.qk_clip exclude each other"):
        TrainConfig(model=replace(MODEL, sink="zero"), optim=OptimConfig(qk_clip=30))
    with pytest.raises(ValueError, match="model.attn_softcap and optim.qk_clip both limit the largest logit"):
        TrainConfig(model=replace(MODEL, attn_softcap=30), optim=OptimConfig(qk_clip=30))
    with pytest.raises(ValueError, match="qk_clip=0 must be positive"):
        OptimConfig(qk_clip=0)
    with pytest.raises(ValueError, match=r"qk_clip needs heads whose W_Q and W_K are known.*docs/recording.md"):
        prepare(TrainConfig(optim=OptimConfig(qk_clip=30)), make=lambda filled: torch.nn.Linear(1, 1))
