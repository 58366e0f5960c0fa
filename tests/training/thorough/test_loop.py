"""What takes long of tests/training/test_loop.py."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ranks import launch
from tests.training.test_loop import finished  # noqa: F401
from tracer.presets import PRESETS
from tracer.store import open_run
from tracer.training import loop

pytestmark = pytest.mark.slow


def test_two_processes_count_each_target_alike(tmp_path, free_port):
    """Of the 8 rows of a batch, those of one process have more targets that count than those of the other."""
    for name, world in (("one", 1), ("two", 2)):
        args = ["train", "induction", "--run", str(tmp_path / name), "--steps", "6", "--record.every", "1",
                "--model.d-model", "32", "--model.n-ctx", "4", "--optim.batch-size", "8", "--optim.accumulate", "2",
                "--device", "cpu", "--data.corpus", "tests.own_data:Uneven"]  # fmt: skip
        launch(world, free_port, *args)
    one, two = (open_run(tmp_path / name).trace["train_loss"].values for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_takes_a_step(name, tmp_path):
    config = PRESETS[name].config
    small = {"data": replace(config.data, corpus="repeated-random", vocab_size=64, mix=None, mix_share=0.0,
                             period_min=4, period_max=12)}  # fmt: skip
    optim = replace(config.optim, batch_size=4)
    record = replace(config.record, val_rows=2, repeat_rows=2, icl_rows=2, text_prompts=1, repeat_prompts=1)
    run = loop.train(
        replace(config, run=str(tmp_path / name), steps=1, device="cpu", optim=optim, record=record, **small),
        quiet=True,
    )
    assert run.status in ("finished", "diverged")
    assert np.isfinite(run.trace["entropy"][0]).all()
