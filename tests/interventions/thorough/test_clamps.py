"""Clamps in a training of several processes."""

from concurrent.futures import ThreadPoolExecutor

import jaxtyping
import numpy as np
import pytest
import torch

from tests.interventions.test_clamps import BOTH, MODEL, TOKENS, clamped_model, tiny
from tests.ranks import launch
from tracer import ablate
from tracer.interventions.edits import applied
from tracer.model import Transformer
from tracer.model.generate import generate
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


@torch.no_grad()
def test_every_way_through_a_model_is_clamped(monkeypatch):
    """In a thread, through transformer-lens, compiled, in generated text: what a with block around the model gave."""
    model, free = clamped_model(*BOTH), Transformer(MODEL).eval()
    with applied(model.clamps):
        expected, told = free(TOKENS), generate(free, TOKENS, 5, [0.0] * 3)
    assert not torch.allclose(free(TOKENS), expected)
    assert torch.equal(model(TOKENS), expected)
    with ThreadPoolExecutor(2) as pool:
        assert all(torch.equal(found, expected) for found in pool.map(model, [TOKENS] * 4))
    logits, cache = model.run_with_cache(TOKENS)
    torch.testing.assert_close(logits, expected)
    assert (cache["z", 1][:, :, 2] == 0).all()
    assert cache["pattern", 0][:, 1].diagonal(-1, 1, 2).max() == 0 < cache["pattern", 0][:, 0].diagonal(-1, 1, 2).min()
    assert torch.equal(generate(model, TOKENS, 5, [0.0] * 3), told)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # dynamo cannot trace the shape checks
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(TOKENS), expected)
    torch.compiler.reset()


def test_a_verdict_is_on_the_head_as_it_was_trained(tmp_path) -> None:
    run = loop.train(tiny(tmp_path / "r", clamp=("L0H2 previous", "L1H1 off")), quiet=True)
    forced, off = (ablate.verdict(run, *head, sequences=8) for head in ((0, 2), (1, 1)))
    assert forced.previous_token == pytest.approx(1, abs=1e-6) and "is a previous-token head" in forced.headline
    last = run.steps[-1]
    assert forced.headline.startswith(f"L0H2 of r at step {last}, clamped (L0H2 previous), is a previous-token head")
    assert ablate.verdict(run, 0, 1, sequences=8).headline.startswith(f"L0H1 of r at step {last} is ")
    assert [one.mean for one in off.effects.values()] == pytest.approx([0, 0, 0], abs=1e-6)
    free = ablate.verdict(run.model(run.steps[-1], clamps=False), 0, 2, sequences=8)
    assert free.previous_token < 0.5
