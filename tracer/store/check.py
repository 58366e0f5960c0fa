"""Is a run whole? Every file is read and compared with what was noted when it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.files.disk import MOST_LINES, checksum, read_bytes, read_json
from tracer.files.sealed import shapes, verify
from tracer.store.layout import NotARun, resume_path, snapshot_path, state_path, steps_in
from tracer.store.meta import is_edited
from tracer.store.remote import bring
from tracer.store.run import Run
from tracer.store.trace import read_trace
from tracer.store.writer import CLOSED

ENDED = ("finished", "stopped", "diverged")


@dataclass
class Report:
    """What was found: `damaged` says of each part what is wrong; `unproven` names parts that hold no checksum, `early`
    those that get theirs when the run ends."""

    damaged: dict[str, str] = field(default_factory=dict)
    unproven: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    read: int = 0
    """Files, arrays of a trace counted as one each."""

    def __str__(self) -> str:
        lines = [f"damaged: {name}: {why}" for name, why in self.damaged.items()]
        for parts, why in (
            (self.unproven, "an earlier version wrote them"), (self.early, "they get theirs when the run ends"),
        ):  # fmt: skip
            if parts:
                some = ", ".join(parts[:3]) + ", ..." * (len(parts) > 3)
                what = f"{len(parts)} of {self.read} parts hold no checksum ({why})"
                lines.append(f"{what}, so only their form was checked: {some}")
        whole = f"whole: {self.read} parts read, nothing missing or changed"
        return "\n".join(lines if self.damaged else [whole, *lines])


def check(directory: Path) -> Report:
    """Read all of a run and say what is damaged; the rest of it stays usable. NotARun where there is none."""
    report = Report()
    try:
        run = Run(directory)
    except ValueError as error:
        if not (directory / "run.json").exists():
            raise
        report.damaged["run.json"] = str(error)
        return report
    parts: list[tuple[str, Any]] = [("run.json", lambda: _meta(run)), *_texts(run), *_weights(run)]
    begun = bool(steps_in(run.dir / "snapshots") or steps_in(run.dir / "resume"))  # then a row was committed, too
    for name, must_be in (("trace.zarr", begun), ("updates.zarr", False)):
        if must_be or (run.dir / name).exists():
            parts += _arrays(run, name, run.dir / name)
    for folder in sorted((run.dir / "effects.zarr").glob("[!.]*")):
        parts += _arrays(run, f"effects.zarr/{folder.name}", folder)
    for name, prove in parts:
        report.read += 1
        try:
            if prove() is False:
                early = name in CLOSED and run.meta["status"] not in ENDED
                (report.early if early else report.unproven).append(name)
        except FileNotFoundError:
            report.damaged[name] = "it is missing"
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            report.damaged[name] = str(error)
    return report


def _meta(run: Run) -> bool:
    meta = run.meta
    noted = meta.get("digests", {}).get("run.json")
    if is_edited(meta):
        raise ValueError("it was changed after manyeyes wrote it")
    if steps := meta.get("edited"):
        raise ValueError(f"it had been changed by hand when the run went on from step {', '.join(map(str, steps))}")
    _ = run.about
    for what, there in (("snapshot", run.steps), ("state", run.state_steps)):
        named = {step for step in meta.get(f"{what}_steps", []) if step <= _last(run)}
        if missing := sorted(named.difference(there)):
            raise ValueError(f"it names {what}s that are not there: {', '.join(map(str, missing[:5]))}")
    if meta["status"] in ENDED and meta.get("step") and run.resume_step() is None and run.can("resume"):
        raise ValueError("it names a point to go on from, and resume/ holds none: only `tracer resume` needs it")
    return noted is not None


def _last(run: Run) -> int:
    """The step up to which all snapshots must be there: a run that goes on, or died, notes it at its resume point."""
    return run.meta["step"] if run.meta["status"] == "finished" else (run.resume_step() or 0) - 1


def _texts(run: Run) -> Iterator[tuple[str, Any]]:
    """Files that run.json holds a checksum of; a training that goes on has not noted its logs yet."""
    digests = run.meta.get("digests", {})
    for name in ("tokenizer.json", *CLOSED):
        noted = digests.get(name) if name == "tokenizer.json" or run.meta["status"] in ENDED else None
        if noted is not None or (run.dir / name).exists():
            yield name, lambda name=name, noted=noted: _text(run, name, noted)


def _text(run: Run, name: str, noted: str | None) -> bool:
    content = read_bytes(run.dir / name, run.dir, MOST_LINES)
    if noted is not None and checksum(content) != noted:
        raise ValueError("its checksum is not the one in run.json")
    if name == "tokenizer.json":
        _ = run.tokenizer
    return noted is not None


def _weights(run: Run) -> Iterator[tuple[str, Any]]:
    for folder, path_of in (("snapshots", snapshot_path), ("states", state_path), ("resume", resume_path)):
        for step in steps_in(run.dir / folder):
            path = path_of(run.dir, step)
            name = str(path.relative_to(run.dir))
            yield name, lambda path=path: shapes(bring(path), run.dir) and verify(path, run.dir)
    answers = [path for folder in ("surveys", "rows") for path in sorted((run.dir / folder).glob("[!.]*"))]
    others = [run.dir / "probe.safetensors", *answers]
    for path in filter(Path.exists, others):
        yield str(path.relative_to(run.dir)), lambda path=path: verify(path, run.dir)


def _arrays(run: Run, name: str, folder: Path) -> Iterator[tuple[str, Any]]:
    """Each array of a trace: all its chunks, one at a time."""
    try:
        rows = read_trace(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        yield name, lambda error=error: _raise(error)
        return
    from tracer.store.chunks import MOST_METADATA, layout

    kinds, _ = layout(folder)
    ended = run.meta["status"] in ENDED and not run.live and not name.startswith("effects")
    if ended and kinds["step"].shape != (rows.sizes["step"],):
        lost = kinds["step"].shape[0] - rows.sizes["step"]
        yield f"{name}/step", lambda: _raise(ValueError(f"{lost} of its rows are missing"))
    group = read_json(folder / "zarr.json", run.dir, MOST_METADATA)
    told, copies = group["consolidated_metadata"], group["consolidated_metadata"]["metadata"]
    if told.get("kind") != "inline" or told.get("must_understand") is not False:
        yield f"{name}/zarr.json", lambda: _raise(ValueError("it says what zarr never writes"))
    if not _names_coordinates(group.get("attributes"), copies):
        yield f"{name}/zarr.json", lambda: _raise(ValueError("the coordinates that it names are not those it holds"))
    there = {path.parent.name for path in folder.glob("*/zarr.json")}
    if (ended or name.startswith("effects")) and (unknown := sorted(there - copies.keys())):
        yield f"{name}/zarr.json", lambda: _raise(ValueError(f"it does not know of {', '.join(unknown[:3])}"))
    for variable in sorted(copies):
        path = folder / variable / "zarr.json"
        yield f"{name}/{variable}/zarr.json", lambda path=path, copy=copies[variable]: _same(run, path, copy, ended)
    for variable in sorted(map(str, rows.variables)):
        yield f"{name}/{variable}", lambda variable=variable: _array(rows[variable], kinds[variable])


def _names_coordinates(attributes: Any, arrays: dict[str, Any]) -> bool:
    """Are they the arrays that are not over steps?"""
    named = attributes.get("coordinates") if isinstance(attributes, dict) else None
    fixed = {name for name, one in arrays.items() if "step" not in (one.get("dimension_names") or ())}
    return isinstance(named, str) and set(named.split()) == fixed


def _same(run: Run, path: Path, copy: Any, ended: bool) -> bool:
    """Array and group agree; on the number of rows only where no writer may have died between the two."""
    from tracer.store.chunks import MOST_METADATA

    own = read_json(path, run.dir, MOST_METADATA)
    if not ended and isinstance(own, dict) and _may_be_rows(own.get("shape"), copy["shape"]):
        own = {**own, "shape": copy["shape"]}
    if json.dumps(own, sort_keys=True) != json.dumps(copy, sort_keys=True):  # in Python, True is 1
        raise ValueError("it and its copy in the group's zarr.json differ")
    return True


def _may_be_rows(shape: Any, copy: list[int]) -> bool:
    """The same array with other rows?"""
    from tracer.store.chunks import MOST_ROWS

    return isinstance(shape, list) and len(shape) == len(copy) and shape[1:] == copy[1:] and (
        not shape or type(shape[0]) is int and 0 < shape[0] <= MOST_ROWS
    )  # fmt: skip


def _array(values: Any, kind: Any) -> bool:
    for at in range(0, values.shape[0] if values.ndim else 0, kind.chunk[0] if kind.chunk else 1):
        _ = values[at : at + kind.chunk[0]].values
    return kind.checked


def _raise(error: Exception) -> None:
    raise NotARun(str(error)) from error
