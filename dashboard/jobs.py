"""Training as a process of its own: started from the dashboard, but not part of it, so a reload does not touch it.

Output goes to checkpoints/.logs/<run>.log, for the time before a run directory exists and for mistakes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from dashboard.access import allow
from tracer.config import CORPORA
from tracer.store import ROOT, Run, is_trained_by, resolve
from tracer.store.housekeeping import why_no_name

LOGS = ".logs"
GOOD_ENDS = (0, 3, 4, 130)
"""Exit statuses of work that was done: a run finished, diverged or was stopped, or a claim did not hold."""
NOT_STARTED = 127
"""Exit status of what never ran, as a shell gives it."""
CHECKPOINT = re.compile(r"(?:checkpoint|step|revision)[-_]?(\d+)")
"""Of the folders that `tracer open` takes as steps."""


def processes(said: str) -> int:
    """How many may be at work at a time, as MANYEYES_PROCESSES says it."""
    if not said.isdecimal() or not int(said):
        raise ValueError(f"MANYEYES_PROCESSES={said!r} must be a whole number, 1 or more: processes at work at a time")
    return int(said)


def allowed(said: str | None) -> int:
    """The same, and 4 where nothing is said or something that is no number: then the server's output says so, since
    pages must not fail for it."""
    try:
        return 4 if said is None else processes(said)
    except ValueError as error:
        logging.getLogger("manyeyes").warning("%s. Until then it is 4.", error)
        return 4


PROCESSES = allowed(os.environ.get("MANYEYES_PROCESSES"))
"""At work at a time; more wait for one of these to end."""


class Process:
    """A command in a process of its own, in the words of Popen; it waits while `PROCESSES` others are at work."""

    slots = threading.BoundedSemaphore(PROCESSES)

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.args, self._log, self._environment = command, log, environment
        self._popen: subprocess.Popen[bytes] | None = None
        self._ended: int | None = None
        self._lock = threading.Lock()
        if begun := self.slots.acquire(blocking=False):
            try:
                self._begin()
            except OSError:
                self.slots.release()
                raise
        else:
            log.write_text(f"Waiting: {PROCESSES} processes started here are at work. MANYEYES_PROCESSES allows more.")
        threading.Thread(target=self._see_through, args=(begun,), daemon=True).start()

    def _begin(self) -> None:
        with self._lock:
            if self._ended is None:
                with self._log.open("wb") as output:
                    self._popen = subprocess.Popen(
                        self.args, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                        start_new_session=True, env=self._environment,
                    )  # fmt: skip

    def _see_through(self, begun: bool) -> None:
        try:
            if not begun:
                self.slots.acquire()
                try:
                    self._begin()
                except OSError as error:  # with a place in the queue nobody is there to be told
                    self._ended = NOT_STARTED
                    with contextlib.suppress(OSError):
                        self._log.write_text(f"It could not be started: {error}")
            if self._popen is not None:
                self._popen.wait()
        finally:
            self.slots.release()

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    @property
    def returncode(self) -> int | None:
        return self._popen.returncode if self._popen else self._ended

    def poll(self) -> int | None:
        return self._popen.poll() if self._popen else self._ended

    def wait(self, timeout: float | None = None) -> int | None:
        if self._popen is None and self._ended is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._popen.wait(timeout) if self._popen else self._ended

    def send_signal(self, number: int) -> None:
        """One that still waits never begins, and has ended as one that was stopped."""
        with self._lock:
            if self._popen is None:
                self._ended = 128 + number
                return
        self._popen.send_signal(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass(frozen=True)
class Started:
    """A process that this server started: a training, or the opening of a model."""

    name: str
    directory: Path
    log: Path
    process: Process | subprocess.Popen[bytes]
    command: str = "train"
    """Of the command line: train, resume, fork, open, sweep or reproduce."""
    began: float = field(default_factory=time.monotonic)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def failed(self) -> bool:
        return self.process.poll() not in (None, *GOOD_ENDS)

    @property
    def has_run(self) -> bool:
        """Is there a run directory, which says more than this process's output?"""
        return (self.directory / "run.json").exists()

    def tail(self, n_lines: int = 12) -> str:
        """The last lines of its output, without the control characters of a terminal."""
        text = self.log.read_bytes()[-20_000:].decode("utf-8", "replace") if self.log.exists() else ""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r", "\n"))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-n_lines:])


