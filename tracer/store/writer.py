"""Writing a run directory: one process, one writer, nothing committed is ever lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.files.disk import (
    MOST_LINES,
    append_line,
    checksum,
    clear_partial,
    flush,
    read_bytes,
    read_lines,
    write_bytes,
    write_lines,
)
from tracer.files.sealed import pack
from tracer.store.background import Background
from tracer.store.effects_file import take_back_effects
from tracer.store.layout import Lock, is_locked, resume_path, snapshot_path, state_path, steps_in
from tracer.store.meta import is_edited, read_meta, write_meta
from tracer.store.run import Run
from tracer.store.surveys import take_back_surveys
from tracer.store.trace import TraceWriter, Variable, rows_in

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor

FILES = {
    "run.json", "tokenizer.json", "trace.zarr", "updates.zarr", "probe.safetensors", "snapshots", "states", "resume",
    "log.jsonl", "samples.jsonl", "findings.jsonl", "note.txt", "lock", "effects.zarr", "effects.lock",
    "surveys", "rows", "tensorboard",
}  # fmt: skip
"""All that a run directory holds."""
CLOSED = ("log.jsonl", "samples.jsonl", "findings.jsonl", "trace.zarr/zarr.json", "updates.zarr/zarr.json")
"""What gets its checksum when a run ends."""


class RunWriter:
    """The training side of a run directory. Files are written by one thread, in the order in which they were given."""

    def __init__(self, directory: Path, meta: dict[str, Any], lock: Lock) -> None:
        self.dir, self.meta, self._lock = directory, meta, lock
        self.trace: TraceWriter | None = None
        self.updates: TraceWriter | None = None
        """What is known of every update, not only of those that are recorded."""
        self._logged: set[Any] = set()
        self._sampled: set[Any] = set()
        self._found: set[Any] = set()
        self._background = Background(before=lock.check)

    @property
    def seconds(self) -> float:
        """CPU time that writing took so far, in threads beside the training."""
        return self._background.seconds

    @classmethod
    def create(
        cls, directory: Path, meta: dict[str, Any], tokenizer: Tokenizer | None, overwrite: bool = False
    ) -> RunWriter:
        """Start a new run directory; neither a run nor other files are overwritten, unless `overwrite` says so.

        What a run that ended before its first step left behind holds nothing yet, and is started again.
        """
        if others := _others(directory):
            raise ValueError(f"{directory} holds other files ({', '.join(others[:3])}); choose another name with --run")
        if not overwrite and (what := _held(directory)):
            raise ValueError(
                f"{directory} already holds {what}; choose another name with --run, or replace it with --overwrite"
            )
        directory = directory.absolute()  # a script may change its working directory while it trains
        writer = cls(directory, meta, Lock(directory))
        with writer.abandoned_on_error():
            Lock(directory, "effects.lock", busy="swept").release()
            _clear(directory)
            for folder in ("snapshots", "resume"):
                (directory / folder).mkdir(exist_ok=True)
            flush((directory.parent, directory))
            digests = {}
            if tokenizer is not None:
                content = tokenizer.to_str().encode()
                write_bytes(directory / "tokenizer.json", content, directory)
                digests["tokenizer.json"] = checksum(content)
            writer.status("training", {"digests": digests})
            writer.wait()
        return writer

    @classmethod
    def reopen(cls, run: Run) -> RunWriter:
        """Go on with an existing run."""
        meta, lock = run.meta, Lock(run.dir)
        if is_edited(meta):  # `check` goes on saying so, when run.json has a new checksum of itself
            meta = {**meta, "edited": [*meta.get("edited", []), run.resume_step() or meta.get("step", 0)]}
        writer = cls(run.dir, meta, lock)
        with writer.abandoned_on_error():
            clear_partial(run.dir, but="effects.zarr")
            writer.trace = TraceWriter(run.dir / "trace.zarr")
            if (run.dir / "updates.zarr").exists():
                writer.updates = TraceWriter(run.dir / "updates.zarr")
            writer._logged = {row.get("step") for row in run.log()}
            writer._sampled = {(row.get("step"), row.get("temperature")) for row in run.samples(MOST_LINES)}
            writer._found = {row.get("kind") for row in writer._findings()}
        return writer

    def create_trace(self, n_rows: int, variables: dict[str, Variable], coords: dict[str, Any]) -> None:
        self.trace = TraceWriter.create(self.dir / "trace.zarr", n_rows, variables, coords)

    def create_updates(self, n_rows: int, variables: dict[str, Variable]) -> None:
        self.updates = TraceWriter.create(self.dir / "updates.zarr", n_rows, variables, {})

    def make_room(self, trace: dict[str, Variable], updates: dict[str, Variable] | None = None) -> None:
        """For variables that are not there yet, while the run goes on; the first row with one comes after this."""
        for group, variables in ((self.trace, trace), (self.updates, updates or {})):
            if group is not None and not variables.keys() <= group.names:
                self.wait()  # rows are written in a thread, each with all variables that there are
                group.add(variables)

    def status(self, status: str, facts: dict[str, Any] | None = None) -> None:
        """Say in run.json how the run stands."""
        self.meta = {**self.meta, **(facts or {}), "status": status}
        self._background.later(write_meta, self.dir, self.meta)

    def record(self, step: int, values: dict[str, np.ndarray]) -> None:
        """Buffer one row of the trace; it is written with others when that is due."""
        assert self.trace is not None
        self.trace.append(step, values)
        if self.trace.due():
            self.flush()

    def flush(self) -> None:
        """Hand the buffered rows to the writing thread."""
        for group in (self.updates, self.trace):
            if group is not None:
                self._background.later(group.write, group.take())

    def snapshot(self, step: int, weights: dict[str, Tensor]) -> None:
        """Keep the weights of a step."""
        self._background.later(write_bytes, snapshot_path(self.dir, step), pack(weights), self.dir)

    def keep_state(self, step: int, state: dict[str, Tensor]) -> None:
        """Keep the weights of a step with the optimiser's state."""
        self._background.later(self._write_state, step, pack(state))

    def _write_state(self, step: int, content: bytes) -> None:
        path = state_path(self.dir, step)
        path.parent.mkdir(exist_ok=True)
        flush([self.dir])
        write_bytes(path, content, self.dir)

    def take_back_states(self, after: int) -> list[int]:
        """Remove those of later steps, which a job that goes on from `after` makes anew; the steps of the others."""
        there = steps_in(self.dir / "states")
        for step in there:
            if step > after:
                state_path(self.dir, step).unlink()
        return [step for step in there if step <= after]

    def checkpoint(self, step: int, state: dict[str, Tensor], **facts: Any) -> None:
        """Commit the trace, then keep what `tracer resume` needs; the previous point goes once the new one is there."""
        self.flush()
        self._background.later(self._replace_resume_point, step, pack(state))
        self.status(self.meta["status"], facts | {"step": step})

    def _replace_resume_point(self, step: int, content: bytes) -> None:
        old = steps_in(self.dir / "resume")
        lines = [path for name in CLOSED[:3] if (path := self.dir / name).exists()]
        flush([*lines, self.dir])  # what the new point stands behind is not lost either, nor its names
        write_bytes(resume_path(self.dir, step), content, self.dir)
        for other in old:
            if other != step:
                resume_path(self.dir, other).unlink(missing_ok=True)

    def take_back(self, after: int) -> None:
        """Snapshots of later steps, which a job that goes on from `after` makes anew, and what was found in them."""
        self.take_back_findings(after)
        if not (later := [step for step in steps_in(self.dir / "snapshots") if step > after]):
            return
        lock = Lock(self.dir, "effects.lock", busy="swept")
        try:
            take_back_effects(self.dir, after)
            for step in later:  # its weights last: while they are there, the next job knows what to take back
                take_back_surveys(self.dir, step)
                snapshot_path(self.dir, step).unlink()
        finally:
            lock.release()

    def take_back_findings(self, after: int) -> None:
        """Of rows that a job makes anew which goes on from `after`, that of this step too."""
        if there := self._findings():
            left = [row for row in there if row["step"] < after]
            self._found = {row.get("kind") for row in left}
            write_lines(self.dir / "findings.jsonl", left)

    def _findings(self) -> list[dict[str, Any]]:
        path = self.dir / "findings.jsonl"
        return read_lines(path, {"step": int}) if path.exists() else []

    def keep_probe(self, tensors: dict[str, Tensor]) -> None:
        """Keep the inputs that every record is measured on, so that a resumed job is measured on the same."""
        write_bytes(self.dir / "probe.safetensors", pack(tensors), self.dir)

    def wait(self) -> None:
        """Until everything handed over is on the disk."""
        self._background.wait()

    def log(self, row: dict[str, Any]) -> None:
        """Append a line, unless a run that was resumed logged this step before."""
        self._append("log.jsonl", row, row["step"], self._logged)

    def finding(self, row: dict[str, Any]) -> None:
        """Append what was found to be wrong while the run was made; each kind once."""
        self._append("findings.jsonl", row, row["kind"], self._found)

    def sample(self, row: dict[str, Any]) -> None:
        """Append a sample text, unless it is there from before."""
        self._append("samples.jsonl", row, (row["step"], row["temperature"]), self._sampled)

    def _append(self, name: str, row: dict[str, Any], key: Any, there: set[Any]) -> None:
        if key not in there:
            self._lock.check()
            with self._or_gone():
                append_line(self.dir / name, row)
            there.add(key)

    @contextmanager
    def _or_gone(self) -> Iterator[None]:
        """RunGone, where that is why a file cannot be written."""
        try:
            yield
        except OSError:
            self._lock.check()
            raise

    def close(self, status: str, **facts: Any) -> None:
        """Commit everything, say how it ended, let go of the lock."""
        try:
            self._background.wait()
            self._lock.check()
            with self._or_gone():
                for group in (self.updates, self.trace):
                    if group is not None:
                        group.close()
                names = [name for name in CLOSED if (self.dir / name).exists()]
                flush(self.dir / name for name in names)
                digests = {name: checksum(read_bytes(self.dir / name, self.dir, MOST_LINES)) for name in names}
            self.status(status, {**facts, "digests": {**self.meta.get("digests", {}), **digests}})
            self._background.wait()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the lock without writing: the disk may be full."""
        self._background.stop()
        self._lock.release()

    @contextmanager
    def abandoned_on_error(self) -> Iterator[None]:
        """For what is done before the first step: a start that failed must not keep a run as long as its process."""
        try:
            yield
        except BaseException:
            self.abandon()
            raise


def unused(directory: Path) -> Path:
    """The directory, or the first of name-2, name-3, ... that is free: nothing is ever overwritten."""
    candidate, n = directory, 1
    while candidate.exists() and (_others(candidate) or _held(candidate) or is_locked(candidate)):
        n += 1
        candidate = directory.with_name(f"{directory.name}-{n}")
    return candidate


def _others(directory: Path) -> list[str]:
    return sorted({path.name for path in directory.glob("[!.]*")} - FILES)


def _held(directory: Path) -> str:
    """What a directory holds that must not be lost, in words; empty where a run can begin."""
    if steps_in(directory / "resume"):
        return f"a run; continue it with `tracer resume {directory}`"
    if steps_in(directory / "snapshots"):
        return "weights"
    try:
        if rows_in(directory / "trace.zarr"):
            return "a run"
        ended = (directory / "run.json").exists() and read_meta(directory)["status"] not in ("training", "stopped")
    except ValueError:
        return "a run that cannot be read"
    return "a run" if ended else ""


def _clear(directory: Path) -> None:
    """Remove a run, but for its locks, which are held; run.json goes first: what is half removed is no run."""
    clear_partial(directory)
    for name in ("run.json", *sorted(FILES - {"run.json", "lock", "effects.lock"})):
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
