"""Loops that are a library's, recorded by one argument: the training is the same to the bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

import tracer
from tracer.store import open_run

ROWS = torch.randint(2, 50, (32, 12), generator=torch.Generator().manual_seed(0))


def test_hugging_face_trainer(here: Path, build: Callable[..., Any], tokenizer_of: Callable[[int], Any]) -> None:
    found = []
    recorded: Any = tracer.TrainerCallback("hf", tokenizer_of(50), every=8)
    for callbacks in ([], [recorded]):
        set_seed(7)
        model = build("gpt2")
        args = TrainingArguments(
            "out", max_steps=60, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-3,
        )  # fmt: skip
        data: Any = [{"input_ids": row, "labels": row} for row in ROWS]
        Trainer(model, args, train_dataset=data, callbacks=callbacks).train()
        found.append(([p.detach().clone() for p in model.parameters()], torch.rand(3)))
    (plain, drawn), (trained, drawn_then) = found
    assert torch.equal(drawn, drawn_then) and all(torch.equal(a, b) for a, b in zip(plain, trained, strict=True))
    run = open_run("hf")
    assert run.status == "finished" and run.meta["step"] == 60 and run.about.author == "GPT2LMHeadModel"
    trace = run.trace
    assert trace["step"].values.tolist() == [0, 1, 2, 4, *range(8, 57, 8), 60]
    assert np.isfinite(trace["train_loss"][:-1]).all() and np.isfinite(trace["induction"]).all()
    assert run.tokenizer.get_vocab_size() == 50 and run.about.rebuilds
    with torch.no_grad():  # the last snapshot is the model as it was trained, its tied table too
        assert torch.equal(run.model(60)(ROWS[:2]), model.eval()(ROWS[:2]).logits)


def test_a_trainer_that_was_interrupted_begins_anew(here: Path, build: Callable[..., Any]) -> None:
    """As in a notebook: the program goes on after Ctrl-C."""

    class Interrupts(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if open_run("hf").status == "training" and state.global_step == 3 and not Path("checkpoints/hf-2").exists():
                raise KeyboardInterrupt

    args = TrainingArguments(
        "out", max_steps=5, per_device_train_batch_size=4, report_to=[], save_strategy="no", logging_strategy="no",
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    data: Any = [{"input_ids": row, "labels": row} for row in ROWS]
    recorded: Any = tracer.TrainerCallback("hf", every=2)
    trainer = Trainer(build("gpt2"), args, train_dataset=data, callbacks=[recorded, Interrupts()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train()
    assert open_run("hf").status == "stopped" and open_run("hf-2").status == "finished"
    assert open_run("hf").trace["step"].values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_the_loss_is_the_one_that_trainer_logs(here: Path, build: Callable[..., Any], accumulate: int) -> None:
    """It hands a model only the share of each micro-batch, which here have different numbers of labels."""
    labels = [torch.where(torch.arange(12) < 3 + i % 9, row, -100) for i, row in enumerate(ROWS)]
    data: Any = [{"input_ids": row, "labels": label} for row, label in zip(ROWS, labels, strict=True)]
    args = TrainingArguments(
        "out", max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=accumulate, report_to=[],
        save_strategy="no", logging_steps=1, eval_strategy="steps", eval_steps=2, disable_tqdm=True, use_cpu=True,
        learning_rate=1e-3,
    )  # fmt: skip
    recorded: Any = tracer.TrainerCallback("hf", every=1)
    model = build("gpt2", attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:6], callbacks=[recorded])
    trainer.train()
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    found = open_run("hf").trace["train_loss"].values[:-1]
    assert len(logged) == len(found) == 6
    np.testing.assert_allclose(found, logged, atol=2e-3)  # Trainer rounds to 4 digits


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")  # by Lightning itself
@pytest.mark.filterwarnings("ignore:The .train_dataloader. does not have many workers")
def test_lightning(here: Path, gpt: Callable[..., Any]) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = gpt()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.net(batch[:, :-1] % 20, batch[:, 1:] % 20)[1]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    found = []
    for callbacks in ([], [tracer.LightningCallback("lit", every=4)]):
        torch.manual_seed(0)
        module = Lit()
        loader: Any = DataLoader(ROWS, batch_size=4)  # pyrefly: ignore[bad-argument-type]
        trainer = lightning.Trainer(
            max_steps=12, accumulate_grad_batches=2, callbacks=callbacks, accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(module, loader)
        found.append([p.detach().clone() for p in module.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    run = open_run("lit")
    assert run.status == "finished" and run.meta["step"] == 12 and run.about.author == "GPT"
    assert run.trace["step"].values.tolist() == [0, 1, 2, 4, 8, 12] and run.about.layers == ("h.0.attn", "h.1.attn")


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")  # by Lightning itself
@pytest.mark.filterwarnings("ignore:The .*dataloader. does not have many workers")
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_lightning_goes_on_with_its_run(here: Path, gpt: Callable[..., Any]) -> None:
    """With accumulation, mid-epoch, validated; the loss is that of all micro-batches."""
    lightning = pytest.importorskip("lightning.pytorch")
    losses: list[float] = []

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = gpt(dropout=0.0)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss = self.net(batch[:, :-1] % 20, batch[:, 1:] % 20)[1]
            losses.append(loss.item())
            return loss

        def validation_step(self, batch: torch.Tensor, _: int) -> None:
            self.log("val_loss", self.net(batch[:, :-1] % 20, batch[:, 1:] % 20)[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    for until, checkpoint in ((5, None), (9, "half.ckpt")):
        torch.manual_seed(0)
        loader: Any = DataLoader(ROWS, batch_size=4)  # pyrefly: ignore[bad-argument-type]
        callback: Any = tracer.LightningCallback("lit", every=1)
        trainer = lightning.Trainer(
            max_steps=until, accumulate_grad_batches=2, callbacks=[callback], accelerator="cpu", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, val_check_interval=4,
            check_val_every_n_epoch=None, num_sanity_val_steps=1,
        )  # fmt: skip
        trainer.fit(Lit(), loader, DataLoader(ROWS[:8], batch_size=4), ckpt_path=checkpoint)  # pyrefly: ignore[bad-argument-type]
        trainer.save_checkpoint("half.ckpt")
    run = open_run("lit")
    assert run.updates is not None and run.updates["step"].values.tolist() == list(range(9))
    np.testing.assert_allclose(run.updates["train_loss"], np.mean(np.reshape(losses, (9, 2)), 1), rtol=1e-5)
    assert run.trace["step"].values.tolist() == list(range(10)) and run.meta["resumed"] == [5]
    assert np.isfinite(run.trace["val_loss"].sel(step=[2, 4, 6, 8])).all()


def test_trainer_goes_on_with_its_run(here: Path, build: Callable[..., Any]) -> None:
    """Stopped in the middle of an epoch, with accumulation, two steps after its last checkpoint; then resumed."""
    data: Any = [{"input_ids": row, "labels": row} for row in ROWS]
    traces = []
    for name, stops in (("whole", [10]), ("parts", [6, 10])):
        for until in stops:
            set_seed(7)
            args = TrainingArguments(
                f"out-{name}", max_steps=10, per_device_train_batch_size=2, gradient_accumulation_steps=3, report_to=[],
                save_strategy="steps", save_steps=4, logging_strategy="no", eval_strategy="steps", eval_steps=5,
                disable_tqdm=True, use_cpu=True, learning_rate=1e-3,
            )  # fmt: skip
            recorded: Any = tracer.TrainerCallback(name, every=2)

            class Preempted(TrainerCallback):
                def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                    control.should_training_stop = state.global_step >= until  # noqa: B023

            model = build("gpt2", attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
            trainer = Trainer(model, args, train_dataset=data, eval_dataset=data[:6], callbacks=[recorded, Preempted()])
            trainer.train(resume_from_checkpoint=until != stops[0])
        run = open_run(name)
        assert run.status == "finished" and run.meta["step"] == 10 and not Path("checkpoints", f"{name}-2").exists()
        assert run.updates is not None and run.updates["step"].values.tolist() == list(range(10))
        assert np.isfinite(run.trace["val_loss"].sel(step=[5, 10])).all()
        traces.append((run.trace.load(), run.updates.load()))
    assert open_run("parts").meta["resumed"] == [4]
    (trace, updates), (again, updates_again) = traces
    assert again["step"].values.tolist() == trace["step"].values.tolist()
    for name in ("train_loss", "learning_rate"):
        np.testing.assert_allclose(updates_again[name], updates[name], rtol=1e-5)
    for name in ("entropy", "induction", "grad_norm", "head_grad_norm", "val_loss", "resid_rms"):
        np.testing.assert_allclose(again[name], trace[name], rtol=2e-4, atol=1e-6)


def test_the_best_checkpoint_is_not_taken_for_the_last_step(here: Path, build: Callable[..., Any]) -> None:
    """Trainer loads it before it says that the training has ended."""
    weights: dict[int, torch.Tensor] = {}

    class Keeps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            weights[state.global_step] = model.lm_head.weight.detach().clone()

    args = TrainingArguments(
        "out", max_steps=12, per_device_train_batch_size=4, report_to=[], save_strategy="steps", save_steps=2,
        eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, metric_for_best_model="eval_loss",
        greater_is_better=True, logging_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-2,
        lr_scheduler_type="constant",
    )  # fmt: skip
    data: Any = [{"input_ids": row, "labels": row} for row in ROWS]
    recorded: Any = tracer.TrainerCallback("hf", every=1)
    trainer = Trainer(build("gpt2"), args, train_dataset=data, eval_dataset=data, callbacks=[recorded, Keeps()])
    trainer.train()
    assert not str(trainer.state.best_model_checkpoint).endswith("checkpoint-12")
    run = open_run("hf")
    assert run.status == "finished" and run.trace["step"].values.tolist() == list(range(13))
    for step in set(run.steps) - {0}:  # with the record of step 12, which came in time, no weights were kept
        model: Any = run.model(step)
        assert torch.equal(model.model.lm_head.weight, weights[step]), step