_STARTED: dict[Path, Started] = {}
_SWEEPS: dict[Path, Started] = {}
"""By the run that is swept: beside a process that trains it."""
_SERIES: list[Started] = []
"""The last `tracer reproduce`, which trains several runs one after the other."""


def train(preset: str, name: str, seed: int, steps: int, *changed: str) -> Started:
    """Start `tracer train` for a new run under checkpoints/, with other options as its command line takes them.

    A ValueError says what is wrong with the name.
    """
    directory = _new(name)
    options = ["--run", str(directory), "--seed", str(seed), "--steps", str(steps), *changed]
    return _start(directory, ["train", preset, *options])


def host() -> str:
    """The name of this machine, as runs keep it."""
    return socket.gethostname()


def why_no_text(corpus: str) -> str:
    """Why no text can be read there; empty where it may be, or where it is a name on the hub."""
    try:
        if corpus in CORPORA or corpus.startswith("hf:") or Path(corpus).expanduser().exists():
            return ""
    except (OSError, ValueError, RuntimeError):  # a name too long, with a zero byte, or of nobody's home
        pass
    return f"there is no file or folder {corpus[:200]!r} on this machine"


def open_model(model: str, revisions: list[str], name: str) -> Started:
    """Start `tracer open` for a Hugging Face model: a local directory, or a name on the hub with some revisions."""
    if not model or model.startswith("-"):
        raise ValueError("name a directory of this machine, or a model of the hub such as gpt2")
    if why := why_no_model(model):
        raise ValueError(why)
    if wrong := [one for one in revisions if one.startswith("-")]:
        raise ValueError(f"{wrong[0]!r} is no revision: a branch, a tag or a commit does not begin with a dash")
    directory = _new(name)
    chosen = ["--revisions", *revisions] if revisions else []
    return _start(directory, ["open", model, *chosen, "--run", str(directory)])


def resume(run: Run) -> Started:
    """Start `tracer resume` for a run that was stopped or killed."""
    return _start(run.dir, ["resume", str(run.dir.resolve())])


def fork(run: Run, step: int, name: str, steps: int, clamp: str = "") -> Started:
    """Start `tracer fork`: a new run from a snapshot, with these clamps, apart by commas, and no others."""
    directory = _new(name)
    if steps <= step:
        raise ValueError(f"{steps} steps leave nothing to train after step {step}: give a larger number")
    clamps = tuple(filter(None, map(str.strip, clamp.split(","))))
    replace(run.config, clamp=clamps)  # refuses what it does not understand before a process starts
    options = ["--step", str(step), "--run", str(directory), "--steps", str(steps), "--clamp", *clamps]
    return _start(directory, ["fork", str(run.dir.resolve()), *options])


def sweep(run: Run) -> Started:
    """Start `tracer sweep`: every head off at every snapshot; what is there already is not computed again."""
    found = sweeping(run)
    if found is not None and found.alive:
        return found
    one = _popen(run.dir, ["sweep", str(run.dir.resolve())], f"{run.dir.resolve().name}.sweep")
    _SWEEPS[run.dir.resolve()] = one
    return one


def sweeping(run: Run) -> Started | None:
    """The sweep of this run that was started here last, also when it has ended."""
    return _SWEEPS.get(run.dir.resolve())


def reproduce(names: list[str]) -> Started:
    """Start `tracer reproduce` for these specimens, in small, one after the other."""
    found = reproducing()
    if found is None or not found.alive:
        _SERIES[:] = [found := _popen(ROOT / LOGS, ["reproduce", *names], "reproduce")]
    return found


def reproducing() -> Started | None:
    """The series that was started here last, also when it has ended."""
    return _SERIES[-1] if _SERIES else None


def cancel(one: Started) -> None:
    """Ask a process of ours to stop after the piece of work at hand; what it has done stays."""
    allow("stop it")
    if one.alive:
        one.process.send_signal(signal.SIGINT)


