"""What trackers hold after a run: read back from the files that their own libraries wrote."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import wait
from tracer.diagnosis.findings import Advice, Finding
from tracer.presets import preset
from tracer.tracking import Tracking, scalars
from tracer.tracking.grids import CELL, GAP, grid
from tracer.tracking.scalars import MOST, Readable
from tracer.training.loop import resume, train

META = {"created": "2026-11-22T18:00:00+00:00", "config": {"seed": 3, "optim": {"lr": 0.01, "clip": None}}}
ENTROPY = np.array([[0.5, 1.5], [0.25, np.nan]])
ROW: dict[str, Any] = {
    "train_loss": 2.5, "val_loss": np.float32(3.0), "val_loss_se": 0.1, "step_ms": float("nan"), "entropy": ENTROPY,
    "induction": np.array([[0.0, 0.75], [0.5, np.nan]]), "grad_norm": np.array([3.0, 4.0]),
    "update_ratio": np.array([1e-3, 3e-3]), "resid_rms": np.array([1.0, 2.0, 4.0]),
    "head_grad_norm": np.arange(16.0).reshape(2, 2, 4), "pattern": np.zeros((1, 2, 2, 4, 4)),
}  # fmt: skip
FINDING = Finding("scores", "bad", "Scores outgrew the softmax", 7, ((0, 1),), "it is so", Advice("do this"), "ours")


def test_a_record_by_readable_names() -> None:
    found = scalars(ROW, ["W_E", "W_U"])
    assert found["loss/train"] == 2.5 and found["loss/val"] == 3.0 and "train/step_ms" not in found
    assert found["attn/L0H1/entropy"] == 1.5 and found["attn/L1H0/induction"] == 0.5
    assert "attn/L1H1/entropy" not in found  # no such head
    assert found["param/W_U/grad_norm"] == 4.0 and found["stream/2/resid_rms"] == 4.0
    assert found["attn/L1H0/grad_norm/K"] == 9.0 and len(found) == 2 + 3 + 3 + 2 + 2 + 3 + 16


def test_what_is_sent_of_it() -> None:
    found = Readable()(ROW)
    assert found["train/grad_norm"] == 5.0 and found["train/update_ratio/median"] == 2e-3
    assert [found[f"attn/{of}/entropy"] for of in ("mean", "min", "max")] == [0.75, 0.25, 1.5]
    assert {n for n in found if n.endswith("/entropy")} == {
        f"attn/{x}/entropy" for x in ("mean", "min", "max", "L0H0", "L0H1", "L1H0")
    }


def test_a_thousand_heads_are_a_hundred_curves() -> None:
    readable, dice, sent = Readable(), np.random.default_rng(0), set[str]()
    for _ in range(50):
        row = {name: dice.random((32, 32)) for name in ("entropy", "induction", "previous_token", "max_logit")}
        sent |= (now := set(readable({**ROW, **row})))
        assert {name for name in sent if name.startswith("attn/L")} <= now  # no curve has holes
    assert sum(name.startswith("attn/L") for name in sent) == 4 * MOST and len(sent) < 100


def test_the_picture_of_all_heads() -> None:
    x = np.array([[0.0, 1.0, np.nan], [0.5, 1.0, 1.0]])
    picture = grid(x, 1.0)
    assert picture.shape == (2 * (CELL + GAP), 3 * (CELL + GAP), 3) and picture.dtype == np.uint8
    at = {(i, j): tuple(picture[(1 - i) * (CELL + GAP), j * (CELL + GAP)].tolist()) for i in (0, 1) for j in range(3)}
    assert at[0, 0] == (0xF6, 0xF2, 0xEA) and at[0, 1] == at[1, 1] == (0x6F, 0x42, 0x0B) and at[0, 2] == (255,) * 3


def told(to: str, folder: Path) -> None:
    """Two records, a finding told twice, then the same run once more, as a resumed training tells it."""
    directory = folder / "checkpoints" / "my run"
    tracking = Tracking(to, directory, META)
    tracking.record(0, ROW)
    tracking.record(5, {**ROW, "train_loss": 2.0})
    tracking.alert(FINDING)
    tracking.alert(replace(FINDING, step=8))
    tracking.close(failed=True)
    again = Tracking(to, directory, META)
    again.record(10, {**ROW, "train_loss": 1.5})
    assert list(again._services) == [to]
    again.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tensorboard_event_files(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told("tensorboard", folder)
    events = EventAccumulator(str(folder / "checkpoints" / "my run" / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss/train")] == [(0, 2.5), (5, 2.0), (10, 1.5)]
    assert [e.value for e in events.Scalars("attn/L0H1/entropy")] == [1.5] * 3
    image = events.Images("attn/grid/induction")[0]
    assert (image.width, image.height) == (2 * (CELL + GAP), 2 * (CELL + GAP))
    text = events.Tensors("findings/scores/text_summary")
    assert len(text) == 1 and text[0].step == 7 and b"What helps: do this" in text[0].tensor_proto.string_val[0]
    config = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "http://localhost:8501/training?run=my%20run" in config and "optim.lr: 0.01" in config


def test_mlflow_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (folder / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # else a database, whose library mlflow-skinny leaves out
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    told("mlflow", folder)
    client = mlflow.MlflowClient((folder / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("manyeyes")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    losses = client.get_metric_history(run.info.run_id, "loss/train")
    assert [(m.step, m.value) for m in losses] == [(0, 2.5), (5, 2.0), (10, 1.5)]
    assert run.data.metrics["attn/L0H1/entropy"] == 1.5 and run.info.status == "FINISHED"
    assert run.info.run_name == "my run" and run.data.params["optim.lr"] == "0.01"
    assert run.data.tags["finding.scores"] == "bad: Scores outgrew the softmax, since step 7"
    assert "localhost:8501/training?run=my%20run" in run.data.tags["mlflow.note.content"]
    files = [f.path for f in client.list_artifacts(run.info.run_id, "images")]
    assert any("induction" in path for path in files)
    assert mlflow.active_run() is None  # a run that the team has open is never ended or begun


def leveldb(log: bytes, at: int) -> Iterator[bytes]:
    """The records of a log that begins at byte `at` of a block of 32 kB: crc, length and kind before each part."""
    data, i = b"", 0
    while len(log) - i >= 7:
        if (left := 32768 - (at + i) % 32768) < 7:
            i += left
            continue
        _, length, kind = struct.unpack_from("<IHB", log, i)
        data, i = data + log[i + 7 : i + 7 + length], i + 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield data
            data = b""


@pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is not among the development requirements: 62 MB")
@pytest.mark.filterwarnings("default")
def test_wandb_offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(folder))
    told("wandb", folder)

    def records() -> list[Any]:
        files = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
        return [Record.FromString(data) for path in files for data in leveldb(path.read_bytes()[7:], at=7)]

    wait(lambda: sum(record.HasField("exit") for record in records()) == 2)  # written by a process of its own
    found = records()
    lines = [
        {i.key or "/".join(i.nested_key): i.value_json for i in record.history.item}
        for record in found if record.HasField("history")
    ]  # fmt: skip
    alerts = [record.alert for record in found if record.HasField("alert")]
    names = {record.run.display_name for record in found if record.HasField("run")}
    configs = "".join(update.value_json for record in found for update in record.config.update)
    assert names == {"my run"} and "localhost:8501/training?run=my%20run" in configs
    assert [(json.loads(x["manyeyes/step"]), json.loads(x["loss/train"])) for x in lines] == [
        (0, 2.5), (5, 2.0), (10, 1.5),
    ]  # fmt: skip
    assert json.loads(lines[0]["attn/L0H1/entropy"]) == 1.5
    [alert] = alerts
    assert alert.title == FINDING.title and alert.level == "ERROR" and "since step 7" in alert.text
    assert any(folder.glob("wandb/offline-run-*/files/media/images/attn/grid/induction_*.png"))


@pytest.mark.skipif(find_spec("trackio") is None, reason="trackio asks for an older pillow than this runs with")
@pytest.mark.filterwarnings("default")
def test_trackio_database(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(folder / "trackio"))
    told("trackio", folder)
    [path] = (folder / "trackio").glob("manyeyes*.db")
    with sqlite3.connect(path) as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
        alerts = database.execute("select title, level, step from alerts").fetchall()
    assert [(step, json.loads(m)["loss/train"]) for _, step, m in rows] == [(0, 2.5), (5, 2.0), (10, 1.5)]
    assert all(name.startswith("my run") for name, *_ in rows)
    assert json.loads(rows[0][2])["attn/L0H1/entropy"] == 1.5
    assert [(title.startswith(FINDING.title), level, step) for title, level, step in alerts] == [(True, "error", 7)]


@pytest.mark.parametrize(("to", "message"), [("tensorbord", "not one of wandb, tensorboard, mlflow, trackio")])
def test_a_tracker_that_is_not_there(to: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Tracking(to, tmp_path, META)


def test_a_tracker_that_fails_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = Tracking("tensorboard", tmp_path, META)

    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(tracking._services["tensorboard"], "log", full)
    with pytest.warns(RuntimeWarning, match="tells tensorboard nothing more, training goes on: OSError: No space"):
        tracking.record(0, ROW)
    tracking.record(1, ROW)
    tracking.close()


def test_a_training_and_what_resumes_it(folder: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    toy = preset("induction").config
    config = replace(
        toy, run="toy", steps=6, device="cpu", optim=replace(toy.optim, batch_size=4),
        record=replace(toy.record, every=2, snapshot_every=6, val_rows=2, repeat_rows=2, icl_rows=2),
    )  # fmt: skip
    with pytest.raises(ValueError, match="track='tensorbord' is not one of"):
        train(config, quiet=True, track="tensorbord")
    assert not (folder / "checkpoints").exists()
    train(config, quiet=True, track=["tensorboard"])
    run = resume("toy", steps=8, quiet=True)
    events = EventAccumulator(str(run.dir / "tensorboard")).Reload()
    seen = {e.step: e.value for e in events.Scalars("loss/train")}
    assert seen == dict(zip(run.trace["step"].values.tolist(), run.trace["train_loss"].values.tolist(), strict=True))
    best = [e.value for e in events.Scalars("attn/max/induction")]
    assert best[-1] == pytest.approx(float(run.trace["induction"][-1].max()))
