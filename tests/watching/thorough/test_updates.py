"""What takes long of tests/watching/test_updates.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

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

    loader: Any = DataLoader(torch.cat(list(batches(4))), batch_size=4)  # type: ignore[arg-type]
    trainer = lightning.Trainer(
        max_steps=4, callbacks=[tracer.LightningCallback("lit", every=1)], accelerator="cpu", logger=False,
        gradient_clip_val=LIMIT, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Lit(), loader)
    trace = open_run("lit").trace
    np.testing.assert_allclose(trace["grad_norm"][:-1], before, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose([total(row) for row in trace["grad_norm_clipped"].values[:-1]], LIMIT, rtol=1e-3)
    assert (trace["clip_factor"][:-1] < 0.5).all()
