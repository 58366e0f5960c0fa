"""What takes long of tests/watching/test_alerts.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracer
from tests.watching.loops import batches
from tests.watching.test_alerts import sharp
from tracer.store import open_run


def test_trackers_and_loggers_of_a_team_are_told(here: Path, gpt: Callable[..., Any]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told: list[tuple[int, dict[str, float]]] = []
    model = sharp(gpt)
    with tracer.watch(
        model, run="r", every=1, track="tensorboard", on_record=lambda step, row: told.append((step, row))
    ) as recorder:
        for batch in batches(6):
            recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
        assert recorder.off is None and told[-1][1] == recorder.last
    run = open_run("r")
    assert [step for step, _ in told] == run.trace["step"].values.tolist()
    wanted = float(run.trace["entropy"].sel(step=3, layer=1, head=2))
    assert told[3][1]["attn/L1H2/entropy"] == pytest.approx(wanted) and all(
        type(x) is float for x in recorder.last.values()
    )
    events = EventAccumulator(str(run.dir / "tensorboard")).Reload()
    losses = {one.step: one.value for one in events.Scalars("loss/train")}
    assert losses == {step: pytest.approx(row["loss/train"]) for step, row in told[:-1]}
    tags: Any = events.Tags()
    assert any(tag.startswith("findings/") for tag in tags["tensors"])


def test_a_tracker_that_does_not_let_us_in_costs_no_record(
    here: Path, gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://here")
    model = gpt()
    recorder = tracer.watch(model, run="r", every=1, track=["mlflow"])
    with pytest.warns(RuntimeWarning, match="mlflow cannot be started"):
        for batch in batches(2):
            recorder.step(model(batch[:, :-1], batch[:, 1:])[1])
    recorder.close()
    assert recorder.off is None and open_run("r").trace["step"].values.tolist() == [0, 1, 2]
