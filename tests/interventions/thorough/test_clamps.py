"""Clamps in a training of several processes."""

import numpy as np

from tests.interventions.test_clamps import tiny
from tests.ranks import launch
from tracer.store import open_run
from tracer.training import loop


def test_two_processes_hold_the_same_clamps(tmp_path, free_port):
    held = ("L0H1 off", "L0H2 previous 1:3")
    one = loop.train(tiny(tmp_path / "one", clamp=held, steps=4), quiet=True)
    launch(2, free_port, "train", "induction", "--steps", "4", "--record.every", "1", "--model.d-model", "16",
           "--model.n-ctx", "24", "--data.period-max", "12", "--device", "cpu", "--optim.batch-size", "4",
           "--run", str(tmp_path / "two"), "--clamp", *held)  # fmt: skip
    two = open_run(tmp_path / "two")
    np.testing.assert_allclose(two.trace["train_loss"], one.trace["train_loss"], rtol=1e-5)
    assert two.config.clamp == held
