"""`tracer.watch` for people whose loop is a library's: Hugging Face `Trainer` and Lightning, in one argument."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.watching.watch import watch

if TYPE_CHECKING:
    from tracer.watching.recorder import LoopRecorder

    class LightningCallback:
        """Trainer(callbacks=[tracer.LightningCallback("my-run")])"""

        def __init__(self, run: str, tokenizer: Any = None, **options: Any) -> None: ...

    class TrainerCallback:
        """Trainer(..., callbacks=[tracer.TrainerCallback("my-run", tokenizer)])"""

        def __init__(self, run: str, tokenizer: Any = None, **options: Any) -> None: ...


def _trainer_callback() -> Any:
    from transformers import TrainerCallback as Base

    class TrainerCallback(Base):
        """For Hugging Face `Trainer(callbacks=[...])`: records its training as `checkpoints/<run>`.

        Options are those of `tracer.watch`. The loss is that of the whole step where Trainer says how many tokens it
        has, else the one that the model returns for the last micro-batch; `eval_loss` becomes the validation loss. A
        resumed training goes on with its run. Where `on_finding` says "stop", Trainer saves a checkpoint and ends.
        """

        def __init__(self, run: str, tokenizer: Any = None, **options: Any) -> None:
            self.run, self.tokenizer, self.options = run, tokenizer, options
            self.recorder: LoopRecorder | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if model is not None:
                given = self.tokenizer if self.tokenizer is not None else kwargs.get("processing_class")
                options = {"start_step": state.global_step, **self.options}
                self.recorder = watch(model, self.run, tokenizer=given, **options)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.recorder is not None:
                self.recorder.step(at=state.global_step)
                if self.recorder.should_stop and not control.should_training_stop:
                    control.should_training_stop = control.should_save = True

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
            if self.recorder is not None and "eval_loss" in (metrics or {}):
                self.recorder.evaluated(metrics["eval_loss"])

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.recorder is not None:
                best = args.load_best_model_at_end and state.best_model_checkpoint  # is the model by now
                self.recorder.close(reloaded=bool(best) and Path(best).name != f"checkpoint-{state.global_step}")

    return TrainerCallback


def _lightning_callback() -> Any:
    try:
        base = importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        try:
            base = importlib.import_module("pytorch_lightning").Callback
        except ImportError as error:
            raise ImportError("tracer.LightningCallback needs Lightning: pip install lightning") from error

    class LightningCallback(base):
        """For Lightning's `Trainer(callbacks=[...])`: records its training as `checkpoints/<run>`.

        Options are those of `tracer.watch`, and `model`: the name of the LightningModule's attribute that is to be
        watched (default: the whole module). A metric with "val" and "loss" in its name is taken as the validation loss.
        A resumed training goes on with its run. Where `on_finding` says "stop", Lightning writes a checkpoint and ends.
        """

        def __init__(self, run: str, tokenizer: Any = None, *, model: str | None = None, **options: Any) -> None:
            super().__init__()
            self.run, self.tokenizer, self.options, self.attribute = run, tokenizer, options, model
            self.recorder: LoopRecorder | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            watched = getattr(pl_module, self.attribute) if self.attribute else _called(pl_module)
            options = {"start_step": trainer.global_step, **self.options}
            self.recorder, self._parts = watch(watched, self.run, tokenizer=self.tokenizer, **options), []

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            if self.recorder is not None:  # the backward pass runs inside the optimiser's step, after its own hooks
                self.recorder.check(getattr(optimizer, "optimizer", optimizer))

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:  # fmt: skip
            if self.recorder is None:
                return
            loss = outputs["loss"] if isinstance(outputs, dict) else outputs
            if loss is not None:  # Lightning has divided it, to add up over the micro-batches
                self._parts.append(loss.detach() * trainer.accumulate_grad_batches)
            if trainer.global_step > self.recorder.steps:
                whole = sum(self._parts) / len(self._parts) if self._parts else None
                self._parts.clear()
                self.recorder.step(whole, at=trainer.global_step)
                if self.recorder.should_stop and not trainer.should_stop:
                    trainer.should_stop = True
                    trainer.save_checkpoint(Path(trainer.default_root_dir, f"{self.run}-{trainer.global_step}.ckpt"))

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            found = {name: x for name, x in trainer.callback_metrics.items() if "val" in name and "loss" in name}
            if self.recorder is not None and found and not trainer.sanity_checking:
                self.recorder.evaluated(float(next(iter(found.values()))))

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if self.recorder is not None:
                self.recorder.close(exception)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.recorder is not None:
                self.recorder.close()

    return LightningCallback


def _called(module: Any) -> Any:
    """What training_step calls: the module's only child with parameters, since nobody calls the module itself."""
    children = [child for child in module.children() if any(True for _ in child.parameters())]
    return children[0] if len(children) == 1 else module


def __getattr__(name: str) -> Any:
    makers = {"TrainerCallback": _trainer_callback, "LightningCallback": _lightning_callback}
    if name not in makers:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    globals()[name] = made = makers[name]()
    return made
