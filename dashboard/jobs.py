"""Training as a process of its own: started from the dashboard, but not part of it, so a reload does not touch it.

Output goes to checkpoints/.logs/<run>.log, for the time before a run directory exists and for mistakes. What waits for
others to end is kept in checkpoints/.waiting. When its server ends it is lost, and offered again, but never begun by
itself: it may be what ended the server, and a folder that is copied brings along what others asked for.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from dashboard.access import allow, read_only
from dashboard.typed_paths import why_no_model
from dashboard.work_queue import Process
from tracer.config import OWN_CODE, TrainConfig
from tracer.files.disk import refuse_link
from tracer.presets import PRESETS
from tracer.store import ROOT, Run, is_trained_by, resolve, waiting
from tracer.store.housekeeping import why_no_name
from tracer.store.waiting import Asked, Waiting

LOGS = ".logs"
GOOD_ENDS = (0, 3, 4, 130)
"""Exit statuses of work that was done: a run finished, diverged or was stopped, or a claim did not hold."""
CHANGES = re.compile(r"--(model\.[a-z-]+|data\.corpus)=.*", re.DOTALL)
"""Options of `tracer train` that a form sets."""


@dataclass(frozen=True)
class Started:
    """A process that this server started: a training, or the opening of a model."""

    name: str
    directory: Path
    log: Path
    process: Process | subprocess.Popen[bytes]
    command: str = "train"
    """Of the command line: train, resume, fork, replay, remedy, rows, open, sweep or reproduce."""
    about: str = ""
    """Of a remedy the kind of the finding, of rows the step, the head and the measure."""
    began: float = field(default_factory=time.monotonic)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def waits(self) -> bool:
        """Does it wait for others to end?"""
        return isinstance(self.process, Process) and self.process.waits

    @property
    def failed(self) -> bool:
        return self.process.poll() not in (None, *GOOD_ENDS)

    @property
    def has_run(self) -> bool:
        """Is there a run directory, which says more than this process's output?"""
        return (self.directory / "run.json").exists()

    def printed(self) -> str:
        """Its output so far."""
        return self.log.read_bytes().decode("utf-8", "replace") if self.log.exists() else ""

    def tail(self, n_lines: int = 12) -> str:
        """The last lines of its output, without the control characters of a terminal."""
        text = self.printed()[-20_000:]
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r", "\n"))
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        return "\n".join(lines[-n_lines:])


_STARTED: dict[Path, Started] = {}
_BESIDE: dict[tuple[Path, str], Started] = {}
"""Sweeps, remedies and rows, by the run that they are about: beside a process that trains it."""
_SERIES: list[Started] = []
"""The last `tracer reproduce`, which trains several runs one after the other."""


def train(preset: str, name: str, seed: int, steps: int, *changed: str) -> Started:
    """Start `tracer train` for a new run under checkpoints/, with other options as its command line takes them.

    A ValueError says what is wrong with the name.
    """
    if preset not in PRESETS:
        raise ValueError(f"there is no preset {preset!r}; there are: {', '.join(PRESETS)}")
    if wrong := [one for one in changed if not CHANGES.fullmatch(one) or OWN_CODE.fullmatch(one.partition("=")[2])]:
        raise ValueError(f"{wrong[0]!r} is not set from here: only sizes of the model and its text are")
    return _start(_new(name), Asked(command="train", name=name, of=preset, seed=seed, steps=steps, options=changed))


def host() -> str:
    """The name of this machine, as runs keep it."""
    return socket.gethostname()


def open_model(model: str, revisions: list[str], name: str) -> Started:
    """Start `tracer open` for a Hugging Face model: a local directory, or a name on the hub with some revisions."""
    if not model or model.startswith("-"):
        raise ValueError("name a directory of this machine, or a model of the hub such as gpt2")
    if why := why_no_model(model):
        raise ValueError(why)
    if wrong := [one for one in revisions if one.startswith("-")]:
        raise ValueError(f"{wrong[0]!r} is no revision: a branch, a tag or a commit does not begin with a dash")
    return _start(_new(name), Asked(command="open", name=name, of=model, options=tuple(revisions)))


def _refuse_clamps(run: Run, command: str, config: TrainConfig) -> None:
    """No page runs a function that clamps a head: whoever has it trains in a shell."""
    if config.own_clamps:
        word, *options = command.split()
        clamps = " ".join(f'"{one}"' for one in config.clamps)
        again = " ".join(["tracer", word, run.name, *options, "--clamp", clamps])
        raise ValueError(
            f"{config.own_clamps[0].code} is code of somebody's own, which no page runs: in a shell, `{again}`"
        )


def resume(run: Run) -> Started:
    """Start `tracer resume` for a run that was stopped or killed."""
    _refuse_code(run, "resume")
    _refuse_clamps(run, "resume", run.config)
    return _start(run.dir, Asked(command="resume", name=run.name, of=str(run.dir.resolve())))


