"""What takes long of tests/dashboard/test_run_bar.py."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest

from dashboard import jobs, loading
from dashboard.loading.run_summaries import summary
from tests.dashboard.test_run_bar import Open, line
from tests.dashboard.words import labels
from tests.waiting import wait
from tracer.store import open_run


@pytest.fixture
def place(none_left: None, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to start in, after that of `open_page`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def begun(name: str) -> bool:
    """Does it train, with a step that was timed?"""
    if not (Path("checkpoints") / name / "run.json").exists():
        return False
    run = open_run(name)
    return run.live and len(run.steps) > 1 and np.isfinite(summary(run).step_ms)


def test_a_training_is_counted_stopped_and_resumed(place: Path, open_page: Open) -> None:
    toy = jobs.train("induction", "toy", seed=0, steps=100_000)
    other = jobs.train("induction", "other", seed=1, steps=100_000)
    wait(lambda: begun("toy") and begun("other"))
    app = open_page("gradients", run="toy")
    pattern = r":blue-badge\[◐ training\] &nbsp;step [\d,]+ of 100,000 · \d+ (s|min) left · [\d.]+[kM] tokens/s"
    assert re.fullmatch(pattern, line(app)), line(app)
    assert "1 other is training" in [link.proto.label for link in app.get("page_link")]
    assert {"Stop", "Fork"} <= set(labels(app)) and "Resume" not in labels(app)

    toy.process.send_signal(signal.SIGSTOP)  # until the page has been seen: it may stop sooner than a page is drawn
    app.button(key="stop toy").click().run()
    assert app.button(key="stop toy").label == "Stopping …" and app.button(key="stop toy").disabled
    toy.process.send_signal(signal.SIGCONT)
    wait(lambda: not toy.alive)
    app.run()
    step = open_run("toy").meta["step"]
    assert line(app) == f":gray-badge[■ stopped] &nbsp;step {step:,} of 100,000"
    assert "Stop" not in labels(app) and other.alive

    app.button(key="resume toy").click().run()
    assert not app.exception and "Resume" not in labels(app)
    (resumed,) = [one for one in jobs.started() if one.command == "resume"]
    wait(lambda: open_run("toy").meta["pid"] == resumed.process.pid)  # until then it is resuming
    app.run()
    assert "training" in line(app) and not app.button(key="stop toy").disabled  # another process, not asked yet


def test_live_cards_say_what_is_left(place: Path, open_page: Open) -> None:
    jobs.train("induction", "toy", seed=0, steps=100_000)
    wait(lambda: begun("toy"))
    app = open_page("runs")
    assert any(re.fullmatch(r"\d+ (s|min) left · [\d.]+[kM] tokens/s", e.value) for e in app.caption)
    assert loading.runs()[0].live
