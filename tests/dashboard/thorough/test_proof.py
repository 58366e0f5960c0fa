"""What takes long of tests/dashboard/test_proof.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dashboard import jobs
from dashboard.loading import ablation
from tests.dashboard.test_proof import Open, _cue, rank, setup_of
from tests.dashboard.words import written
from tracer.analysis.run_sweep import sweep_run
from tracer.store import Run
from tracer.training.loop import train


def test_a_sweep_is_a_process_that_is_shown_and_can_be_cancelled(
    none_left: None, open_page: Open, copy_run: Callable[..., Run]
) -> None:
    run = copy_run("swept")
    assert jobs.sweeping(run) is None
    one = jobs.sweep(run)
    assert jobs.sweep(run) is one or not one.alive  # one at a time
    app = open_page("ablate", run="swept", section="when")
    if one.alive:
        app.button(key="cancel_sweep").click().run()
    one.process.wait(300)
    again = jobs.sweep(run)
    again.process.wait(300)
    assert not again.failed, again.tail()
    assert ablation.swept(run) == 4 and jobs.started() == []  # it trains nothing, so it is no card on Runs
    app.run()
    assert [b.key for b in app.button if b.key in ("cancel_sweep", "sweep_run")] == [] and not app.exception


def test_what_a_users_own_metric_was_swept_by_is_shown(
    open_page: Open, copy_run: Callable[..., Run], sent: Any
) -> None:
    run = copy_run("swept")
    assert not [box for box in open_page("ablate", run="swept", section="heads").selectbox if box.key == "metric_box"]
    of_kl = sweep_run(run, "zero", [0, 20], metric="kl")
    on_tokens = sweep_run(run, "zero", [20], frozen=True, metric=rank, tokens=torch.arange(1, 25).view(2, 12))
    kl, ranked = run.own_effects
    app = open_page("ablate", run="swept", step=20, section="heads")
    box = app.selectbox(key="metric_box")
    assert (
        box.options[:2] == ["The loss, in nats", "kl, on the run's probes"] and "rank, on tokens: 2" in box.options[2]
    )
    box.set_value(kl).run()
    assert app.session_state["selection"].metric == kl and not app.exception
    for probe, title in (("repeat", "Repeated tokens"), ("text", "Text")):
        cue = _cue(app, f"sweep_own_{probe}")
        np.testing.assert_allclose(cue["values"], of_kl["effect"].sel(step=20, probe=probe, mode="zero"), rtol=1e-5)
        assert (cue["title"], cue["scale"]["unit"], cue["scale"]["label"]) == (title, "nats", "Change")
    assert "of the next token when the head is off, at step 20. Above 0: higher with that" in written(app)
    app = open_page("ablate", run="swept", step=20, mode="mean", section="when", metric=kl)
    header, arrays, _ = sent(app, "when_effect")
    lines = header["lo"] + arrays["lines"] / 65534 * (header["hi"] - header["lo"])
    np.testing.assert_allclose(
        lines, of_kl["effect"].sel(mode="zero", probe="repeat").values.reshape(2, 8).T, atol=1e-5
    )
    assert "repeated tokens, zero ablation. Above 0" in written(app) and "sweep_run" not in {b.key for b in app.button}
    app = open_page("ablate", run="swept", step=0, section="heads", metric=ranked)
    found = on_tokens["effect_frozen"].sel(mode="zero", probe="tokens", step=20)
    np.testing.assert_allclose(_cue(app, "sweep_own_tokens")["values"], found, rtol=1e-5)
    assert "at step 20, patterns held as they were" in written(app)
    assert open_page("ablate", run="swept", section="heads", metric="gone").session_state["selection"].metric == ""


def test_what_a_run_holds_while_it_trains_is_held_on_the_page(
    open_page: Open, workplace: Path, small_run: Run, tmp_path: Path
) -> None:
    config = replace(small_run.config, run=str(tmp_path / "r"), clamp=("L0H1 off", "L1H2 previous 10:"), steps=20)
    run = train(config, quiet=True)
    setup = setup_of(run, ((0, 1),))
    recorded = run.trace.sel(step=20)
    before = ablation.clean(run, 20)
    assert before["repeat"] == pytest.approx(float(recorded["repeat_loss"]), abs=1e-5)
    assert before["text"] == pytest.approx(float(recorded["val_loss"]), abs=1e-5)
    assert [cost.change.mean for cost in ablation.costs(setup).values()] == [0, 0], "it is off already"
    assert ablation.sweep(run, 20, "zero", False)["text"].effect[0, 1] == 0
    scores, _ = ablation.induction(setup)
    np.testing.assert_allclose(scores, recorded["induction"], atol=1e-5)
    app = open_page("ablate", run=setup.run)
    assert "This run is clamped at this step: L0H1 off, L1H2 previous 10:. That holds here too" in written(app)
