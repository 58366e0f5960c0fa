"""Processes that are forked from one which has imported what they need: that is most of what a short one costs.

Each is a process of its own in all that a test can see: arguments, environment, output, exit status, death.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEEDED = (
    "torch._dynamo", "torch.distributed.fsdp", "accelerate", "xarray", "zarr", "tracer.cli.commands",
    "tracer.training.loop", "tracer.watching.recorder",
)  # fmt: skip
PATIENCE = 500.0
SERVERS: list[subprocess.Popen[str]] = []
"""None, or the one of this module of tests: half a gigabyte."""


def ended(
    program: Sequence[str], arguments: Sequence[Sequence[str]], each: Sequence[Mapping[str, object]] = ()
) -> tuple[list[int], list[str]]:
    """A process for each list of arguments, at the same time: how each ended, and what it printed.

    `program`: ("-m", module), ("-c", words) or (file,), as Python takes it; `each`: more of the environment.
    """
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(nth)) for nth in range(len(arguments))]
        wanted = zip(arguments, each or [{}] * len(outputs), outputs, outputs, strict=True)
        return _ask(program, Path.cwd(), list(wanted)), [path.read_text() for path in outputs]


def tracer(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line; what it reads of the environment as it is imported (MANYEYES_RUNS) is that of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        (code,) = _ask(("-m", "tracer"), cwd or Path.cwd(), [(words, environment, output, errors)])
        return subprocess.CompletedProcess(words, code, output.read_text(), errors.read_text())


def _ask(
    program: Sequence[str], folder: Path, wanted: list[tuple[Sequence[str], Mapping[str, object], Path, Path]]
) -> list[int]:
    """The exit statuses of processes with these arguments, more of the environment, and files for what they print."""
    server, known = _server(), {**os.environ, "PYTHONPATH": str(ROOT)}
    assert server.stdin is not None and server.stdout is not None
    processes = [(args, {**known, **{k: str(v) for k, v in more.items()}}, *map(str, to)) for args, more, *to in wanted]
    server.stdin.write(json.dumps([program, str(folder), processes]) + "\n")
    if not select.select([server.stdout], [], [], PATIENCE)[0]:
        end()
        raise TimeoutError([one[2].read_text() for one in wanted if one[2].exists()])
    return json.loads(server.stdout.readline())


def end() -> None:
    """No server is left, nor anything that one has forked."""
    while SERVERS:
        with SERVERS.pop() as server:
            os.killpg(server.pid, signal.SIGKILL)


def _server() -> subprocess.Popen[str]:
    if not SERVERS:
        SERVERS.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.forked"], cwd=ROOT, text=True, bufsize=1, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )
        )  # fmt: skip
    return SERVERS[0]


def _serve() -> None:
    """Fork what each line of stdin asks for, and print how they ended."""
    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection would copy to each process all there is
    for line in sys.stdin:
        program, folder, processes = json.loads(line)
        pids = []
        for process in processes:
            pids.append(os.fork())
            if not pids[-1]:
                _become(program, folder, *process)
                return
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)  # noqa: T201


def _become(
    program: list[str], folder: str, arguments: list[str], environment: dict[str, str], output: str, errors: str
) -> None:
    """Run a program in place of the server, which ends as the program does."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND), descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ |= environment
    sys.argv = [program[-1], *arguments]
    if program[0] == "-m":
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    elif program[0] == "-c":
        exec(program[1], {"__name__": "__main__"})
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
