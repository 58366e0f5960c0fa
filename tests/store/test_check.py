"""`tracer check`: what is damaged is named, and a run that has only begun is whole."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from tests.store.test_writer import sweep
from tracer.diagnosis import diagnose, examine
from tracer.files.sealed import sealed
from tracer.store import NotARun, NothingRecorded, Run
from tracer.store.check import Report, check
from tracer.store.chunks import content_size
from tracer.store.layout import Lock
from tracer.store.meta import write_meta
from tracer.store.row_effects import read_rows, rows_path, rows_there, write_rows
from tracer.store.surveys import newest_survey, read_survey, survey_path, write_survey
from tracer.training.loop import resume


def test_another_size_in_run_json_is_named(run: Run) -> None:
    """It opens, because run.json may be mended by hand; that it is not what was written is said here."""
    assert check(run.dir).damaged == {}
    path = run.dir / "run.json"
    assert path.read_text().startswith('{\n "')  # for people, too
    path.write_text(path.read_text().replace('"n_heads": 4', '"n_heads": 2'))
    assert run.config.model.n_heads == 2
    assert check(run.dir).damaged == {"run.json": "it was changed after manyeyes wrote it"}


def test_a_run_json_that_nobody_can_read_is_damage_and_none_is_no_run(run: Run) -> None:
    (run.dir / "run.json").write_text("{")
    assert "not readable JSON" in check(run.dir).damaged["run.json"]
    (run.dir / "run.json").unlink()
    with pytest.raises(NotARun):
        check(run.dir)


def test_a_run_that_has_not_ended_is_not_said_to_be_of_an_earlier_version(run: Run) -> None:
    """Its logs grow, and get their checksums when it ends; all else of it has one already."""
    assert check(run.dir).unproven == check(run.dir).early == []
    write_meta(run.dir, {**run.meta, "status": "training"})
    found = check(run.dir)
    assert found.unproven == [] and {"log.jsonl", "trace.zarr/zarr.json"} <= set(found.early)
    assert "hold no checksum (they get theirs when the run ends)" in str(found) and "earlier version" not in str(found)


def test_a_run_that_went_on_from_an_edited_file_never_counts_as_whole(run: Run) -> None:
    path = run.dir / "run.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    step = run.resume_step()
    for _ in range(2):  # once more, of what is its own file by then
        resume(run.dir, steps=int(run.meta["config"]["steps"]) + 1, quiet=True)
        said = check(run.dir).damaged["run.json"]
        assert said == f"it had been changed by hand when the run went on from step {step}"


def test_a_run_that_says_it_diverged_and_not_when_is_refused(run: Run) -> None:
    path = run.dir / "run.json"
    path.write_text(path.read_text().replace('"finished"', '"diverged"'))
    with pytest.raises(ValueError, match=f"diverged at step {run.meta['step']}; going on"):
        resume(run.dir)


@pytest.mark.parametrize("name", ["log.jsonl", "tokenizer.json", "trace.zarr/zarr.json"])
def test_a_text_that_grew_is_named(run: Run, name: str) -> None:
    with (run.dir / name).open("a") as f:
        f.write(" ")
    assert check(run.dir).damaged[name].startswith("its checksum is not the one in run.json")


def test_json_knows_no_infinity(run: Run) -> None:
    """Python's own would read it, and others would not."""
    path = run.dir / "run.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": Infinity'))
    with pytest.raises(NotARun, match="not readable JSON"):
        run.meta  # noqa: B018 - the property raises


def test_a_damaged_trace_is_not_an_empty_one(run: Run) -> None:
    (run.dir / "trace.zarr" / "zarr.json").write_text("{")
    assert "trace.zarr" in check(run.dir).damaged
    with pytest.raises(ValueError, match="trace.zarr cannot be read"):
        diagnose(run)


def test_a_damaged_sweep_is_not_a_missing_one(run: Run) -> None:
    with pytest.raises(NothingRecorded, match="has not been swept"):
        run.effects  # noqa: B018 - the property raises
    (run.dir / "effects.zarr" / "zero").mkdir(parents=True)
    with pytest.raises(NotARun, match="remove that folder and sweep again") as damaged:
        run.effects  # noqa: B018 - the property raises
    assert damaged.type is NotARun and "idle heads" in examine(run).not_measured


