"""A training that diverges, and where it is said to have begun."""

from dataclasses import replace

import numpy as np
import pytest

from tracer.presets import preset
from tracer.training import loop

pytestmark = pytest.mark.slow


def test_divergence_is_located(tmp_path):
    config = preset("four-blocks").config
    config = replace(
        config, run=str(tmp_path / "sick"), steps=60, device="cpu", record=replace(config.record, every=2, val_rows=4),
        optim=replace(config.optim, batch_size=16, lr=1.0),
        data=replace(config.data, corpus="repeated-random", vocab_size=128, period_max=16),
    )  # fmt: skip
    run = loop.train(config, quiet=True)
    assert run.status == "diverged"
    found = run.meta["divergence"]
    assert 0 < found["step"] < 60 and found["non_finite"]["step"] <= found["step"]
    assert found["non_finite"]["where"] and "not finite" in found["text"]
    assert found["exploding"]["step"] <= found["non_finite"]["step"]
    assert np.isfinite(run.trace["train_loss"]).all() and len(run.trace["step"]) >= 1
    with pytest.raises(ValueError, match="diverged at step"):
        loop.resume(run.dir, quiet=True)
