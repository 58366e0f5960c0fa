"""Writing a run directory: one process, one writer, nothing committed is ever lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.store.background import Background
from tracer.store.layout import Lock, append_line, resume_path, snapshot_path, steps_in, write_bytes, write_json
from tracer.store.run import Run
from tracer.store.trace import TraceWriter, Variable

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer
    from torch import Tensor


FILES = {
    "run.json", "tokenizer.json", "trace.zarr", "updates.zarr", "probe.safetensors", "snapshots", "resume", "log.jsonl",
    "samples.jsonl", "findings.jsonl", "lock", "effects.zarr", "effects.lock",
}  # fmt: skip
"""All that a run directory holds."""


class RunWriter:
    """The training side of a run directory."""

    def __init__(self, directory: Path, meta: dict[str, Any], lock: Lock) -> None:
        self.dir, self.meta, self._lock = directory, meta, lock
        self.trace: TraceWriter | None = None
        self.updates: TraceWriter | None = None
        """What is known of every update, not only of those that are recorded."""
        self._logged = self._sampled = -1
        self._background = Background()

    @classmethod
    def create(cls, directory: Path, meta: dict[str, Any], tokenizer: Tokenizer | None) -> RunWriter:
        """Start a new run directory; neither a run nor other files are ever overwritten.

        What a run that ended before its first step left behind holds nothing yet, and is started again.
        """
        if others := sorted({path.name for path in directory.glob("[!.]*")} - FILES):
            raise ValueError(f"{directory} holds other files ({', '.join(others[:3])}); choose another name with --run")
        if steps_in(directory / "resume") or steps_in(directory / "snapshots"):
            raise ValueError(
                f"{directory} already holds a run; continue it with `tracer resume {directory}`, "
                f"choose another name with --run, or remove the directory"
            )
        directory = directory.absolute()  # a script may change its working directory while it trains
        lock = Lock(directory)
        for folder in ("snapshots", "resume"):
            (directory / folder).mkdir(exist_ok=True)
        if tokenizer is not None:
            write_bytes(directory / "tokenizer.json", tokenizer.to_str().encode())
        writer = cls(directory, meta, lock)
        writer.status("training")
        return writer

    @classmethod
    def reopen(cls, run: Run) -> RunWriter:
        """Go on with an existing run."""
        lock = Lock(run.dir)
        writer = cls(run.dir, run.meta, lock)
        writer.trace = TraceWriter(run.dir / "trace.zarr")
        if (run.dir / "updates.zarr").exists():
            writer.updates = TraceWriter(run.dir / "updates.zarr")
        writer._logged = max((row["step"] for row in run.log()), default=-1)
        writer._sampled = max((row["step"] for row in run.samples()), default=-1)
        return writer

    def create_trace(self, n_rows: int, variables: dict[str, Variable], coords: dict[str, Any]) -> None:
        self.trace = TraceWriter.create(self.dir / "trace.zarr", n_rows, variables, coords)

    def create_updates(self, n_rows: int, variables: dict[str, Variable]) -> None:
        self.updates = TraceWriter.create(self.dir / "updates.zarr", n_rows, variables, {})

    def status(self, status: str, facts: dict[str, Any] | None = None) -> None:
        """Say in run.json how the run stands."""
        self.meta = {**self.meta, **(facts or {}), "status": status}
        write_json(self.dir / "run.json", self.meta)

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
        self._background.later(write_bytes, snapshot_path(self.dir, step), _pack(weights))

    def checkpoint(self, step: int, state: dict[str, Tensor], **facts: Any) -> None:
        """Commit the trace, then keep what `tracer resume` needs; the previous point goes once the new one is there."""
        self.flush()
        self._background.later(self._replace_resume_point, step, _pack(state))
        self._background.later(self.status, self.meta["status"], facts | {"step": step})

    def _replace_resume_point(self, step: int, content: bytes) -> None:
        old = steps_in(self.dir / "resume")
        write_bytes(resume_path(self.dir, step), content)
        for other in old:
            if other != step:
                resume_path(self.dir, other).unlink(missing_ok=True)

    def take_back_snapshots(self, after: int) -> None:
        """Those of later steps, which a job that goes on from `after` makes anew."""
        for step in steps_in(self.dir / "snapshots"):
            if step > after:
                snapshot_path(self.dir, step).unlink()

    def keep_probe(self, tensors: dict[str, Tensor]) -> None:
        """Keep the inputs that every record is measured on, so that a resumed job is measured on the same."""
        write_bytes(self.dir / "probe.safetensors", _pack(tensors))

    def wait(self) -> None:
        """Until everything handed over is on the disk."""
        self._background.wait()

    def log(self, row: dict[str, Any]) -> None:
        """Append a line, unless a run that was resumed logged this step before."""
        if row["step"] > self._logged:
            append_line(self.dir / "log.jsonl", row)

    def finding(self, row: dict[str, Any]) -> None:
        """Append what was found to be wrong while the run was made."""
        append_line(self.dir / "findings.jsonl", row)

    def sample(self, row: dict[str, Any]) -> None:
        """Append a sample text, unless it is there from before."""
        if row["step"] > self._sampled:
            append_line(self.dir / "samples.jsonl", row)

    def close(self, status: str, **facts: Any) -> None:
        """Commit everything, say how it ended, let go of the lock."""
        try:
            self._background.wait()
            for group in (self.updates, self.trace):
                if group is not None:
                    group.close()
            self.status(status, facts)
        finally:
            self._background.stop()
            self._lock.release()

    def abandon(self) -> None:
        """Let go of the lock without writing: the disk may be full."""
        self._background.stop()
        self._lock.release()


def _pack(tensors: dict[str, Tensor]) -> bytes:
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
