"""What Lightning's callback makes of each call of its hooks; whole trainings are in the second tier."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tracer
from tests.watching.loops import batches
from tracer.store import open_run
from tracer.watching import callbacks


class Lit(nn.Module):
    """A module around a model, and something without parameters beside it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.drop, self.net = nn.Dropout(), net


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The callback, of a base that has nothing to do: importing Lightning takes seconds."""
    base = SimpleNamespace(Callback=type("Callback", (), {}))
    monkeypatch.setattr(callbacks, "importlib", SimpleNamespace(import_module=lambda name: base))
    return callbacks._lightning_callback()


def a_trainer(here: Path) -> SimpleNamespace:
    return SimpleNamespace(
        global_step=0, accumulate_grad_batches=2, should_stop=False, sanity_checking=False, callback_metrics={},
        default_root_dir=str(here), saved=[],
    )  # fmt: skip


def update(callback: Any, trainer: Any, module: Any, optimizer: Any, n: int, factor: float = 1.0) -> float:
    """Two micro-batches and a step; the mean of their losses."""
    losses = []
    for i, batch in enumerate(batches(2 * n + 2)):
        if i >= 2 * n:
            loss = factor * module.net(batch[:, :-1], batch[:, 1:])[1]
            losses.append(float(loss.detach()))
            (loss / 2).backward()
            if i % 2:
                callback.on_before_optimizer_step(trainer, module, optimizer)
                optimizer.step()
                optimizer.zero_grad()
                trainer.global_step += 1
            callback.on_train_batch_end(trainer, module, {"loss": loss / 2} if i % 2 else loss / 2, batch, i)
    return float(np.mean(losses))


def test_an_update_is_one_of_all_its_micro_batches(made: Any, here: Path, gpt: Callable[..., Any]) -> None:
    callback, trainer, module = made("lit", every=1), a_trainer(here), Lit(gpt(dropout=0.0))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for hook in ("on_validation_end", "on_train_end"):  # before the training there is nothing to do
        getattr(callback, hook)(trainer, module)
    callback.on_exception(trainer, module, ValueError())
    callback.on_before_optimizer_step(trainer, module, optimizer)
    callback.on_train_batch_end(trainer, module, None, None, 0)
    callback.on_train_start(trainer, module)
    losses = []
    for n in range(3):
        losses.append(update(callback, trainer, module, optimizer, n))
        trainer.callback_metrics = {"val_accuracy": torch.tensor(9.0), "loss": 8.0, "val_loss": torch.tensor(n + 0.5)}
        trainer.sanity_checking = n == 1
        callback.on_validation_end(trainer, module)
    callback.on_train_end(trainer, module)
    run = open_run("lit")
    assert run.status == "finished" and run.about.author == "GPT" and not trainer.should_stop
    assert run.updates is not None and run.updates["step"].values.tolist() == [0, 1, 2]
    np.testing.assert_allclose(run.updates["train_loss"], losses, rtol=1e-5)
    assert run.trace["step"].values.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(run.trace["val_loss"], [np.nan, 0.5, np.nan, 2.5])


def test_where_a_finding_says_so_lightning_is_stopped_with_a_checkpoint(
    made: Any, here: Path, gpt: Callable[..., Any]
) -> None:
    callback = made("lit", every=1, on_finding="stop", model="net", start_step=0)
    trainer, module = a_trainer(here), Lit(gpt(dropout=0.0))
    trainer.save_checkpoint = trainer.saved.append
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    callback.on_train_start(trainer, module)
    update(callback, trainer, module, optimizer, 0)
    assert not trainer.should_stop
    with pytest.warns(RuntimeWarning, match="not finite at step 1"):
        update(callback, trainer, module, optimizer, 1, factor=np.nan)
    assert trainer.should_stop and trainer.saved == [here / "lit-2.ckpt"]
    callback.on_exception(trainer, module, ValueError("over"))
    assert open_run("lit").status == "diverged"


def test_trainer_s_evaluation_is_the_validation_loss(here: Path, gpt: Callable[..., Any]) -> None:
    callback: Any = tracer.TrainerCallback("hf", every=1)
    args = SimpleNamespace(load_best_model_at_end=False)
    state, control = SimpleNamespace(global_step=0), SimpleNamespace(should_training_stop=False)
    callback.on_evaluate(args, state, control, {"eval_loss": 9.0})  # before it trains nothing is recorded
    model = gpt(dropout=0.0)
    callback.on_train_begin(args, state, control, model)
    for step, batch in enumerate(batches(2), 1):
        model(batch[:, :-1])
        state.global_step = step
        callback.on_step_end(args, state, control)
        callback.on_evaluate(args, state, control, {"eval_loss": step + 0.5, "eval_accuracy": 1.0})
        callback.on_evaluate(args, state, control, {"test_loss": 9.0})
        callback.on_evaluate(args, state, control)
    callback.on_train_end(args, state, control)
    assert open_run("hf").trace["val_loss"].values.tolist()[-2:] == [1.5, 2.5] and not control.should_training_stop


@pytest.mark.parametrize(("children", "called"), [((nn.Linear(2, 2), nn.ReLU()), 0), ((nn.Linear(2, 2),) * 2, None)])
def test_what_is_watched_is_the_only_child_with_parameters(children: tuple[nn.Module, ...], called: int | None) -> None:
    module = nn.Module()
    for i, child in enumerate(children):
        module.add_module(str(i), child if called is not None else nn.Linear(2, 2))
    assert callbacks._called(module) is (module if called is None else children[called])


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    monkeypatch.delitem(vars(callbacks), "LightningCallback", raising=False)
    with pytest.raises(ImportError, match="pip install lightning"):
        callbacks.__getattr__("LightningCallback")
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        callbacks.__getattr__("Nothing")