def stop(run: Run) -> None:
    """Ask a live run to stop after its step, as Ctrl-C does; it writes everything and can be resumed.

    Only a process that holds the run's lock is asked: what run.json says is its author's word.
    """
    allow("stop a run")
    pid, host = run.meta.get("pid"), run.meta.get("host")
    if not run.live:
        raise ValueError(f"{run.name} is not training any more")
    if host != socket.gethostname() or not isinstance(pid, int):
        where = f"on {host}" if isinstance(host, str) else "where its process is not known"
        raise ValueError(f"{run.name} trains {where}: stop it there with Ctrl-C")
    if not is_trained_by(run.dir, pid):
        raise ValueError(f"{run.name} says that process {pid} trains it, which holds no lock on it: nothing is stopped")
    try:
        os.kill(pid, signal.SIGINT)
    except (ProcessLookupError, PermissionError) as error:
        raise ValueError(
            f"process {pid}, which trains {run.name}, cannot be asked from here: {error.strerror}"
        ) from error


def started() -> list[Started]:
    """What this server started, newest first; asking also collects processes that ended."""
    found = [s for s in reversed(_STARTED.values()) if s.log.exists()]
    for one in found:
        one.process.poll()
    return found


def making() -> list[Started]:
    """What this server started that has no run to show yet."""
    return [one for one in started() if one.alive and not one.has_run]


def forget(one: Started) -> None:
    """Stop showing a process that ended."""
    _STARTED.pop(one.directory.resolve(), None)


def free_name(wanted: str) -> str:
    """A name for a run, or with a number behind it, whichever is not taken."""
    taken = {path.resolve() for path in _STARTED}
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        name = f"{wanted}{suffix}"
        if not (ROOT / name).exists() and resolve(name).resolve() not in taken:
            return name
    raise ValueError(f"there are a thousand runs named {wanted}: give a name of your own")


def model_name(model: str) -> str:
    """What a run of a Hugging Face model is called: the last part of its path, in the letters of a run's name."""
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", model.strip().rstrip("/").rpartition("/")[2]).lstrip("._-")
    return last[:60] or "model"


def checkpoints(directory: Path) -> list[int]:
    """Steps of the folders checkpoint-500, checkpoint-1000, ... that a training with transformers leaves behind."""
    try:
        names = os.listdir(directory)
    except OSError:  # whoever runs this may not read it
        return []
    return sorted(int(found[1]) for found in map(CHECKPOINT.fullmatch, names) if found)


def why_no_model(model: str) -> str:
    """Why no Hugging Face model can be at this path; empty where one may be, or where it is a name on the hub."""
    directory = os.path.expanduser(model)
    there = os.path.isdir(directory)  # as isfile, it takes a name that is too long, or with a zero byte, for no file
    if os.path.isfile(os.path.join(directory, "config.json")) or there and checkpoints(Path(directory)):
        return ""
    if there:
        return (
            f"{model} holds no model: save_pretrained writes a config.json beside the weights, and a training leaves "
            "folders such as checkpoint-500"
        )
    return f"{model} is no directory of this machine" if model.startswith(("/", "~", ".")) else ""


def _new(name: str) -> Path:
    """Where a new run of this name goes."""
    if why := why_no_name(name):
        raise ValueError(why)
    directory = ROOT / name
    if (directory / "run.json").exists() or (directory.resolve() in _STARTED and _STARTED[directory.resolve()].alive):
        raise ValueError(f"{directory} already holds a run: choose another name, or remove the directory")
    return directory


def _start(directory: Path, arguments: list[str]) -> Started:
    if before := _STARTED.pop(directory.resolve(), None):  # a run says that it stopped a moment before its process ends
        try:
            before.process.wait(10)
        except subprocess.TimeoutExpired as error:
            _STARTED[directory.resolve()] = before
            raise ValueError(f"another process still works on {before.name}: stop it first") from error
    one = _popen(directory, arguments, directory.resolve().name)
    _STARTED[directory.resolve()] = one
    return one


def _popen(directory: Path, arguments: list[str], log_name: str) -> Started:
    allow("start anything")
    logs = ROOT / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{log_name}.log"
    package = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    # -P: a folder named tracer in the working directory is not ours
    process = Process([sys.executable, "-P", "-m", "tracer", *arguments], log,
                      {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"})  # fmt: skip
    return Started(directory.resolve().name, directory, log, process, arguments[0])
