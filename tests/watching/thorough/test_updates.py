"""What takes long of tests/watching/test_updates.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

import tracer
from tests.watching.loops import batches
from tests.watching.test_updates import LIMIT, total, whole
from tracer.store import open_run


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")  # by Lightning itself
@pytest.mark.filterwarnings("ignore:The .train_dataloader. does not have many workers")
def test_lightning_runs_the_backward_pass_inside_the_step(here: Path, gpt: Callable[..., Any]) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    before: list[list[float]] = []

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = gpt(dropout=0.0)

        def training_step(self, batch: Tensor, _: int) -> Tensor:
            return self.net(batch[:, :-1], batch[:, 1:])[1]

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            before.append(whole(self.net))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader: Any = DataLoader(torch.cat(list(batches(4))), batch_size=4)  # pyrefly: ignore[bad-argument-type]
    trainer = lightning.Trainer(
        max_steps=4, callbacks=[tracer.LightningCallback("lit", every=1)], accelerator="cpu", logger=False,
        gradient_clip_val=LIMIT, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Lit(), loader)
    trace = open_run("lit").trace
    np.testing.assert_allclose(trace["grad_norm"][:-1], before, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose([total(row) for row in trace["grad_norm_clipped"].values[:-1]], LIMIT, rtol=1e-3)
    assert (trace["clip_factor"][:-1] < 0.5).all()


def test_gradients_that_no_backward_pass_left_are_not_made_up(here: Path, gpt: Callable[..., Any]) -> None:
    """torch.autograd.grad, say: whether they were clipped, nobody knows."""
    model = gpt(dropout=0.0)
    optimizer, params = torch.optim.SGD(model.parameters(), lr=0.1), list(model.parameters())
    recorder = tracer.watch(model, run="handed", every=1)
    batch = next(batches(1))
    grads = torch.autograd.grad(model(batch[:, :-1], batch[:, 1:])[1], params)
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad
    optimizer.step()
    recorder.step()
    recorder.close()
    trace = open_run("handed").trace
    assert np.isnan(trace["grad_norm"][0]).all() and np.isnan(float(trace["clip_factor"][0]))
    np.testing.assert_allclose(trace["grad_norm_clipped"][0], whole(model), rtol=1e-5)


def test_trainer_shows_norms_from_before_it_clips(here: Path, build: Callable[..., Any]) -> None:
    norms = []

    class Told(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            norms.append(whole(model))

    rows = torch.randint(2, 50, (16, 12), generator=torch.Generator().manual_seed(0))
    args = TrainingArguments(
        "out", max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[], use_cpu=True,
        save_strategy="no", logging_steps=1, disable_tqdm=True, learning_rate=1e-2, max_grad_norm=0.25,
    )  # fmt: skip
    data: Any = [{"input_ids": row, "labels": row} for row in rows]
    recorded: Any = tracer.TrainerCallback("hf", every=1)
    trainer = Trainer(build("gpt2"), args, train_dataset=data, callbacks=[recorded, Told()])
    trainer.train()
    logged = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    trace = open_run("hf").trace
    found = [total(row) for row in trace["grad_norm"].values[:-1]]
    np.testing.assert_allclose(found, logged, rtol=1e-3)  # Trainer logs what it had before clipping
    np.testing.assert_allclose(trace["grad_norm_clipped"][:-1], norms, rtol=1e-5)
    np.testing.assert_allclose(trace["clip_factor"][:-1], 0.25 / np.array(found), rtol=1e-4)
