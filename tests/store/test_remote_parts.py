"""What is fetched of a run elsewhere, by lists of files as stores give them; real servers: tests/store/thorough."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tracer.files.disk import Damaged
from tracer.store import Run, copies, open_run, remote
from tracer.store.layout import snapshot_path

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Store:
    """A file system of fsspec: `files` are sizes and marks by path."""

    def __init__(self, files: dict[str, dict[str, Any]], contents: dict[str, Any] | None = None) -> None:
        self.files = {path: {"type": "file", "size": 1, **info} for path, info in files.items()}
        self.contents, self.asked = contents or {}, list[Any]()

    def invalidate_cache(self) -> None:
        pass

    def find(self, root: str, detail: bool, **how: Any) -> dict[str, dict[str, Any]]:
        self.asked.append(how)
        return self.files

    def cat_ranges(self, paths: list[str], start: int, ends: list[int], on_error: str) -> list[Any]:
        self.asked.append((paths, start, ends))
        found = (self.contents[path] for path in paths)
        return [x[start:end] if isinstance(x, bytes) else x for x, end in zip(found, ends, strict=True)]


def test_files_of_a_run_and_their_marks() -> None:
    store = Store({
        "b/r/run.json": {"ETag": "e1", "LastModified": NOW - timedelta(hours=1)},
        "b/r/trace.zarr/entropy/c.0.0": {"etag": "e2", "size": 7},
        "b/r/snapshots/000010.safetensors": {"blob_id": "e3", "size": 10**9},
        "b/r/.hidden": {}, "b/r/other.txt": {}, "b/r/trace.zarr/.zattrs": {}, "b/r/snapshots": {"type": "directory"},
    })  # fmt: skip
    found, newest = remote._list(store, "b/r")
    assert found == {
        "run.json": [1, "e1"], "trace.zarr/entropy/c.0.0": [7, "e2"], "snapshots/000010.safetensors": [10**9, "e3"],
    }  # fmt: skip
    assert newest == (NOW - timedelta(hours=1)).timestamp() and store.asked == [{}]


def test_a_time_of_whole_seconds_may_hide_a_change() -> None:
    """A file of the last two seconds may be written once more within one of them."""
    times = [NOW - timedelta(seconds=ago) for ago in (0, 1.9, 2.1, 50)]
    store = Store({f"r/log.jsonl/{n}": {"mtime": time} for n, time in enumerate(times)})
    found, _ = remote._list(store, "r")
    assert [mark[1][-1] for mark in found.values()] == ["?", "?", str(times[2])[-1], str(times[3])[-1]]


@pytest.mark.parametrize(
    ("path", "info", "words"),
    [
        ("r/../x", {}, "leads out of the run's own folder"), ("r/a\\b", {}, "leads out"),
        ("q/run.json", {}, "leads out"),
        ("r/run.json", {"size": 2**40}, "1,099,511,627,776 bytes, more than the"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_a_run(path: str, info: dict[str, Any], words: str) -> None:
    with pytest.raises(Damaged, match=words):
        remote._list(Store({path: info}), "r")


@pytest.mark.parametrize("of", ["/", "."])  # as earlier formats have it, and as today's has
def test_only_the_last_rows_of_a_trace_are_looked_at_again(of: str) -> None:
    """Chunks before the last of an array, and snapshots, are as they were; traces that stand still as a whole."""
    a, b = "trace.zarr/a/", "updates.zarr/b/"
    before: remote.Listing = {name: [1, "m"] for name in (
        f"{a}zarr.json", f"{a}c{of}0{of}0", f"{a}c{of}0{of}1", f"{a}c{of}1{of}0", f"{a}c{of}2{of}0", f"{b}c/0",
        f"{b}c/1", "run.json",
    )}  # fmt: skip
    before[f"{a}c{of}1{of}0"] = [1, "m?"]
    same, known = remote._open(before, [])
    assert set(same) == {f"{a}c{of}0{of}0", f"{a}c{of}0{of}1", f"{b}c/0"}
    assert known == {a: [f"{a}zarr.json", f"{a}c{of}1{of}0", f"{a}c{of}2{of}0"], b: [f"{b}c/1"]}
    same, known = remote._open(before, ["trace.zarr"])
    assert set(same) == {name for name in before if name.startswith(a)} | {f"{b}c/0"}
    assert known == {"trace.zarr/": [], b: [f"{b}c/1"]}
    weights: remote.Listing = {"snapshots/000010.safetensors": [5, "s"], "snapshots/000020.safetensors": [5, "s?"]}
    store = Store({})
    remote._list(store, "r", {**before, **weights})
    assert store.asked[0]["sure"] == {"snapshots/000010.safetensors": [5, "s"]} and set(store.asked[0]["known"]) == {
        a,
        b,
    }


def test_traces_that_nobody_wrote_to(tmp_path: Any) -> None:
    job = b'{"created": "x", "host": "h", "pid": 1, "step": 5}'
    room: remote.Listing = {f"{top}.zarr/step/c/{n}": [1, "m"] for top in ("trace", "updates") for n in (0, 1)}
    (tmp_path / "run.json").write_bytes(job)
    for name in room:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"old")
    heads = {"run.json": job.replace(b"5", b"6"), **dict.fromkeys(room, b"old")}
    assert remote._unmoved(tmp_path, heads, room) == ["trace.zarr", "updates.zarr"]
    assert remote._unmoved(tmp_path, {**heads, "updates.zarr/step/c/1": b"new"}, room) == ["trace.zarr"]
    assert remote._unmoved(tmp_path, {**heads, "trace.zarr/step/c/0": b"new"}, room) == ["updates.zarr"]
    for other in (b'"pid": 2', b"{"):
        assert remote._unmoved(tmp_path, {**heads, "run.json": job.replace(b'"pid": 1', other)}, room) is None


def test_what_changed_meanwhile_is_left_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte more than was listed is asked for; logs may have grown. As many at a time as fit into TOGETHER."""
    monkeypatch.setattr(remote, "TOGETHER", 10)
    sizes = {"a": 4, "grown": 4, "log.jsonl": 2, "empty": 0, "gone": 6, "large": 30, "trace.zarr/step/c/0": 1}
    listing: remote.Listing = {name: [size, ""] for name, size in sizes.items()}
    contents = {"r/a": b"1234", "r/grown": b"12345", "r/log.jsonl": b"123456", "r/gone": FileNotFoundError(),
                "r/large": b"x" * 30, "r/trace.zarr/step/c/0": b"12"}  # fmt: skip
    store = Store({}, contents)
    found = remote._fetch(store, "r", listing, list(listing))
    assert found == {"empty": b"", "a": b"1234", "log.jsonl": b"123", "large": b"x" * 30, "trace.zarr/step/c/0": b"12"}
    assert store.asked == [
        (["r/trace.zarr/step/c/0"], 0, [2]), (["r/large"], 0, [31]),
        (["r/gone", "r/log.jsonl"], 0, [7, 3]), (["r/grown", "r/a"], 0, [5, 5]),
    ]  # fmt: skip
    with pytest.raises(OSError, match="r/a cannot be fetched: no"):
        remote._fetch(Store({}, {"r/a": PermissionError("no")}), "r", listing, ["a"])


