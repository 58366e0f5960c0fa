"""The page's own QK-clip, on a training that runs away without it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tests.watching.loops import batches

pytestmark = pytest.mark.slow


def test_qk_clip_tames_a_run_that_runs_away(here: Path, gpt: Callable[..., Any]) -> None:
    """The lines of docs/recording.md, on a model whose q, k and v learn thirty times faster than the rest."""
    docs = (Path(tracer.__file__).parents[1] / "docs" / "recording.md").read_text()
    names: dict[str, Any] = {"torch": torch}
    exec(re.findall(r"^```python\n(.*?)^```", docs, re.M | re.S)[0], names)

    def train(limit: float | None) -> tuple[float, float]:
        """The largest logit after the first 20 updates, and the loss of the last 20."""
        model = gpt(dropout=0.0)
        fast = [p for name, p in model.named_parameters() if "c_attn" in name]
        slow = [p for name, p in model.named_parameters() if "c_attn" not in name]
        optimizer = torch.optim.Adam([{"params": fast, "lr": 0.1}, {"params": slow, "lr": 3e-3}], betas=(0.9, 0.95))
        logits, losses = [], []
        with tracer.watch(model, run="r", every=1000, max_logits="every") as recorder:
            for batch in batches(200, size=16):
                ids = batch[:, :-1]
                loss = model(ids, ids.roll(1, 1))[1]  # which token was before
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
                assert recorder.max_logits is not None
                logits.append(float(recorder.max_logits.max()))
                losses.append(loss.item())
                if limit is not None:
                    names["qk_clip"](model, recorder.max_logits, limit)
        return max(logits[20:]), sum(losses[-20:]) / 20

    (wild, unlearned), (tame, learned) = train(None), train(20.0)
    assert wild > 300 and tame < 60 and learned < unlearned - 0.8, (wild, unlearned, tame, learned)