def _refuse_code(run: Run, command: str) -> None:
    """No page runs the function that made a run's data: whoever has it goes on in a shell."""
    if run.config.data.is_own and (why := run.why_not("held_out")):
        raise ValueError(why)
    if named := [word for word in ("measures", "probes", "scalars", "loss") if run.meta.get(word)]:
        word, *options = command.split()
        again = " ".join(["tracer", word, run.name, *options, *(f"--{one} ..." for one in named)])
        raise ValueError(
            f"{run.name} was trained with {' and '.join(named)} of somebody's own, which no page runs: name them in a "
            f"shell, `{again}`"
        )


def fork(run: Run, step: int, name: str, steps: int, clamp: str = "") -> Started:
    """Start `tracer fork`: a new run from a snapshot, with these clamps, apart by commas, and no others."""
    directory = _new(name)
    _refuse_code(run, f"fork --step {step}")
    if steps <= step:
        raise ValueError(f"{steps} steps leave nothing to train after step {step}: give a larger number")
    clamps = tuple(filter(None, map(str.strip, clamp.split(","))))
    asked = replace(run.config, clamp=clamps)  # refuses what it does not understand before a process starts
    _refuse_clamps(run, f"fork --step {step}", asked)
    of = str(run.dir.resolve())
    return _start(directory, Asked(command="fork", name=name, of=of, step=step, steps=steps, options=clamps))


def replay(run: Run, first: int, last: int, name: str) -> Started:
    """Start `tracer replay`: these steps again, in a run of their own, each one recorded."""
    directory, stretch = _new(name), f"replay {first}:{last}"
    _refuse_code(run, stretch)
    _refuse_clamps(run, stretch, run.config)
    of = str(run.dir.resolve())
    return _start(directory, Asked(command="replay", name=name, of=of, step=first, steps=last))


def sweep(run: Run) -> Started:
    """Start `tracer sweep`: every head off at every snapshot; what is there already is not computed again."""
    found = sweeping(run)
    if found is not None and found.alive:
        return found
    return _beside(run, Asked(command="sweep", name=run.name, of=str(run.dir.resolve())))


def _beside(run: Run, asked: Asked) -> Started:
    about = " ".join([*([_steps(asked)] if asked.command == "rows" else []), *asked.options])
    one = replace(_popen(run.dir, asked, f"{run.name}.{asked.command}"), about=about)
    _BESIDE[run.dir.resolve(), asked.command] = one
    return one


def sweeping(run: Run) -> Started | None:
    """The sweep of this run that was started here last, also when it has ended."""
    return _BESIDE.get((run.dir.resolve(), "sweep"))


def remedy(run: Run, kind: str) -> Started:
    """Start `tracer remedy`: again from before a finding of this kind, as it was and with each change that may help."""
    asked = Asked(command="remedy", name=run.name, of=str(run.dir.resolve()), options=(kind,))
    return _trained_beside(run, asked, f"remedy --finding {kind}")


def rows(run: Run, step: int, head: str, measure: str, last: int = 0) -> Started:
    """Start `tracer rows`: which rows of a step moved a head, which it prints; or of the steps to `last`, which the run
    keeps."""
    of = str(run.dir.resolve())
    asked = Asked(command="rows", name=run.name, of=of, step=step, steps=last, options=(head, measure))
    return _trained_beside(run, asked, f"rows {_steps(asked)} --head {head}")


def _steps(asked: Asked) -> str:
    """As `tracer rows` takes them."""
    return f"{asked.step}:{asked.steps}" if asked.steps else str(asked.step)


def _trained_beside(run: Run, asked: Asked, command: str) -> Started:
    """What trains steps of a run again, unless one of its kind is at it; `command`: where a shell is needed for it."""
    found = _BESIDE.get((run.dir.resolve(), asked.command))
    if found is not None and found.alive:
        return found
    _refuse_code(run, command)
    _refuse_clamps(run, command, run.config)
    return _beside(run, asked)


def looking_at_rows(run: Run) -> Started | None:
    """What looks at rows of this run, that was started here last, also when it has ended."""
    return _BESIDE.get((run.dir.resolve(), "rows"))


def remedying(run: Run) -> Started | None:
    """Those for this run that were started here last, also when they have ended."""
    return _BESIDE.get((run.dir.resolve(), "remedy"))


def reproduce(names: list[str]) -> Started:
    """Start `tracer reproduce` for these specimens, in small, one after the other."""
    found = reproducing()
    if wrong := [one for one in names if one.startswith("-")]:
        raise ValueError(f"{wrong[0]!r} is no specimen")
    if found is None or not found.alive:
        asked = Asked(command="reproduce", options=tuple(names))
        _SERIES[:] = [found := _popen(ROOT / LOGS, asked, "reproduce")]
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