def test_a_bit_of_a_survey_is_named(run: Run) -> None:
    write_survey(run.dir, "4-ab", {"tokens": np.arange(6)}, "a text")
    found, corpus, _ = read_survey(run.dir, "4-ab") or ({}, "", "")
    assert found["tokens"].tolist() == [0, 1, 2, 3, 4, 5] and corpus == "a text" and check(run.dir).damaged == {}
    path = survey_path(run.dir, "4-ab")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert list(check(run.dir).damaged) == ["surveys/4-ab.safetensors"]
    with pytest.raises(ValueError, match="remove it and survey again"):
        read_survey(run.dir, "4-ab")


def test_a_bit_of_what_rows_did_is_named(run: Run) -> None:
    write_rows(run.dir, name := "2-4-L1H2-induction", {"effect": np.eye(2)}, {"first": 2, "head": "L1H2"})
    arrays, told = read_rows(run.dir, name) or ({}, {})
    np.testing.assert_array_equal(arrays["effect"], np.eye(2))
    assert told == {"first": 2, "head": "L1H2"} and check(run.dir).damaged == {}
    assert rows_there(run.dir) == [name] and read_rows(run.dir, "2-4-L1H1-induction") is None
    path = rows_path(run.dir, name)
    path.with_name("letter.safetensors").write_bytes(path.read_bytes())
    assert rows_there(run.dir) == [name]  # what is called otherwise is no answer
    path.with_name("letter.safetensors").unlink()
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert list(check(run.dir).damaged) == [f"rows/{name}.safetensors"]
    with pytest.raises(ValueError, match="remove it and ask again"):
        read_rows(run.dir, name)
    write_survey(run.dir, "4-ab", {"tokens": np.arange(6)}, "a text")
    survey_path(run.dir, "4-ab").rename(path)
    with pytest.raises(ValueError, match="it does not say what it is.: remove it and ask again"):
        read_rows(run.dir, name)


def test_a_lost_point_to_go_on_from_is_named(run: Run) -> None:
    shutil.rmtree(run.dir / "resume")
    assert list(check(run.dir).damaged) == ["run.json"] and "tracer resume" in check(run.dir).damaged["run.json"]


def test_lost_steps_are_not_an_empty_trace(run: Run) -> None:
    (run.dir / "trace.zarr" / "step" / "c" / "0").unlink()
    assert "a part of what was recorded is lost" in check(run.dir).damaged["trace.zarr"]


def test_a_value_that_zarr_never_writes_is_named(run: Run) -> None:
    path = run.dir / "trace.zarr" / "zarr.json"
    told = path.read_text()
    path.write_text(told.replace('"must_understand": false', '"must_understand": 0.5', 1))
    assert path.read_text() != told and "what zarr never writes" in check(run.dir).damaged["trace.zarr/zarr.json"]


def test_what_a_sweep_says_of_itself_is_proved(run: Run) -> None:
    """Nothing holds a checksum of it, as more steps may be swept at any time."""
    sweep(run, 2, 0)
    group = run.dir / "effects.zarr" / "zero" / "zarr.json"
    step = group.parent / "step" / "zarr.json"
    assert check(run.dir).damaged == {}

    def named(path: Path, change: Callable[[Any], object]) -> bool:
        before = path.read_text()
        told = json.loads(before)
        change(told)
        path.write_text(json.dumps(told))
        found = check(run.dir).damaged
        path.write_text(before)
        return any(name.startswith("effects.zarr/zero") for name in found)

    def copies(told: Any) -> Any:
        return told["consolidated_metadata"]["metadata"]

    changes: list[tuple[Path, Callable[[Any], object]]] = [
        (group, lambda told: told.pop("attributes")),
        (group, lambda told: told["attributes"].update(coordinates="layer")),
        (group, lambda told: told["attributes"].update(coordinates=3)),
        (group, lambda told: told["consolidated_metadata"].update(must_understand=0)),  # which Python takes for False
        *((group, lambda told, name=name: copies(told).pop(name)) for name in ("effect", "layer", "head")),
        *((step, lambda told, rows=rows: told.update(shape=rows)) for rows in ([-1], [True], [0.5], 3, None, [10**9])),
        (step, lambda told: told["codecs"][1]["configuration"].update(checksum=0)),
    ]
    assert [i for i, (path, change) in enumerate(changes) if not named(path, change)] == []
    told = json.loads(step.read_text())
    step.write_text(json.dumps({**told, "shape": [told["shape"][0] + 1]}))  # its writer died between the two copies
    assert check(run.dir).damaged == {}


