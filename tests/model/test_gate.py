"""An output gate: half open it halves W_O, what heads write adds up behind it, and training goes on to the bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.small import TOKENS, build, changes
from tests.trainings import tiny
from tracer import ablate
from tracer.analysis.head_jobs import _outputs
from tracer.data.probes import per_token_loss, predictable
from tracer.interventions.edits import Edit, applied, recording
from tracer.model import Transformer
from tracer.training import loop
from tracer.training.job import prepare
from tracer.training.probe_recorder import ProbeRecorder

TAP = "blocks.{}.attn.hook_gate"


def outcome(model: Transformer, *watched: str) -> list[torch.Tensor]:
    """Logits, and the gradients of all weights."""
    model.requires_grad_(True).zero_grad()
    with recording(*watched):
        logits = model(TOKENS)
    logits.sin().sum().backward()
    return [logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def test_a_seed_means_the_weights_of_the_model_without_it_which_half_open_it_is() -> None:
    plain, model = build(changes()), build(changes(attn_gate=True))
    weights = plain.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items() if name in weights)
    for block, other in zip(model.blocks, plain.blocks, strict=True):
        assert block.attn.W_gate is not None and other.attn.W_O is not None
        block.attn.W_gate.zero_()
        other.attn.W_O.mul_(0.5)
    assert torch.equal(model(TOKENS), plain(TOKENS))


def test_fused_equals_explicit_and_so_do_their_gradients() -> None:
    model = build(changes(attn_gate=True))
    for fused, explicit in zip(outcome(model), outcome(model, "hook_pattern"), strict=True):
        torch.testing.assert_close(fused, explicit, atol=1e-10, rtol=1e-8)
    assert all((block.attn.W_gate.grad != 0).any() for block in model.blocks)  # pyrefly: ignore[missing-attribute]


def test_the_gate_is_of_the_querys_own_token_and_z_is_before_it() -> None:
    model = build(changes(attn_gate=True))
    with recording("hook_z", "hook_gate", "hook_v", "hook_pattern", "ln1.hook_normalized", "hook_attn_out") as seen:
        model(TOKENS)
    attn = model.blocks[1].attn
    assert attn.W_gate is not None and attn.W_O is not None and attn.b_O is not None
    read = model.blocks[1].attn_in(model.residual_stream(TOKENS).layers[1].resid_pre)
    by_hand = 1 / (1 + (-torch.einsum("bpm,hmd->bphd", read, attn.W_gate)).exp())
    torch.testing.assert_close(seen[TAP.format(1)], by_hand)
    z, v, pattern = (seen[f"blocks.1.attn.hook_{name}"] for name in ("z", "v", "pattern"))
    torch.testing.assert_close(z, torch.einsum("bhij,bjhd->bihd", pattern, v))
    written = torch.einsum("bphd,hdm->bpm", z * by_hand, attn.W_O) + attn.b_O
    torch.testing.assert_close(seen["blocks.1.hook_attn_out"], written)


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_paths_the_direct_one_and_later_gates_are_the_head(mode: Any) -> None:
    """A path leads into q, k or v: with the later gates held, nothing else of a head's effect is left."""
    model = build(changes(attn_gate=True, norm="none", mlp_hidden=(), final_norm=False))
    paths = [ablate.Path((0, 1), (1, head), into) for head in range(4) for into in ("q", "k", "v")]
    with recording("hook_gate") as clean:
        logits = model(TOKENS)

    def off(parts: Any, *edits: Edit) -> torch.Tensor:
        (plan,) = ablate.planner(model, TOKENS, mode, draws=1)(parts)
        with applied([*plan, *edits]):
            return model(TOKENS) - logits

    held = off([(0, 1)], Edit(TAP.format(1), instead=clean[TAP.format(1)]))
    stream = model.residual_stream(TOKENS)
    assert model.blocks[0].attn.W_O is not None
    (plan,) = ablate.planner(model, TOKENS, mode, draws=1)([(0, 1)])
    with applied(plan), recording("hook_z") as seen:
        model(TOKENS)
    change = stream.layers[0].gated(seen["blocks.0.attn.hook_z"] - stream.layers[0].z)[:, :, 1]
    straight = change @ model.blocks[0].attn.W_O[1] @ model.W_U
    torch.testing.assert_close(off(paths) + straight, held, atol=1e-11, rtol=0)
    assert (off([(0, 1)]) - held).abs().max() > 1e-3


def test_looks_are_grouped_by_what_is_written_behind_the_gate() -> None:
    model = build(changes(attn_gate=True))
    row, query = np.array([0, 2, 1]), np.array([4, 8, 0])
    z, _ = _outputs(model, TOKENS, 1, 2, row, query)
    assert model.blocks[1].attn.W_O is not None
    written = model.residual_stream(TOKENS).layers[1].heads_out()[2, row, query]
    torch.testing.assert_close(z @ model.blocks[1].attn.W_O[2], written)


def test_a_run_records_its_losses(tmp_path: Path) -> None:
    config = tiny(tmp_path / "r", steps=8)
    config = replace(config, model=replace(config.model, attn_gate=True))
    config = replace(config, record=replace(config.record, every=4, snapshot_every=4, state_every=4))
    run = loop.train(config, quiet=True)
    model: Any = run.model(8)
    recorder = ProbeRecorder(model, config.record, prepare(config).data)
    with torch.no_grad():
        tokens, period = recorder.repeat_tokens, recorder.repeat.period
        loss = per_token_loss(model(tokens[:, :-1]), tokens)[:, predictable(period)].mean()
    assert float(run.trace["repeat_loss"][-1]) == pytest.approx(float(loss), rel=1e-5)
    assert "blocks.1.attn.W_gate" in run.trace["param"].values and run.why_not("value_norms")
