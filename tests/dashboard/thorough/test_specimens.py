"""What takes long of tests/dashboard/test_specimens.py."""

from __future__ import annotations

from pathlib import Path

from dashboard import jobs
from tests.dashboard.test_specimens import Open, arguments, nothing  # noqa: F401
from tests.dashboard.words import written
from tests.waiting import wait
from tracer.specimens.systems import TRAINED as TRAINABLE
from tracer.store import open_run


def test_training_all_is_one_series_that_can_be_stopped(open_page: Open, nothing: Path) -> None:
    app = open_page("specimens")
    app.button(key="train_all").click().run()
    series = jobs.reproducing()
    assert series is not None and arguments(series) == ["reproduce", *TRAINABLE]
    assert jobs.started() == [] and app.button(key="train single-head-small").disabled
    assert jobs.reproduce(["four-blocks"]) is series  # one at a time

    def keeps() -> bool:
        """The first snapshot is kept in the loop, which stops when asked."""
        assert series.alive, series.tail()
        return any(Path("checkpoints").glob("*/snapshots/[!.]*"))

    wait(keeps)
    (first,) = Path("checkpoints").glob("*/snapshots")
    app.button(key="stop_series").click().run()
    assert series.process.wait(300) == 130 and not series.failed
    assert open_run(first.parent).status == "stopped" and list(Path("checkpoints").glob("*/snapshots")) == [first]
    app.run()
    assert not app.button(key="train_all").disabled
    assert "Its last words" not in written(app)  # it was told to, wherever it was
