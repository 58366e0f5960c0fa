"""The four trackers, each a thin line to its own library: what differs between them is in here, and nothing else.

A run of the tracker that the training has open already (W&B's and MLflow's callbacks of Hugging Face's Trainer, a
loop's own `wandb.init`) is used and left open; else one is begun, and ended with the recording.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Images = dict[str, np.ndarray]
"""RGB bytes [height width 3] by name."""


class Service(Protocol):
    def log(self, step: int, values: dict[str, float], images: Images) -> None: ...
    def alert(self, kind: str, severity: str, title: str, text: str, step: int) -> None: ...
    def close(self, failed: bool) -> None: ...


class TensorBoard:
    """Event files in the run directory: `tensorboard --logdir checkpoints` shows every run."""

    def __init__(self, directory: Path, name: str, key: str, project: str, config: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(directory / "tensorboard"))
        self.writer.add_text("config", "\n".join(f"    {k}: {v}" for k, v in config.items()))

    def log(self, step: int, values: dict[str, float], images: Images) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        for name, image in images.items():
            self.writer.add_image(name, image, step, dataformats="HWC")
        self.writer.flush()

    def alert(self, kind: str, severity: str, title: str, text: str, step: int) -> None:
        self.writer.add_text(f"findings/{kind}", f"**{severity}: {title}**\n\n{text}", step)

    def close(self, failed: bool) -> None:
        self.writer.close()


class WandB:
    """Weights & Biases; WANDB_MODE=offline keeps everything here."""

    def __init__(self, directory: Path, name: str, key: str, project: str, config: dict[str, Any]) -> None:
        import wandb

        self.wandb, self.theirs = wandb, wandb.run is not None
        self.run: Any = wandb.run or wandb.init(project=project, name=name, id=key, resume="allow")
        self.run.config.update({"manyeyes": config}, allow_val_change=True)
        self.run.define_metric("manyeyes/step")
        for group in ("attn/*", "stream/*", "loss/*") if self.theirs else ("*",):
            self.run.define_metric(group, step_metric="manyeyes/step")

    def log(self, step: int, values: dict[str, float], images: Images) -> None:
        pictures = {name: self.wandb.Image(image) for name, image in images.items()}
        # in a run of theirs, their next line carries ours: it counts their steps by the number of lines
        self.run.log({**values, **pictures, "manyeyes/step": step}, commit=not self.theirs)

    def alert(self, kind: str, severity: str, title: str, text: str, step: int) -> None:
        level = self.wandb.AlertLevel.ERROR if severity == "bad" else self.wandb.AlertLevel.WARN
        self.run.alert(title=title[:63], text=f"since step {step:,}\n\n{text}", level=level)  # 64 are refused

    def close(self, failed: bool) -> None:
        if not self.theirs:
            self.run.finish(exit_code=int(failed))


class MLflow:
    """MLflow, wherever MLFLOW_TRACKING_URI says."""

    def __init__(self, directory: Path, name: str, key: str, project: str, config: dict[str, Any]) -> None:
        import mlflow

        self.client, active = mlflow.MlflowClient(), mlflow.active_run()
        self.theirs = active is not None
        self.id = active.info.run_id if active else self._own(name, key, project)
        self.client.set_tag(self.id, "mlflow.note.content", f"Every head of this run: {config['link']}")
        known = self.client.get_run(self.id).data.params
        for setting, value in config.items():  # a parameter cannot change; a resumed run has its own already
            if setting not in known:
                self.client.log_param(self.id, setting, value)

    def _own(self, name: str, key: str, project: str) -> str:
        found = self.client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self.client.create_experiment(project)
        before = self.client.search_runs([experiment], f"tags.manyeyes_key = '{key}'")
        if not before:
            return self.client.create_run(experiment, tags={"manyeyes_key": key}, run_name=name).info.run_id
        self.client.update_run(before[0].info.run_id, status="RUNNING")
        return before[0].info.run_id

    def log(self, step: int, values: dict[str, float], images: Images) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        self.client.log_batch(self.id, [Metric(name, value, now, step) for name, value in values.items()])
        for name, image in images.items():
            self.client.log_image(self.id, image, key=name, step=step)

    def alert(self, kind: str, severity: str, title: str, text: str, step: int) -> None:
        self.client.set_tag(self.id, f"finding.{kind}", f"{severity}: {title}, since step {step:,}")
        self.client.log_text(self.id, f"{title}\n\n{text}\n", f"findings/{kind}.txt")

    def close(self, failed: bool) -> None:
        if not self.theirs:
            self.client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


class Trackio:
    """Trackio, which keeps runs on this machine: `trackio show` opens its page."""

    def __init__(self, directory: Path, name: str, key: str, project: str, config: dict[str, Any]) -> None:
        import trackio

        self.trackio = trackio
        self.run = trackio.init(project=project, name=f"{name}-{key}", config=config, resume="allow", embed=False)

    def log(self, step: int, values: dict[str, float], images: Images) -> None:
        pictures = {name: self.trackio.Image(image) for name, image in images.items()}
        self.run.log({**values, **pictures}, step=step)

    def alert(self, kind: str, severity: str, title: str, text: str, step: int) -> None:
        level = self.trackio.AlertLevel.ERROR if severity == "bad" else self.trackio.AlertLevel.WARN
        self.run.alert(title=f"{title}, since step {step:,}", text=text, level=level, step=step)

    def close(self, failed: bool) -> None:
        self.run.finish()
