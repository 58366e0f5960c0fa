"""What takes long of tests/dashboard/test_proof.py."""

from __future__ import annotations

from collections.abc import Callable

from dashboard import jobs
from dashboard.loading import ablation
from tests.dashboard.test_proof import Open
from tracer.store import Run


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
