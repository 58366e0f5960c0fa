"""Sigma-reparametrisation: an update is that of autograd through gamma V / sigma(V); training goes on to the bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tests.tiers import quick
from tests.trainings import tiny
from tracer.config import ModelConfig, OptimConfig, TrainConfig
from tracer.model import Transformer
from tracer.store import Run
from tracer.training import loop, optim
from tracer.training.job import prepare
from tracer.training.sigma_reparam import SigmaReparam, matrix

MODEL = ModelConfig(n_layers=2, n_heads=3, d_model=24, d_head=8, n_ctx=40, mlp_hidden=(20,), attn_gate=True)
TOKENS = torch.randint(0, 13, (3, 9), generator=torch.Generator().manual_seed(0))


def config(directory: Path, **changes: Any) -> TrainConfig:
    made = replace(tiny(directory), steps=6, model=MODEL)
    record = replace(made.record, every=3, snapshot_every=3, state_every=3)
    return replace(made, record=record, optim=replace(made.optim, reparam="sigma", **changes))


def weights(run: Run, step: int) -> dict[str, torch.Tensor]:
    model: Any = run.model(step)
    return model.state_dict()


def test_an_update_is_that_of_autograd_through_the_product() -> None:
    """By plain gradient descent at a rate of 0.1, in float64, of every weight of the model."""
    model = Transformer(replace(MODEL, d_vocab=13), seed=1).double()
    reparam = SigmaReparam(model)
    learned = {name: p.detach().clone().requires_grad_() for name, p in reparam.learned(model)}
    u, v = ({name: getattr(part, side).clone() for name, part in reparam.parts.items()} for side in "uv")
    assert len(u) == 2 * 7 and all(name in u for name in ("blocks.0.attn.W_gate", "blocks.1.mlp.W_in"))

    def product(name: str, like: torch.Tensor) -> torch.Tensor:
        V = learned[name]
        W = learned[f"{name}.gamma"] * V / (u[name] @ V @ v[name])
        heads = W.unflatten(0, like.shape[:2]) if name.endswith("W_O") else W.unflatten(1, (-1, like.shape[-1]))
        return W if like.ndim == 2 else heads if name.endswith("W_O") else heads.transpose(0, 1)

    for _ in range(2):
        made = {n: product(n, p) if n in u else learned[n] for n, p in model.named_parameters()}
        loss = torch.func.functional_call(model, made, (TOKENS,)).sin().sum()
        grads = torch.autograd.grad(loss, list(learned.values()))
        optimizers = optim.build(model, OptimConfig(name="sgd", lr=0.1, momentum=0, weight_decay=0), reparam)
        model(TOKENS).sin().sum().backward()
        reparam.pull_back()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        reparam.update()
        with torch.no_grad():
            for p, grad in zip(learned.values(), grads, strict=True):
                p -= 0.1 * grad
            for name in u:
                v[name] = (learned[name].T @ u[name]) / (learned[name].T @ u[name]).norm()
                u[name] = (learned[name] @ v[name]) / (learned[name] @ v[name]).norm()
        for name, p in model.named_parameters():
            wanted = product(name, p) if name in u else learned[name]
            torch.testing.assert_close(p, wanted, atol=1e-12, rtol=1e-10)
            assert p.grad is None
    assert any(abs(float(part.gamma.detach()) - 1) > 1e-3 for part in reparam.parts.values())


def test_a_training_begins_at_1_and_gamma_is_the_largest_singular_value(tmp_path: Path) -> None:
    run = loop.train(config(tmp_path / "r"), quiet=True)
    plain = Transformer(replace(MODEL, d_vocab=run.meta["d_vocab"]), run.config.seed).state_dict()
    state = run.state(6)
    for name, weight in weights(run, 0).items():
        if f"reparam.{name}.gamma" not in state:
            assert torch.equal(weight, plain[name]), name
            continue
        first, last = (torch.linalg.matrix_norm(matrix(name, w), 2) for w in (weight, weights(run, 6)[name]))
        assert float(first) == pytest.approx(1, abs=1e-5)
        torch.testing.assert_close(weight, plain[name] / torch.linalg.matrix_norm(matrix(name, plain[name]), 2))
        assert float(last) == pytest.approx(float(state[f"reparam.{name}.gamma"]), rel=0.01)
    assert tracer.diagnose(run) is not None


@pytest.mark.parametrize("name", quick(["adamw", "muon"], ("muon",)))
def test_it_goes_on_to_the_bit(tmp_path: Path, name: Any) -> None:
    whole = loop.train(config(tmp_path / "whole", name=name), quiet=True)
    fork = loop.fork(whole, 3, replace(whole.config, run=str(tmp_path / "fork")), quiet=True)
    loop.train(replace(config(tmp_path / "part", name=name), steps=3), quiet=True)
    part = loop.resume(tmp_path / "part", steps=6, quiet=True)
    assert fork.meta["parent"]["optimizer"] == "continued"
    wanted = weights(whole, 6)
    for other in (fork, part):
        assert all(torch.equal(weight, wanted[name]) for name, weight in weights(other, 6).items())


def test_a_training_that_goes_on_with_it_begins_as_the_same_function(tmp_path: Path) -> None:
    plain = loop.train(replace(config(tmp_path / "plain"), optim=OptimConfig(batch_size=4)), quiet=True)
    fork = loop.fork(plain, 3, replace(config(tmp_path / "fork"), run=str(tmp_path / "fork")), quiet=True)
    assert fork.meta["parent"]["optimizer"] == "fresh"
    assert all(torch.equal(weight, weights(plain, 3)[name]) for name, weight in weights(fork, 3).items())
    gamma = fork.state(3)["reparam.blocks.0.attn.W_Q.gamma"]
    wanted = torch.linalg.matrix_norm(matrix("W_Q", weights(plain, 3)["blocks.0.attn.W_Q"]), 2)
    assert float(gamma) == pytest.approx(float(wanted), rel=1e-5) and abs(float(gamma) - 1) > 0.1


def test_where_it_is_not_followed_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reparam=sigma makes W_Q and W_K anew, which qk_clip scales"):
        OptimConfig(reparam="sigma", qk_clip=30)
    with pytest.raises(ValueError, match=r"optim.reparam=sigma is of the matrices of our blocks, .* your own"):
        prepare(TrainConfig(optim=OptimConfig(reparam="sigma")), make=lambda filled: torch.nn.Linear(1, 1))
    run = loop.train(config(tmp_path / "r"), quiet=True)
    with pytest.raises(ValueError, match="optim.reparam=sigma stands between the gradients of rows and the weights"):
        tracer.which_rows(run, 3, (0, 1))