def not_begun() -> list[Waiting]:
    """What waits in other dashboards on this folder, and what was lost with one that ended; nothing where read-only."""
    if read_only():
        return []
    ours = {one.process.ticket.path for one in [*_STARTED.values(), *_BESIDE.values(), *_SERIES]
            if isinstance(one.process, Process) and one.process.ticket is not None}  # fmt: skip
    return [one for one in waiting.waiting() if one.path not in ours]


def start_again(one: Waiting) -> Started:
    """Begin what was lost, as it was asked for then; ValueError or OSError where it cannot be, and then it stays."""
    allow("start anything")
    if (asked := one.asked) is None:
        raise ValueError(one.damage)
    ticket = waiting.claim(one.path)
    try:
        found = _again(asked)
        ticket.remove()
        return found
    finally:
        ticket.release()


def _again(asked: Asked) -> Started:
    """Through the same doors, which refuse what cannot be."""
    match asked.command:
        case "train":
            return train(asked.of, asked.name, asked.seed, asked.steps, *asked.options)
        case "open":
            return open_model(asked.of, list(asked.options), asked.name)
        case "fork":
            return fork(Run(asked.of), asked.step, asked.name, asked.steps, ", ".join(asked.options))
        case "replay":
            return replay(Run(asked.of), asked.step, asked.steps, asked.name)
        case "remedy":
            return remedy(Run(asked.of), *asked.options[:1])
        case "rows":
            return rows(Run(asked.of), asked.step, *asked.options[:2], last=asked.steps)
        case "resume":
            return resume(Run(asked.of))
        case "sweep":
            return sweep(Run(asked.of))
        case "reproduce":
            return reproduce(list(asked.options))


def take_back(one: Waiting) -> None:
    """It is not wanted any more; a dashboard in which it waits notices."""
    allow("remove it")
    waiting.forget(one.path)


def free_name(wanted: str) -> str:
    """A name for a run, or with a number behind it, whichever is not taken."""
    taken = {path.resolve() for path in _STARTED} | {(ROOT / name).resolve() for name in _asked_names()}
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        name = f"{wanted}{suffix}"
        if not (ROOT / name).exists() and resolve(name).resolve() not in taken:
            return name
    raise ValueError(f"there are a thousand runs named {wanted}: give a name of your own")


def _new(name: str) -> Path:
    """Where a new run of this name goes."""
    if why := why_no_name(name):
        raise ValueError(why)
    directory = ROOT / name
    if (directory / "run.json").exists() or (directory.resolve() in _STARTED and _STARTED[directory.resolve()].alive):
        raise ValueError(f"{directory} already holds a run: choose another name, or remove the directory")
    return directory


def _asked_names() -> set[str]:
    """Of the runs that are not begun."""
    return {one.asked.name for one in not_begun() if one.asked is not None}


def _start(directory: Path, asked: Asked) -> Started:
    if before := _STARTED.pop(directory.resolve(), None):  # a run says that it stopped a moment before its process ends
        try:
            before.process.wait(10)
        except subprocess.TimeoutExpired as error:
            _STARTED[directory.resolve()] = before
            raise ValueError(f"another process still works on {before.name}: stop it first") from error
    one = _popen(directory, asked, directory.resolve().name)
    _STARTED[directory.resolve()] = one
    return one


def _popen(directory: Path, asked: Asked, log_name: str) -> Started:
    allow("start anything")
    logs = ROOT / LOGS
    refuse_link(logs)
    logs.mkdir(parents=True, exist_ok=True)
    refuse_link(log := logs / f"{log_name}.log")
    package = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    # -P: a folder named tracer in the working directory is not ours
    process = Process([sys.executable, "-P", "-m", "tracer", *arguments(asked)], log,
                      {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}, asked)  # fmt: skip
    return Started(directory.resolve().name, directory, log, process, asked.command)


def arguments(asked: Asked) -> list[str]:
    """The words of `tracer` for it."""
    run = ["--run", str(ROOT / asked.name)]
    match asked.command:
        case "train":
            sizes = ["--seed", str(asked.seed), "--steps", str(asked.steps)]
            return ["train", asked.of, *run, *sizes, *asked.options]
        case "open":
            return ["open", asked.of, *(["--revisions", *asked.options] if asked.options else []), *run]
        case "fork":
            sizes = ["--step", str(asked.step), *run, "--steps", str(asked.steps)]
            return ["fork", asked.of, *sizes, "--clamp", *asked.options]
        case "replay":
            return ["replay", asked.of, f"{asked.step}:{asked.steps}", *run]
        case "remedy":
            return ["remedy", asked.of, "--finding", *asked.options]
        case "rows":
            head, measure = asked.options
            as_json = [] if asked.steps else ["--json"]
            return ["rows", asked.of, _steps(asked), "--head", head, "--measure", measure, *as_json]
        case "reproduce":
            return ["reproduce", *asked.options]
        case "resume" | "sweep":
            return [asked.command, asked.of]
