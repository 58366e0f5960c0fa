"""The trace: rows that are committed, and only those."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from tracer.files.disk import Damaged, clear_partial
from tracer.store import Variable
from tracer.store.trace import TraceWriter, committed, nearest_row, read_trace

VARIABLES = {
    "a": Variable((), ()),
    "b": Variable(("layer", "head"), (2, 3)),
    "pattern": Variable(("query_pos", "key_pos"), (4, 4), "float16"),
}


@pytest.fixture
def writer(tmp_path):
    return TraceWriter.create(tmp_path / "t.zarr", 5, VARIABLES, {"param": (("param",), np.array(["W", "b.c"]), {})})


def row(value) -> dict[str, Any]:
    return {"a": np.float32(value), "b": np.full((2, 3), value), "pattern": np.full((4, 4), value)}


def test_a_writer_that_dies_before_the_arrays_are_laid_out_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("tracer.store.trace._consolidate", lambda *_: sys.exit("killed"))
    with pytest.raises(SystemExit):
        TraceWriter.create(tmp_path / "t.zarr", 5, VARIABLES, {})
    assert not (tmp_path / "t.zarr").exists()
    clear_partial(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_flushed_rows_are_there(writer, tmp_path):
    writer.append(0, row(0.0))
    assert read_trace(tmp_path / "t.zarr")["step"].size == 0
    writer.append(5, {"a": np.float32(1.0)})
    writer.flush()
    trace = read_trace(tmp_path / "t.zarr")
    assert trace["step"].values.tolist() == [0, 5] and trace["param"].values.tolist() == ["W", "b.c"]
    assert trace["a"].values.tolist() == [0.0, 1.0]
    assert np.isnan(trace["b"][1]).all() and (trace["b"][0] == 0).all()


def test_an_array_is_one_folder_and_steps_lie_where_followers_look(writer, tmp_path):
    writer.append(0, row(0.0))
    writer.flush()
    chunks = [path for path in (tmp_path / "t.zarr").rglob("*") if path.is_file() and path.name != "zarr.json"]
    kept = {path.relative_to(tmp_path / "t.zarr").as_posix() for path in chunks}
    assert kept == {"step/c/0", "a/c.0", "b/c.0.0.0", "pattern/c.0.0.0", "param/c.0"}


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


UNWRITABLE = """
import resource, sys
from pathlib import Path
import numpy as np
from tracer.store import Variable
from tracer.store.trace import TraceWriter
writer = TraceWriter.create(Path(sys.argv[1]), 400, {"pattern": Variable(("query_pos", "key_pos"), (64, 64))}, {})
writer.append(0, {"pattern": np.zeros((64, 64))})
writer.flush()
for step in range(1, 400):
    writer.append(step, {"pattern": np.random.default_rng(step).random((64, 64))})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, 1 << 12))  # no chunk fits, and the system says so
try:
    writer.flush()
except OSError as error:
    sys.exit(error.strerror)
