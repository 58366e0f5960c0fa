"""The line that says how a run stands: counted, stopped, resumed, forked."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs, loading, state
from dashboard.loading.run_summaries import summary
from dashboard.shared import run_bar
from tests.dashboard.words import labels
from tracer.store import Run
from tracer.store.layout import Lock

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]


@pytest.fixture
def live(copy_run: Callable[..., Run]) -> Iterator[Callable[[str], tuple[Run, Lock]]]:
    """live("toy"): a run of 100 steps of which 30 are done, held by this process as by one that trains it."""
    locks = []

    def make(name: str) -> tuple[Run, Lock]:
        run = copy_run(name, status="training")
        path = run.dir / "run.json"
        meta = json.loads(path.read_text())
        path.write_text(json.dumps({**meta, "config": {**meta["config"], "steps": 100}}))
        locks.append(Lock(run.dir))
        return run, locks[-1]

    yield make
    for lock in locks:
        lock.release()


def line(app: AppTest) -> str:
    return next(e.value for e in app.caption if "-badge[" in e.value)


def test_a_training_is_counted_stopped_and_resumed(
    live: Callable[[str], tuple[Run, Lock]], open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the bar says; tests/browser/test_main_job.py stops and resumes one that trains."""
    asked: list[tuple[str, str]] = []
    for deed in ("stop", "resume"):
        monkeypatch.setattr(jobs, deed, lambda run, deed=deed: asked.append((deed, run.name)))
    run, lock = live("toy")
    live("other")
    app = open_page("gradients", run="toy")
    pattern = r":blue-badge\[◐ training\] &nbsp;step 30 of 100 · \d+ (s|min) left · [\d.]+[kM] tokens/s"
    assert re.fullmatch(pattern, line(app)), line(app)
    assert "1 other is training" in [link.proto.label for link in app.get("page_link")]
    assert {"Stop", "Fork"} <= set(labels(app)) and "Resume" not in labels(app)

    app.button(key="stop toy").click().run()
    assert app.button(key="stop toy").label == "Stopping …" and app.button(key="stop toy").disabled
    meta = json.loads((run.dir / "run.json").read_text())
    (run.dir / "run.json").write_text(json.dumps({**meta, "status": "stopped"}))
    lock.release()
    app.run()
    assert line(app) == ":gray-badge[■ stopped] &nbsp;step 30 of 100" and "Stop" not in labels(app)

    app.button(key="resume toy").click().run()
    assert not app.exception and asked == [("stop", "toy"), ("resume", "toy")]


def test_speed_is_tokens_of_a_step_over_its_time(small_run: Run) -> None:
    config, trace = small_run.config, small_run.trace
    per_step = config.optim.batch_size * config.model.n_ctx
    ms = float(np.median(trace["step_ms"].values[-8:]))
    assert run_bar.tokens_per_second(small_run, summary(small_run).step_ms) == pytest.approx(1000 * per_step / ms)


def test_pace_counts_down(small_run: Run) -> None:
    facts = replace(summary(small_run), step=10, steps=30, step_ms=1000.0)
    assert run_bar.pace(small_run, facts).startswith("20 s left · ")
    assert run_bar.pace(small_run, replace(facts, steps=1210)).startswith("20 min left · ")
    assert "left" not in run_bar.pace(small_run, replace(facts, steps=None))


@pytest.mark.parametrize(
    ("status", "said", "offered"),
    [
        ("finished", ":green-badge[✓ finished] &nbsp;30 steps", {"Fork"}),
        ("diverged", ":red-badge[✕ diverged] &nbsp;step 30 of 30", {"Fork"}),
        ("stopped", ":gray-badge[■ stopped] &nbsp;step 30 of 30", {"Resume", "Fork"}),
        ("training", ":orange-badge[◌ interrupted] &nbsp;step 30 of 30", {"Resume", "Fork"}),
    ],
)
def test_what_is_said_and_offered_of_a_run_that_stands(
    status: str, said: str, offered: set[str], open_page: Open, copy_run: Callable[..., Run]
) -> None:
    copy_run("other", status=status)
    app = open_page("training", run="other")
    assert line(app) == said
    assert {"Stop", "Resume", "Fork"} & set(labels(app)) == offered


def test_a_full_disk_is_told_where_resume_is_pressed(
    open_page: Open, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_run("other", status="stopped")
    app = open_page("training", run="other")

    def full(run: Run) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "resume", full)
    app.button(key="resume other").click().run()
    assert not app.exception and any("No space left on device" in text.value for text in [*app.text, *app.error])


def test_one_step_is_one(open_page: Open, copy_run: Callable[..., Run]) -> None:
    shutil.rmtree(copy_run("other", step=1).dir / "trace.zarr")
    assert line(open_page("training", run="other")) == ":green-badge[✓ finished] &nbsp;1 step"
    assert "1 step" in [caption.value for caption in open_page("runs").caption]


def test_layers_that_their_author_numbers_otherwise_are_named(elsewhere: Path, open_page: Open) -> None:
    """A path is text, whatever it holds; where the numbers are the same, nothing is said."""
    assert not [text.value for text in open_page("training", run="gpt").text if "L0 is" in text.value]
    other = shutil.copytree(elsewhere / "checkpoints" / "gpt", elsewhere / "checkpoints" / "odd")
    meta = json.loads((other / "run.json").read_text())
    for number, layer in enumerate(meta["layers"]):
        layer["name"] = f"*h*.{2 * number + 1}.attn"
    (other / "run.json").write_text(json.dumps(meta))
    said = [text.value for text in open_page("training", run="odd").text]
    shutil.rmtree(other)
    assert any(text.startswith("L0 is *h*.1, L1 is *h*.3") for text in said)


def test_fork_opens_the_form_with_run_and_step(workplace: Path, small_run: Run) -> None:
    app, where = AppTest.from_file(str(APP), default_timeout=300).run(), str(small_run.dir.resolve())
    app.button(key="open tiny").click().run()
    app.session_state["selection"] = state.Selection(run="tiny", step=20)
    app.run()
    app.button(key="bar_fork").click().run()
    assert [title.value for title in app.title] == ["Runs"] and not app.exception
    assert app.selectbox(key="fork_run").value == where and app.select_slider(key=f"fork_step {where}").value == 20
    app.button(key="fork_close").click().run()
    assert "fork_close" not in [button.key for button in app.button] and not app.exception


def test_a_run_that_lies_elsewhere_is_forked_itself(
    workplace: Path, tmp_path: Path, small_run: Run, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(jobs, "fork", lambda run, *rest: asked.append(run.dir))
    copy_run("mine")
    shutil.copytree(small_run.dir, tmp_path / "mine")
    app, where = AppTest.from_file(str(APP), default_timeout=300).run(), str((tmp_path / "mine").resolve())
    app.button(key="open tiny").click().run()
    app.session_state["selection"] = state.Selection(run=where, step=20)
    app.run()
    app.button(key="bar_fork").click().run()
    assert sorted(app.selectbox(key="fork_run").options) == sorted(["mine", "tiny", where])
    app.button(key="fork").click().run()
    assert asked == [Path(where)] and not app.exception


def test_live_cards_say_what_is_left(live: Callable[[str], tuple[Run, Lock]], open_page: Open) -> None:
    live("toy")
    app = open_page("runs")
    assert any(re.fullmatch(r"\d+ (s|min) left · [\d.]+[kM] tokens/s", e.value) for e in app.caption)
    assert any(run.live for run in loading.runs())