def test_a_run_that_has_only_begun_is_whole(run: Run) -> None:
    for folder in ("trace.zarr", "snapshots", "states", "resume"):
        shutil.rmtree(run.dir / folder)
    meta = json.loads((run.dir / "run.json").read_text())
    digests = {"tokenizer.json": meta["digests"]["tokenizer.json"]}
    (run.dir / "run.json").write_text(json.dumps({**meta, "status": "training", "step": 0, "digests": digests}))
    found = check(run.dir)
    assert found.damaged == {} and diagnose(run) == []
    there = {one.name for one in run.dir.iterdir() if one.is_file() and one.suffix != ".lock"} - {"lock"}
    assert there == {"log.jsonl", "run.json", "samples.jsonl", "tokenizer.json"}
    assert str(found).startswith("whole: 4 parts read")


@pytest.mark.parametrize(("n", "said"), [(3, "a, b, c"), (4, "a, b, c, ...")])
def test_at_most_three_parts_without_a_checksum_are_named(n: int, said: str) -> None:
    assert str(Report(unproven=list("abcd"[:n]), read=9)) == (
        f"whole: 9 parts read, nothing missing or changed\n{n} of 9 parts hold no checksum (an earlier version wrote "
        f"them), so only their form was checked: {said}"
    )


def test_a_trace_that_is_being_laid_out_is_not_damaged(run: Run) -> None:
    shutil.rmtree(run.dir / "trace.zarr")
    (run.dir / "trace.zarr" / "step").mkdir(parents=True)
    with pytest.raises(ValueError, match="not laid out yet"):
        diagnose(run)
    lock = Lock(run.dir)
    try:
        assert diagnose(run) == []
    finally:
        lock.release()


def test_a_flipped_weight_is_named(run: Run) -> None:
    """Its header is whole, its shapes are right; the checksum is not."""
    path = run.dir / "snapshots" / "000002.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))
    assert list(check(run.dir).damaged) == ["snapshots/000002.safetensors"]
    (run.dir / "snapshots" / "000000.safetensors").unlink()
    with pytest.raises(ValueError, match=r"000002\.safetensors cannot be read .*; other steps here: 4$"):
        run.model(2)
    (run.dir / "snapshots" / "000004.safetensors").unlink()
    with pytest.raises(ValueError, match=r"000002\.safetensors cannot be read .*; there is no other beside it$"):
        run.model(2)


def test_the_newest_survey_is_the_one_that_was_written_last(run: Run) -> None:
    """Not the last by name; and a file of nothing but arrays says of no corpus."""
    for age, name in enumerate(("2-b", "2-a")):
        write_survey(run.dir, name, {"sum": np.zeros(1)}, "some text")
        os.utime(survey_path(run.dir, name), ns=(age, age))
    assert newest_survey(run.dir, 2) == "2-a" and newest_survey(run.dir, 4) is None
    survey_path(run.dir, "2-a").write_bytes(sealed(save({"sum": np.zeros(1)})))
    found = read_survey(run.dir, "2-a")
    assert found is not None and found[1] == ""


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        ("28b52ffd 20 05 00", 5),  # one segment, its size in one byte
        ("28b52ffd 60 0500", 261),  # in two, which begin at 256
        ("28b52ffd 60 05", None),  # cut off
        ("28b52ffd 00 58 00", None),  # says none
        ("28b52ffe 20 05 00", None),  # no frame
        ("28b52ffd a0 05000000", 5),
        ("28b52ffd 21 07 05 00", 5),  # behind a dictionary of one byte
    ],
)
def test_what_a_frame_says_it_holds(frame: str, size: int | None) -> None:
    assert content_size(bytes.fromhex(frame)) == size