"""


def test_chunks_that_cannot_be_written_are_one_error_and_leave_nothing(tmp_path):
    """Each is written by a task of zarr's; where one fails alone, the others complain when the process ends."""
    command = [sys.executable, "-c", UNWRITABLE, str(tmp_path / "t.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.stderr == "File too large\n"
    assert not list(tmp_path.rglob("*.partial"))
    assert read_trace(tmp_path / "t.zarr")["step"].values.tolist() == [0]


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


@pytest.mark.parametrize(("asked", "rows"), [(2, 3), (3, 3), (9, 9)])
def test_room_for_fewer_rows_than_there_are_takes_none_away(writer, tmp_path, asked, rows):
    for step in range(3):
        writer.append(step, row(step))
    writer.flush()
    writer.extend(asked)
    assert read_trace(tmp_path / "t.zarr")["a"].values.tolist() == [0, 1, 2]
    assert writer._step.shape == (rows,)


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


def test_the_row_nearest_to_a_step():
    assert [nearest_row([0, 10], step) for step in (None, -3, 0, 4, 5, 6, 99)] == [1, 0, 0, 0, 0, 1, 1]
    assert nearest_row(np.array([30, 10, 20]), 19) == 2
    assert [nearest_row([0, 10], step) for step in (10**60, -(10**60))] == [1, 0]


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


def told(folder, name, **words):
    """The trace with other metadata of an array, as a stranger may write it."""
    path = folder / "zarr.json"
    meta = json.loads(path.read_text())
    one = meta["consolidated_metadata"]["metadata"][name]
    one |= words | {"attributes": one["attributes"] | words.get("attributes", {})}
    path.write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "words", [{"scale_factor": 2.0}, {"scale_factor": "x"}, {"units": "days since 1970-01-01"}, {"_FillValue": {}}]
)
def test_no_attribute_changes_a_value(writer, tmp_path, words):
    writer.append(3, row(1.5))
    writer.close()
    told(tmp_path / "t.zarr", "a", attributes=words)
    told(tmp_path / "t.zarr", "step", attributes=words)
    found = read_trace(tmp_path / "t.zarr")
    assert found["step"].values.tolist() == [3] and found["a"].values.tolist() == [1.5]


@pytest.mark.parametrize(
    "words",
    [
        *({"fill_value": fill} for fill in (None, 10**400, "x", {})),
        *({"dimension_names": names} for names in ([5], [], None)),
        {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd"}, {"name": "crc32c"}]},
        {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}},
    ],
)
def test_metadata_that_means_nothing_is_damage(writer, tmp_path, words):
    writer.append(3, row(1.5))
    writer.close()
    told(tmp_path / "t.zarr", "step", **words)
    with pytest.raises(Damaged, match=r"t\.zarr/zarr\.json is damaged or not of manyeyes"):
        read_trace(tmp_path / "t.zarr")


@pytest.mark.parametrize("name", ["param", "step"])
def test_what_is_no_variable_is_never_written_over(writer, tmp_path, name):
    writer.append(3, row(1.0))
    writer.flush()
    for opened in (writer, TraceWriter(tmp_path / "t.zarr")):
        with pytest.raises(ValueError, match=f"an array '{name}' that is no variable over steps"):
            opened.add({"new": Variable((), ()), name: Variable((), ())})
        assert name not in opened.names and "new" not in opened.names
    trace = read_trace(tmp_path / "t.zarr")
    assert trace["param"].values.tolist() == ["W", "b.c"] and trace["step"].values.tolist() == [3]


def test_a_variable_that_a_killed_writer_had_begun_is_laid_out_again(tmp_path):
    trace = TraceWriter.create(tmp_path / "t.zarr", 4, {"x": Variable((), ())}, {})
    trace.append(0, {"x": np.array(1.0)})
    trace.flush()
    orphan = tmp_path / "t.zarr" / "y"  # its array is on the disk, the group does not name it yet
    shutil.copytree(tmp_path / "t.zarr" / "x", orphan)
    again = TraceWriter(tmp_path / "t.zarr")
    assert again.names == {"x"} and again.dims("y") is None
    again.add({"y": Variable((), ())})
    again.append(1, {"x": np.array(2.0), "y": np.array(3.0)})
    again.close()
    np.testing.assert_array_equal(read_trace(tmp_path / "t.zarr")["y"].values, [np.nan, 3])


def test_a_chunk_holds_a_sixteenth_of_its_bytes_in_rows_as_long_as_they_are() -> None:
    """4 MB / 16 a chunk: of rows of 1,024 numbers 64 in 32 bits, 32 in 64 bits."""
    shape = (4, 256)
    assert [Variable(("layer", "head"), shape, dtype).chunks()[0] for dtype in ("float32", "float64")] == [64, 32]
    assert Variable(("x",), (3 << 18,)).chunks() == (1, 3 << 18)
