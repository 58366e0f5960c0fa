"""What takes long of tests/dashboard/test_specimens.py."""

from __future__ import annotations

import time
from pathlib import Path

from dashboard import jobs
from tests.dashboard.test_specimens import nothing  # noqa: F401
from tracer.store import open_run


def test_stopping_the_series_stops_all_of_it(nothing: Path) -> None:
    series = jobs.reproduce(["single-head-scaled", "single-head-residual"])
    first, until = Path("checkpoints/single-head-scaled-small"), time.monotonic() + 300
    while not list((first / "snapshots").glob("[!.]*")):  # the first is kept in the loop, which stops when asked
        assert series.alive and time.monotonic() < until, series.tail()
        time.sleep(0.1)
    assert jobs.reproduce(["four-blocks"]) is series  # one at a time
    jobs.cancel(series)
    assert series.process.wait(300) == 130 and not series.failed
    assert open_run(first).status == "stopped" and not Path("checkpoints/single-head-residual-small").exists()
