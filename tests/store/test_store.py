"""The run directory: committed rows, broken files, strangers' files, locks."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from tests import children
from tracer.config import RecordConfig
from tracer.presets import preset
from tracer.store import (
    About,
    BrokenSnapshot,
    NewerFormat,
    NotARun,
    RunInUse,
    Variable,
    broken_runs,
    list_runs,
    open_run,
    resolve,
)
from tracer.store.files import append_line, read_lines, write_bytes
from tracer.store.layout import Lock, is_locked, steps_in
from tracer.store.trace import TraceWriter, committed, read_trace
from tracer.training import loop


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    toy = preset("induction").config
    config = replace(
        toy, run=str(tmp_path_factory.mktemp("runs") / "r"), steps=4, device="cpu",
        model=replace(toy.model, d_model=16), optim=replace(toy.optim, batch_size=4),
        record=RecordConfig(every=2, snapshot_every=2, val_rows=2, repeat_rows=4),
    )  # fmt: skip
    return loop.train(config, quiet=True)


@pytest.fixture
def run(trained, tmp_path):
    """A copy that a test may damage."""
    import shutil

    shutil.copytree(trained.dir, tmp_path / "r")
    return open_run(tmp_path / "r")


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, NotARun, "has no run.json"),
        ("{ not json", NotARun, "not readable JSON"),
        ("[]", NotARun, "'format'"),
        ('{"config": {}}', NotARun, "'format'"),
        ('{"format": 99}', NewerFormat, "upgrade manyeyes"),
        ('{"format": 1, "status": "finished"}', NotARun, "has no config, created"),
        ("\xff\xfe", NotARun, "not readable JSON"),
    ],
)
def test_what_is_not_a_run(tmp_path, content, error, words):
    if content is not None:
        (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(error, match=words):
        open_run(tmp_path)
    assert list_runs(tmp_path.parent) == []


def test_broken_runs_are_named_beside_those_that_open(run):
    root = run.dir.parent
    for name, content in (("cut", "{ not json"), ("later", '{"format": 99}'), ("no-run", None)):
        (root / name).mkdir()
        if content is not None:
            (root / name / "run.json").write_text(content)
    assert [one.name for one in list_runs(root)] == ["r"]
    reasons = broken_runs(root)
    assert list(reasons) == ["cut", "later"]
    assert "not readable JSON" in reasons["cut"] and "upgrade manyeyes" in reasons["later"]


def test_about_a_run_of_ours(run):
    assert run.about == About(
        "trained", n_ctx=64, d_vocab=65, period=16, steps=4, row=64, batch_tokens=4 * 64, bos=0, rebuilds=True
    )
    setting = run.about.setting
    assert setting is not None
    assert (setting.n_ctx, setting.period, setting.d_vocab, setting.causal) == (64, 16, 65, True)


FOREIGN = {
    "format": 2, "created": "2026-01-01T00:00:00+00:00", "kind": "watched", "n_params": 5, "status": "finished",
    "step": 3, "class": "TheirModel",
    "layers": [{"name": "enc.0.attn", "kind": "self", "causal": False, "n_heads": 2},
               {"name": "dec.0.cross", "kind": "cross", "causal": False, "n_heads": 2},
               {"name": "dec.0.attn", "kind": "self", "causal": True, "n_heads": 2}],
}  # fmt: skip
FACTS: Any = {"n_ctx": 16, "d_vocab": 9, "period": 7, "steps": 3, "row": 12, "batch_tokens": 32, "bos": 1}


def foreign(directory: Path, **facts):
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps(FOREIGN | facts))
    return open_run(directory)


def test_about_a_run_of_another_model(tmp_path):
    layers, causal = ("enc.0.attn", "dec.0.cross (cross)", "dec.0.attn"), (False, False, True)
    theirs: Any = {"layers": layers, "causal": causal, "author": "TheirModel"}
    nothing_known = About(
        "watched", n_ctx=None, d_vocab=None, period=None, steps=None, row=None, batch_tokens=None, bos=None,
        rebuilds=False, **theirs,
    )  # fmt: skip
    assert foreign(tmp_path / "a").about == nothing_known and nothing_known.setting is None
    everything = About("opened", **FACTS, rebuilds=True, **theirs)
    assert foreign(tmp_path / "b", kind="opened", huggingface={"model_type": "gpt2"}, **FACTS).about == everything
    setting = everything.setting
    assert setting is not None and (setting.n_ctx, setting.period, setting.causal) == (12, 7, False)


def test_why_not(run, tmp_path):
    """Empty where it can be had; a model that cannot be made again, or whose weights are not kept, reads no prompt."""
    assert [run.why_not(what) for what in ("prompts", "recipe", "resume", "entropy_bound", "attribution")] == [""] * 5
    unknown = foreign(tmp_path / "a")
    assert unknown.why_not("prompts") == "The code of this model is not in the run" and not unknown.why_not("training")
    bare = foreign(tmp_path / "b", kind="opened", huggingface={"model_type": "gpt2"})
    assert bare.why_not("prompts") == "This run keeps no weights"
    assert "nothing was trained here" in bare.why_not("training")
    (bare.dir / "snapshots").mkdir()
    (bare.dir / "snapshots" / "000003.safetensors").touch()
    assert bare.why_not("prompts") == "" and bare.why_not("composition") == "" and bare.why_not("recipe")


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"layers": None}, "layers=None"),
        ({"layers": [{}]}, r"layers\.0\.name"),
        ({"layers": ["attn"]}, r"layers\.0='attn'"),
        ({"status": "sleeping"}, "status='sleeping'"),
        ({"n_params": 10**400}, r"n_params=1000.* \.\.\."),
        ({"preset": []}, r"preset=\[\]"),
        ({"step": "3"}, "step='3'"),
        ({"step": True}, "step=True"),
        ({"pid": -1}, "pid=-1"),
        ({"sources": {"x": {"path": "m"}}}, "sources"),
        ({"parent": {"run": "r", "step": -2}}, r"parent\.step=-2"),
        ({"created": "x" * 100}, "created="),
        ({"format": -3}, "format -3, which there is not"),
        ({"format": True}, "no 'format' number"),
    ],
)
def test_what_run_json_cannot_say_is_named(tmp_path, facts, named):
    with pytest.raises(NotARun, match=named):
        foreign(tmp_path / "a", **facts)
    (reason,) = broken_runs(tmp_path).values()
    assert len(reason) < 1000 and list_runs(tmp_path) == []


def test_a_run_of_another_model_has_no_config_of_ours(tmp_path):
    run = foreign(tmp_path / "a", sources={"20": {"path": "m"}, "3": {"path": "m"}})
    assert run.steps == [3, 20], "weights that stayed where they were"
    with pytest.raises(NotARun, match="its configuration is its author's"):
        run.config  # noqa: B018 - the property raises
    with pytest.raises(ValueError, match="recorded from a TheirModel, whose code is not in the run"):
        run.model(20)


def test_a_missing_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotARun, match="does not exist"):
        open_run("nowhere")


def test_names_and_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert str(resolve("demo-0")) == "checkpoints/demo-0"
    assert str(resolve("a/b")) == "a/b"
    assert str(resolve("here")) == "here"
    assert resolve(tmp_path / "x") == tmp_path / "x"


@pytest.mark.parametrize("size", [0, 7, 1000])
def test_a_cut_off_snapshot_names_the_others(run, size):
    path = run.dir / "snapshots" / "000002.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BrokenSnapshot, match=r"cut off or damaged; other steps here: 0, 4"):
        run.model(2)
    assert run.model(4).config.d_model == 16


def test_a_snapshot_of_another_model(run):
    (run.dir / "snapshots" / "000002.safetensors").write_bytes((run.dir / "resume" / "000004.safetensors").read_bytes())
    with pytest.raises(BrokenSnapshot, match="does not fit"):
        run.model(2)


def test_a_half_written_file_is_not_a_snapshot(run):
    (run.dir / "snapshots" / ".000003.safetensors.99.partial").write_bytes(b"half")
    assert run.steps == [0, 2, 4]


def test_a_step_without_snapshot_names_the_nearest(run):
    with pytest.raises(ValueError, match=r"no snapshot of step 3; the nearest is 2"):
        run.model(3)


def test_a_pickle_in_place_of_a_snapshot_never_runs(run, tmp_path):
    """A file from a stranger that would execute code when unpickled."""
    marker = tmp_path / "executed"
    evil = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    (run.dir / "snapshots" / "000002.safetensors").write_bytes(evil)
    with pytest.raises(BrokenSnapshot):
        run.model(2)
    assert not marker.exists()


def test_an_unknown_field_in_run_json_is_named(run):
    meta = run.meta
    meta["config"]["model"]["n_eyes"] = 9
    (run.dir / "run.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError, match="no field n_eyes"):
        open_run(run.dir).config  # noqa: B018 - the property raises


def test_models_are_new_objects(run):
    first, second = run.model(2), run.model(2)
    assert first is not second and first.embed.W_E.data_ptr() != second.embed.W_E.data_ptr()
    assert not first.training


def test_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"step": 1, "text": "é\n"})
    with path.open("a") as f:
        f.write('{"step": 2, "te')
    assert read_lines(path) == [{"step": 1, "text": "é\n"}]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_a_line_after_a_torn_one_is_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"step": 1})
    with path.open("a") as f:
        f.write('{"step": 2, "te')
    append_line(path, {"step": 3})
    assert [row["step"] for row in read_lines(path)] == [1, 3]


def test_a_line_is_strict_json_whatever_the_text(tmp_path):
    path = tmp_path / "log.jsonl"
    append_line(path, {"loss": float("nan"), "entropy": {"0": [1.0, float("inf")]}, "text": "a\u2028b\x85c\x0cd\re"})
    line = path.read_bytes().decode()
    assert "NaN" not in line and "Infinity" not in line
    assert read_lines(path) == [{"loss": None, "entropy": {"0": [1.0, None]}, "text": "a\u2028b\x85c\x0cd\re"}]


def test_write_bytes_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "f"
    write_bytes(path, b"old")
    with pytest.raises(TypeError):
        write_bytes(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["f"]


def test_steps_in_reads_only_complete_names(tmp_path):
    for name in ("000010.safetensors", "000002.safetensors", "x.safetensors", "000003.partial"):
        (tmp_path / name).touch()
    assert steps_in(tmp_path) == [2, 10]


HOLD = """
import sys, time
from pathlib import Path
from tracer.store.layout import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_lives_as_long_as_its_process(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = children.start(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert is_locked(tmp_path)
    with pytest.raises(RunInUse, match="another process"):
        Lock(tmp_path)
    process.kill()
    process.communicate()
    assert not is_locked(tmp_path)
    Lock(tmp_path).release()


def test_readers_never_keep_a_writer_out(tmp_path):
    """The dashboard asks every second or two whether a run is live; a trainer that starts then must get the lock."""
    Lock(tmp_path).release()
    done = threading.Event()

    def ask():
        while not done.is_set():
            is_locked(tmp_path)

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(100):
            Lock(tmp_path).release()
    finally:
        done.set()
        for reader in readers:
            reader.join()


def test_a_run_that_cannot_be_written_can_be_read(run):
    """Another person's, or on read-only media; permissions do not bind root, for whom this shows nothing."""
    for path in (run.dir / "lock", run.dir):
        path.chmod(0o555)
    try:
        assert run.status == "finished" and not run.live and run.trace["step"].size == 4
    finally:
        run.dir.chmod(0o755)


@pytest.mark.parametrize(
    ("part", "name", "words"),
    [
        ("tokenizer", "tokenizer.json", "cut off or damaged"),
        ("trace", "trace.zarr/zarr.json", "the snapshots are untouched"),
    ],
)
def test_a_damaged_file_is_named(run, part, name, words):
    (run.dir / name).write_text("{")
    with pytest.raises(NotARun, match=f"cannot be read.*{words}"):
        getattr(run, part)


VARIABLES = {
    "a": Variable((), ()),
    "b": Variable(("layer", "head"), (2, 3)),
    "pattern": Variable(("query_pos", "key_pos"), (4, 4), "float16"),
}


@pytest.fixture
def writer(tmp_path):
    return TraceWriter.create(tmp_path / "t.zarr", 5, VARIABLES, {"param": (("param",), np.array(["W", "b.c"]), {})})


def row(value):
    return {"a": np.float32(value), "b": np.full((2, 3), value), "pattern": np.full((4, 4), value)}


def test_only_flushed_rows_are_there(writer, tmp_path):
    writer.append(0, row(0.0))
    assert read_trace(tmp_path / "t.zarr")["step"].size == 0
    writer.append(5, {"a": np.float32(1.0)})
    writer.flush()
    trace = read_trace(tmp_path / "t.zarr")
    assert trace["step"].values.tolist() == [0, 5] and trace["param"].values.tolist() == ["W", "b.c"]
    assert trace["a"].values.tolist() == [0.0, 1.0]
    assert np.isnan(trace["b"][1]).all() and (trace["b"][0] == 0).all()


def test_reopening_goes_on_after_the_last_committed_row(writer, tmp_path):
    writer.append(0, row(0.0))
    writer.flush()
    writer.append(1, row(1.0))  # never flushed: the process dies here
    again = TraceWriter(tmp_path / "t.zarr")
    assert again.last_step == 0
    again.append(0, row(9.0))  # passes again through what is there
    again.append(1, row(1.0))
    again.flush()
    trace = read_trace(tmp_path / "t.zarr")
    assert trace["step"].values.tolist() == [0, 1] and trace["a"].values.tolist() == [0.0, 1.0]


def test_data_without_its_step_is_invisible(writer, tmp_path):
    """The process dies between writing the arrays and committing them."""
    writer.append(0, row(0.0))
    writer.flush()
    writer._arrays["a"][1:2] = 7.0
    trace = read_trace(tmp_path / "t.zarr")
    assert trace["a"].values.tolist() == [0.0]
    again = TraceWriter(tmp_path / "t.zarr")
    again.append(1, row(1.0))
    again.flush()
    assert read_trace(tmp_path / "t.zarr")["a"].values.tolist() == [0.0, 1.0]


def test_more_rows_than_planned(writer, tmp_path):
    for step in range(9):
        writer.append(step, row(step))
        writer.flush()
    assert read_trace(tmp_path / "t.zarr")["a"].values.tolist() == list(range(9))


def test_extending_takes_back_the_rows_from_a_step_on(writer, tmp_path):
    for step in range(5):
        writer.append(step, row(step))
    writer.flush()
    writer.extend(8, from_step=4)
    assert read_trace(tmp_path / "t.zarr")["step"].values.tolist() == [0, 1, 2, 3]
    writer.append(4, row(40.0))
    writer.close()
    assert read_trace(tmp_path / "t.zarr")["a"].values.tolist() == [0, 1, 2, 3, 40]


def test_a_trace_of_unknown_length_doubles(tmp_path):
    """Nobody says how long somebody else's training will be."""
    writer = TraceWriter.create(tmp_path / "t.zarr", 2, VARIABLES, {})
    for step in range(5):
        writer.append(10 * step, row(step))
        writer.flush()
    with xr.open_zarr(tmp_path / "t.zarr", chunks=None) as plain:
        assert plain["step"].values.tolist() == [0, 10, 20, 30, 40, -1, -1, -1]
    assert read_trace(tmp_path / "t.zarr")["b"][:, 0, 0].values.tolist() == [0, 1, 2, 3, 4]
    again = TraceWriter(tmp_path / "t.zarr")
    again.append(50, row(5.0))
    again.close()
    with xr.open_zarr(tmp_path / "t.zarr", chunks=None) as plain:
        assert plain["step"].values.tolist() == [0, 10, 20, 30, 40, 50] and plain["a"].values[-1] == 5


@pytest.mark.parametrize(
    ("steps", "rows"), [([], 0), ([-1, -1], 0), ([0, 5, 7], 3), ([0, 5, -1], 2), ([0, -1, 7], 1), ([-1, 7], 0)]
)
def test_committed_rows_end_at_the_first_that_is_only_reserved(steps, rows):
    assert committed(np.array(steps, np.int64)) == rows


def test_steps_in_any_order(tmp_path):
    TraceWriter.create(tmp_path / "t.zarr", 3, VARIABLES, {})
    writer = TraceWriter(tmp_path / "t.zarr", any_order=True)
    for step in (5, 1, 5, 3):
        writer.append(step, row(step))
    writer.flush()
    again = TraceWriter(tmp_path / "t.zarr", any_order=True)
    assert again.steps == {1, 3, 5}
    again.append(3, row(9.0))
    again.append(0, row(0.0))
    again.close()
    trace = read_trace(tmp_path / "t.zarr")
    assert trace["step"].values.tolist() == trace["a"].values.tolist() == [5, 1, 3, 0]


def test_closing_cuts_off_what_was_reserved(writer, tmp_path):
    writer.append(3, row(3.0))
    writer.close()
    with xr.open_zarr(tmp_path / "t.zarr", chunks=None) as plain:
        assert plain["step"].values.tolist() == [3] and plain["b"].shape == (1, 2, 3)


def test_an_unknown_variable_is_our_own_mistake(writer):
    with pytest.raises(AssertionError, match="no variable"):
        writer.append(0, {"c": np.float32(0)})


@pytest.mark.parametrize(
    ("shape", "dtype", "steps"), [((), "float32", 64), ((2, 4), "float32", 64), ((5, 2, 4, 64, 64), "float16", 1)]
)
def test_chunks_hold_many_small_rows_or_one_large(shape, dtype, steps):
    assert Variable(("x",) * len(shape), shape, dtype).chunks()[0] == steps
