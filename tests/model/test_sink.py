"""A key of which nothing is read: fused and explicit agree, and what is measured counts it, by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.small import TOKENS, build, changes
from tests.trainings import tiny
from tracer.ablate import effect
from tracer.analysis.why import why
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import recording, visiting
from tracer.model import Transformer
from tracer.training import loop
from tracer.training.head_score import HeadScore
from tracer.training.job import prepare
from tracer.training.probe_recorder import ProbeRecorder


def with_logits(sink: str, **fields: Any) -> Transformer:
    model = build(changes(sink=sink, **fields)).requires_grad_(True)
    for block in model.blocks:
        if block.attn.b_sink is not None:
            torch.nn.init.normal_(block.attn.b_sink, generator=torch.Generator().manual_seed(2))
    return model


@pytest.mark.parametrize("sink", ["zero", "learned"])
def test_fused_equals_explicit_and_so_do_their_gradients(sink: str) -> None:
    model, found = with_logits(sink), []
    for watched in ((), ("hook_pattern",)):
        model.zero_grad()
        with recording(*watched) as seen:
            logits = model(TOKENS)
        logits.sin().sum().backward()
        found.append([logits.detach(), *(p.grad for p in model.parameters())])
    for fused, explicit in zip(*found, strict=True):
        torch.testing.assert_close(fused, explicit, atol=1e-10, rtol=1e-8)
    sums = seen["blocks.1.attn.hook_pattern"].sum(-1)
    assert (sums < 1).all() and (sums > 0).all()
    if sink == "learned":
        assert all((block.attn.b_sink.grad != 0).any() for block in model.blocks)  # pyrefly: ignore[missing-attribute]


def test_a_call_shows_what_the_sink_gets() -> None:
    model, calls = with_logits("learned"), []

    def look(call: AttentionCall) -> None:
        calls.append(call)

    with visiting(look), recording(*model.qk_taps(1)) as seen:
        model(TOKENS)
    call, (q, k) = calls[1], (seen[name] for name in model.qk_taps(1))
    n, logits = TOKENS.shape[1], model.blocks[1].attn.b_sink
    assert call.extra == ("sink",) and call.positions == n and logits is not None
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * model.config.scale
    for i in range(n):
        by_hand = torch.cat([scores[:, :, i, : i + 1], logits.expand(len(TOKENS), -1)[..., None]], -1).softmax(-1)
        torch.testing.assert_close(call.weights[:, :, i, : i + 1], by_hand[..., :-1])
        torch.testing.assert_close(call.weights[:, :, i, -1], by_hand[..., -1])
    largest = torch.cat([scores.masked_fill(torch.ones(n, n).triu(1) > 0, -torch.inf).amax(-1)[..., None],
                         logits[:, None, None].expand(len(TOKENS), -1, n, -1)], -1)  # fmt: skip
    torch.testing.assert_close(call.row_maxima(), largest.amax(-1))


def test_pairs_sum_to_the_score_beside_a_sink() -> None:
    model = with_logits("learned")
    tokens = TOKENS[:1]
    with recording(*model.qk_taps(1)) as seen:
        model(tokens)
    q, k = (seen[name] for name in model.qk_taps(1))
    for head, query, key in ((0, 6, 2), (1, 5, 5)):
        score = float((q[0, query, head] @ k[0, key, head]).detach()) * model.config.scale
        assert float(why(model, tokens, 1, head, query, key).sum()) == pytest.approx(score, abs=1e-10)


def test_a_head_that_looks_nowhere_writes_nothing() -> None:
    model = with_logits("learned")
    whole = effect(model, TOKENS, [(1, 0)], mode="zero").delta
    with torch.no_grad():
        model.blocks[1].attn.b_sink[0] = 60.0  # pyrefly: ignore[unsupported-operation]
    assert whole.abs().max() > 1e-3
    assert effect(model, TOKENS, [(1, 0)], mode="zero").delta.abs().max() < 1e-12


def test_a_run_records_what_its_heads_do(tmp_path: Path) -> None:
    config = tiny(tmp_path / "r", steps=8)
    config = replace(config, model=replace(config.model, sink="learned"))
    config = replace(config, record=replace(config.record, every=4, snapshot_every=4, state_every=4))
    run = loop.train(config, quiet=True)
    model: Any = run.model(8)
    recorder = ProbeRecorder(model, config.record, prepare(config).data)
    with recording("hook_pattern") as seen, torch.no_grad():
        model(recorder.val[:, :-1])
    pattern = seen["blocks.1.attn.hook_pattern"].double()
    rest = 1 - pattern.sum(-1, keepdim=True)
    assert float(rest.min()) > 0
    whole = torch.cat([pattern, rest], -1)
    entropy = -torch.where(whole > 0, whole * whole.log(), 0).sum(-1)
    keys = torch.arange(1, pattern.shape[2] + 1).double() + 1
    last = run.trace.isel(step=-1)
    np.testing.assert_allclose(last["entropy"][1], entropy[..., 1:].mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(
        last["entropy_normalised"][1], (entropy / keys.log())[..., 1:].mean((0, 2)), rtol=1e-5
    )  # fmt: skip
    assert float(last["max_logit"].min()) > -50
    for name in ("induction", "entropy", "previous_token"):
        score = HeadScore(recorder, (1, 0), name)
        assert score.read(model) == pytest.approx(float(last[name][1, 0]), rel=1e-5, abs=1e-7)
    with pytest.raises(ValueError, match="entropy_normalised counts a sink's key, too"):
        HeadScore(recorder, (1, 0), "entropy_normalised")
