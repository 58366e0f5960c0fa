"""Scores with heads off, against those of a twin whose weights were zeroed, from its queries and keys."""

from __future__ import annotations

import numpy as np

from tests.ablate.test_outcomes import CONFIG, OFF, PROBE, TOKENS, build
from tracer.ablate.scores_without import scores_without
from tracer.data.probes import CONTROL_ROWS
from tracer.heads import probe_errors, probe_scores, stats
from tracer.heads.blocks import HeadStats
from tracer.interventions.edits import recording


def test_they_are_the_records_of_a_twin_that_cannot_write() -> None:
    model, twin, repeats = build(), build(), PROBE.tokens[:CONTROL_ROWS]
    for layer, head in OFF:
        twin.get_parameter(f"blocks.{layer}.attn.W_O")[head] = 0
    found = scores_without(model, OFF, repeat=PROBE, text=TOKENS)
    probes = ((TOKENS, None), (PROBE.tokens, PROBE.tokens), (PROBE.control[:CONTROL_ROWS], repeats))
    for layer in range(CONFIG.n_layers):
        seen: list[HeadStats] = []
        for tokens, keys in probes:
            with recording("hook_q", "hook_k") as qk:
                twin(tokens)
            q, k = (qk[f"blocks.{layer}.attn.hook_{name}"] for name in "qk")
            seen.append(stats(q, k, keys, scale=CONFIG.scale))
        text, repeat, control = seen
        wanted = probe_scores(text, repeat, control, PROBE.second_copy)
        wanted |= probe_errors(text, repeat, control, PROBE.second_copy)
        assert set(wanted) == set(found)
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name][layer], values, atol=1e-9, err_msg=name)
    whole = scores_without(model, (), repeat=PROBE, text=TOKENS)
    assert np.abs(whole["induction"][1] - found["induction"][1]).max() > 1e-4, "else it would say nothing"
