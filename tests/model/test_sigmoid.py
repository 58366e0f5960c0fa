"""Sigmoid attention: each key by itself, by hand; no row that is shown sums to more than 1, the model's own may."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.small import TOKENS, build, changes
from tests.trainings import tiny
from tracer.analysis.prompt_attention import look
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import recording, visiting
from tracer.training import loop
from tracer.training.head_score import HeadScore
from tracer.training.job import prepare
from tracer.training.probe_recorder import ProbeRecorder

SHARP: dict[str, Any] = {"attention": "sigmoid", "attn_scale": "none", "n_ctx": 9}
"""With scores so far apart that some rows sum to more than 1."""


def by_hand(scores: torch.Tensor, n_ctx: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sigmoids of scores [... query key] of past and present, and each row with what it gives to nothing behind it."""
    seen = torch.ones(scores.shape[-2:]).tril() > 0
    raw = torch.where(seen, 1 / (1 + n_ctx * (-scores).exp()), 0)
    sums = raw.sum(-1, keepdim=True)
    return raw, torch.cat([raw / sums.clamp(min=1), (1 - sums).clamp(min=0)], -1)


def test_weights_are_sigmoids_and_no_row_that_is_shown_is_above_1() -> None:
    model, calls = build(changes(**SHARP)), []

    def see(call: AttentionCall) -> None:
        calls.append(call)

    with visiting(see), recording("hook_pattern", "hook_z", "hook_v", *model.qk_taps(1)) as seen:
        logits = model(TOKENS)
    q, k = (seen[name] for name in model.qk_taps(1))
    raw, shown = by_hand(torch.einsum("bihd,bjhd->bhij", q, k), 9)
    assert (raw.sum(-1) > 1.1).any() and (raw.sum(-1) < 0.9).any()
    torch.testing.assert_close(seen["blocks.1.attn.hook_pattern"], raw)
    torch.testing.assert_close(
        seen["blocks.1.attn.hook_z"], torch.einsum("bhij,bjhd->bihd", raw, seen["blocks.1.attn.hook_v"])
    )
    torch.testing.assert_close(calls[1].weights, shown)
    torch.testing.assert_close(calls[1].mixing(slice(None))[..., :-1], raw)
    torch.testing.assert_close(
        calls[1].head(2).sequences(torch.tensor([1])).mixing(slice(4, 6))[0, 0, :, :-1], raw[1, 2, 4:6]
    )
    assert torch.equal(model(TOKENS), logits)
    found = look(model, TOKENS[:1])
    torch.testing.assert_close(torch.from_numpy(found.logits), logits[0], check_dtype=False, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.from_numpy(found.pattern(1, 2)), shown[0, 2, :, :-1], check_dtype=False)


def test_a_run_records_shares(tmp_path: Path) -> None:
    config = tiny(tmp_path / "r", steps=8)
    config = replace(config, model=replace(config.model, attention="sigmoid", attn_scale="none"))
    config = replace(config, record=replace(config.record, every=4, snapshot_every=4, state_every=4))
    run = loop.train(config, quiet=True)
    model: Any = run.model(8)
    recorder = ProbeRecorder(model, config.record, prepare(config).data)
    with recording(*model.qk_taps(1)) as seen, torch.no_grad():
        model(recorder.val[:, :-1])
    q, k = (seen[name].double() for name in model.qk_taps(1))
    scores = torch.einsum("bihd,bjhd->bhij", q, k)
    raw, shown = by_hand(scores, config.model.n_ctx)
    assert (raw.sum(-1) > 1).any()
    last, n = run.trace.isel(step=-1), raw.shape[-1]
    entropy = torch.special.entr(shown).sum(-1)
    np.testing.assert_allclose(last["entropy"][1], entropy[..., 1:].mean((0, 2)), rtol=1e-5)
    most = (torch.arange(n).double() + 2).log()
    np.testing.assert_allclose(last["entropy_normalised"][1], (entropy / most)[..., 1:].mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(last["first_token"][1], shown[..., 1:, 0].mean((0, 2)), rtol=1e-5)
    hidden = torch.ones(n, n).triu(1) > 0
    largest = scores.masked_fill(hidden, -torch.inf).amax((0, 2, 3))
    np.testing.assert_allclose(last["max_logit"][1], largest, rtol=1e-5)
    for name in ("induction", "entropy", "previous_token"):
        score = HeadScore(recorder, (1, 0), name)
        assert score.read(model) == pytest.approx(float(last[name][1, 0]), rel=1e-5, abs=1e-7)
    with pytest.raises(ValueError, match="entropy_normalised counts a sink's key, too"):
        HeadScore(recorder, (1, 0), "entropy_normalised")
