"""Scores under a soft cap: what is recorded is of the capped ones, by hand, and training goes on to the bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.small import TOKENS, build, changes
from tests.trainings import tiny
from tracer.analysis.why import why
from tracer.interventions.edits import recording
from tracer.training import loop
from tracer.training.head_score import HeadScore
from tracer.training.job import prepare
from tracer.training.probe_recorder import ProbeRecorder

CAP = 0.25


def test_why_sums_to_the_score_before_the_cap() -> None:
    model = build(changes(attn_softcap=CAP))
    with recording("hook_attn_scores", *model.qk_taps(1)) as seen:
        model(TOKENS[:1])
    q, k = (seen[name] for name in model.qk_taps(1))
    plain = float(q[0, 6, 0] @ k[0, 2, 0]) * model.config.scale
    assert float(seen["blocks.1.attn.hook_attn_scores"][0, 0, 6, 2]) == pytest.approx(CAP * np.tanh(plain / CAP))
    found = why(model, TOKENS[:1], 1, 0, 6, 2)
    assert float(found.sum()) == pytest.approx(plain, abs=1e-10) and abs(plain) > CAP


def test_a_run_records_capped_scores(tmp_path: Path) -> None:
    config = tiny(tmp_path / "r", steps=8)
    config = replace(config, model=replace(config.model, attn_softcap=CAP))
    config = replace(config, record=replace(config.record, every=4, snapshot_every=4, state_every=4))
    run = loop.train(config, quiet=True)
    model: Any = run.model(8)
    recorder = ProbeRecorder(model, config.record, prepare(config).data)
    with recording("hook_pattern", *model.qk_taps(1)) as seen, torch.no_grad():
        model(recorder.val[:, :-1])
    pattern = seen["blocks.1.attn.hook_pattern"].double()
    scores = torch.einsum("bihd,bjhd->bhij", *(seen[name].double() for name in model.qk_taps(1))) * model.config.scale
    hidden = torch.ones(scores.shape[-2:]).triu(1) > 0
    by_hand = (CAP * (scores / CAP).tanh()).masked_fill(hidden, -torch.inf)
    torch.testing.assert_close(pattern, by_hand.softmax(-1), atol=1e-6, rtol=1e-5)
    last = run.trace.isel(step=-1)
    entropy = torch.special.entr(pattern).sum(-1)[..., 1:].mean((0, 2))
    np.testing.assert_allclose(last["entropy"][1], entropy, rtol=1e-5)
    np.testing.assert_allclose(last["max_logit"][1], by_hand.amax((0, 2, 3)), rtol=1e-5)
    for name in ("induction", "entropy", "entropy_normalised", "previous_token"):
        score = HeadScore(recorder, (1, 0), name)
        assert score.read(model) == pytest.approx(float(last[name][1, 0]), rel=1e-5, abs=1e-7)