@pytest.mark.parametrize(("ago", "alive"), [(1, True), (-1, True), (10_000, False), (-10_000, False)])
def test_a_file_of_tomorrow_is_no_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ago: float, alive: bool
) -> None:
    """Seconds since the newest file at the URL was written, by that machine's clock."""
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path))
    copy = tmp_path / "remote" / "x" / "run"
    copy.mkdir(parents=True)
    copy.with_name(".run.json").write_text(json.dumps({"newest": time.time() - ago}))
    assert copies.alive(copy) is alive


@pytest.fixture
def shelf(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """s3://shelf is the folder of `run`, an empty cache, and whether each list was of all files."""
    from fsspec.implementations.local import LocalFileSystem

    class Shelf(LocalFileSystem):
        protocol: Any = ("http", "https")  # whose lists take one request a file, so that a refresh does without

        def find(
            self, path: str, maxdepth: Any = None, withdirs: bool = False, detail: bool = False, **how: Any
        ) -> Any:
            whole.append(not how)
            return super().find(path, detail=detail)

    whole: list[bool] = []
    monkeypatch.setenv("MANYEYES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "_store", lambda url: (Shelf(), url.replace("s3://shelf", str(run.dir.parent))))
    return whole


def test_a_refresh_lists_what_may_have_changed(run: Run, shelf: list[bool]) -> None:
    there = open_run("s3://shelf/r")
    assert there.trace.identical(run.trace) and shelf == [True] * len(shelf)
    del shelf[:]
    with (run.dir / "log.jsonl").open("a") as f:
        f.write('{"step": 99}\n')
    assert there.refresh().log()[-1] == {"step": 99} and shelf == [False]


def test_weights_are_fetched_when_they_are_asked_for(run: Run, shelf: list[bool]) -> None:
    there = open_run("s3://shelf/r")
    step = run.steps[0]
    path = snapshot_path(there.dir, step)
    assert not path.exists()
    assert remote.bring(path) == path and path.read_bytes() == snapshot_path(run.dir, step).read_bytes()
    later = snapshot_path(run.dir, run.steps[1])
    later.write_bytes(later.read_bytes() + b"more")  # since the list was made
    with pytest.raises(Damaged, match="changed while it was fetched: open the run again"):
        remote.bring(snapshot_path(there.dir, run.steps[1]))
    assert not snapshot_path(there.dir, run.steps[1]).exists()
    here = snapshot_path(run.dir, 99)
    assert remote.bring(here) == here and not here.exists()  # of a run that is no copy


def test_of_a_folder_the_copies_of_all_runs_are_fetched(run: Run, shelf: list[bool]) -> None:
    shutil.copytree(run.dir, run.dir.with_name("q"))
    shutil.copytree(run.dir, run.dir.with_name("cut"))
    (run.dir.with_name("cut") / "run.json").unlink()
    at = remote.fetch("s3://shelf")
    assert sorted(path.name for path in at.iterdir() if not path.name.startswith(".")) == ["q", "r"]
    assert Run(at / "q").trace.identical(run.trace)


def test_only_a_machine_whose_key_is_known_is_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paramiko = pytest.importorskip("paramiko", reason="it is of the extra `remote`")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    key, other = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    ask = remote._known_hosts()().missing_host_key
    with pytest.raises(OSError, match="does not hold the key of far: connect once with ssh"):
        ask(None, "far", key)
    (tmp_path / ".ssh" / "known_hosts").write_text(f"far {key.get_name()} {key.get_base64()}\n")
    ask(None, "far", key)
    for host, shown in (("far", other), ("elsewhere", key)):
        with pytest.raises(OSError, match=f"does not hold the key of {host}"):
            ask(None, host, shown)
