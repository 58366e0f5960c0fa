"""Clamps in somebody's own loop: other heads and gradients are the model's own, and the trace is of it clamped."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import tracer
from tests.interventions.test_own_clamps import HERE, halved, previous
from tests.tiers import quick
from tests.watching.test_own_transformer import CONFIG
from tracer.config import TrainConfig
from tracer.interventions import clamps
from tracer.store import Run
from tracer.training.clamping import with_these
from tracer.watching.not_recording import NotRecording
from tracer.watching.recorder import LoopRecorder

Loop = Callable[[LoopRecorder, int], None]


def train(model: nn.Module, run: str, steps: int, before: Loop | None = None, **options: Any) -> Run:
    """`before` is called before each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = tracer.watch(model, run=run, every=1, **options)
    for step in range(steps):
        if before is not None:
            before(recorder, step)
        update(model, optimizer, step)
        recorder.step()
    recorder.close()
    assert recorder.off is None
    return tracer.open_run(recorder.dir)


def update(model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    ids = torch.randint(20, (8, 12), generator=torch.Generator().manual_seed(step))
    output = model(ids)
    logits = getattr(output, "logits", output)
    optimizer.zero_grad()
    F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()


def held(*given: Any) -> Loop:
    return lambda recorder, step: recorder.clamp(given[0]) if step == 0 else None


OURS = {"L0H1": previous, "L1H1": halved, "L1H0 2:3": "off"}


def test_it_is_the_training_of_the_clamped_model(here: Path) -> None:
    """With nobody recording, and clamps of our own model: the same weights after four steps; then it is let go."""
    model, alone = tracer.Transformer(CONFIG, seed=4), tracer.Transformer(CONFIG, seed=4)
    config = with_these(TrainConfig(model=CONFIG), OURS)
    run = train(model, "mine", 4, held(OURS))
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(4):
        alone.clamps = clamps.edits(config, step)
        update(alone, optimizer, step)
    for (name, one), other in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5, msg=name)
    assert (run.trace["previous_token"].sel(layer=0, head=1) == 1).all()
    assert (run.trace["previous_token"].sel(layer=0, head=0) < 1).all()
    assert run.meta["clamp"] == [f"L0H1 = {HERE}:previous", f"L1H1 = {HERE}:halved", "L1H0 off 2:3"]
    grad = model.blocks[0].attn.W_Q.grad
    assert grad is not None and (grad[1] == 0).all() and (grad[0] != 0).any()
    with torch.no_grad():
        ids = torch.randint(20, (2, 12))
        alone.clamps = ()
        torch.testing.assert_close(model(ids), alone(ids), atol=1e-5, rtol=1e-5)


class Recomputed(nn.Module):
    """Reentrant, so that its layers run without gradients first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = tracer.Transformer(CONFIG), nn.Parameter(torch.ones(1))

    def forward(self, ids: torch.Tensor) -> Any:
        return checkpoint(lambda scale: self.inner(ids) * scale, self.scale, use_reentrant=True)


def test_where_nothing_is_recorded_a_clamp_holds_or_is_refused(here: Path) -> None:
    """A recorder that is off leaves the training as it is: clamped."""
    model = tracer.Transformer(CONFIG)
    recorder = tracer.watch(model, run="mine", every=1)
    recorder.clamp("L0 off 0:2")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder._switch_off("a full disk")
    for step, off in ((0, True), (1, True), (2, False)):
        update(model, optimizer, step)
        grad = model.blocks[0].attn.W_V.grad
        assert grad is not None and bool((grad == 0).all()) == off
        recorder.step()
    recorder.close()
    with pytest.warns(RuntimeWarning, match="records nothing"):
        nobody = NotRecording("mine", ImportError("no such torch"))
    with pytest.raises(ValueError, match="no clamp can be held: manyeyes records nothing"):
        nobody.clamp("L0H1 off")


@pytest.mark.parametrize("held_out", quick([False, True], (True,)))
def test_every_pass_of_the_loop_is_clamped_and_its_held_out_loss_is(held_out: bool, here: Path) -> None:
    """Also the first, in whose hooks the recorder's own passes run, and others of a user's function."""
    model, ids = tracer.Transformer(CONFIG, seed=4), torch.randint(20, (8, 12))
    losses, off = list[float](), {"L0": "off", "L1": "off"}
    others: dict[str, Any] = (
        {"held_out": ids} if held_out else {"scalars": lambda model, step: {"mine": float(model(ids).mean())}}
    )
    recorder = tracer.watch(model, run="mine", every=1, **others)
    recorder.clamp(off)
    for _ in range(3):
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        losses.append(float(loss.detach()))
        recorder.step(loss)
    recorder.close()
    assert recorder.off is None and losses == pytest.approx([losses[0]] * 3)
    alone = tracer.Transformer(CONFIG, seed=4)
    alone.clamps = clamps.edits(TrainConfig(model=CONFIG, clamp=("L0 off", "L1 off")), 0)
    with torch.no_grad():
        expected = float(F.cross_entropy(alone(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    assert losses[0] == pytest.approx(expected, abs=1e-6)
    if held_out:
        found = tracer.open_run(recorder.dir).trace["val_loss"].values
        assert found == pytest.approx([expected] * len(found), abs=1e-6)


def test_a_model_whose_attention_is_not_seen_holds_nothing(here: Path) -> None:
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    recorder = tracer.watch(model, run="mine", every=1)
    with pytest.raises(ValueError, match="no attention was seen"):
        recorder.clamp("L0 off")
        model(torch.randint(20, (8, 12)))
    recorder.close()


def test_a_function_is_given_copies(here: Path) -> None:
    def greedy(head: Any) -> torch.Tensor:
        pattern = head.pattern.clone()
        for given in (head.tokens, head.pattern, head.v):
            with torch.no_grad():
                given.mul_(0)
        return pattern

    model, ids = tracer.Transformer(CONFIG, seed=4), torch.randint(20, (2, 12))
    with torch.no_grad():
        free, before = model(ids), ids.clone()
    recorder = tracer.watch(model, run="mine", every=100)
    recorder.clamp({"L0H1": greedy})
    torch.testing.assert_close(model(ids).detach(), free, atol=1e-5, rtol=1e-5)
    assert (ids == before).all()
    recorder.close()
    with pytest.raises(ValueError, match="the recorder is closed"):
        recorder.clamp("L0H1 off")


def test_a_whole_layer_of_one_head_is_held(here: Path) -> None:
    model = tracer.Transformer(replace(CONFIG, n_heads=1))
    run = train(model, "one", 2, held("L0 off"))
    assert run.meta["clamp"] == ["L0 off 0:"] or run.meta["clamp"] == ["L0 off"]
    grads: list[Any] = [block.attn.W_V.grad for block in model.blocks[:2]]
    assert bool((grads[0] == 0).all()) and bool((grads[1] != 0).any())


def test_a_process_that_writes_nothing_holds_them_too(here: Path) -> None:
    """Of several processes the first writes; in the others a clamp is no trouble, and no word of run.json."""
    model = tracer.Transformer(CONFIG)
    recorder = tracer.watch(model, run="mine", every=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update(model, optimizer, 0)
    assert recorder.probing is not None
    writer, recorder.probing.writer = recorder.probing.writer, None
    recorder.clamp("L0 off")
    assert recorder.off is None
    update(model, optimizer, 1)
    grad = model.blocks[0].attn.W_V.grad
    assert grad is not None and bool((grad == 0).all())
    recorder.probing.writer = writer
    recorder.close()
