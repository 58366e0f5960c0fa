"""Many short processes: a server that has imported everything forks one for each case and measures it."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
RAISED = 99
"""Exit status of a case that raised: a failure of ours, with the traceback in its output."""


@dataclass(frozen=True)
class Outcome:
    """How a process ended: exit status (negative: the signal), seconds of CPU, peak memory, was it too late."""

    status: int
    seconds: float
    megabytes: float
    late: bool
    output: str

    @property
    def clean(self) -> bool:
        return self.status == 0 and not self.late


class Forks:
    """`call("tests.attacks.kills:train", folder, 3)` runs that function in a process of its own."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.attacks.forks"], cwd=ROOT, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(60)
        self._server.stdout.close()

    def call(self, function: str, *args: Any, cwd: Path | None = None, timeout: float = 60.0) -> Outcome:
        assert self._server.stdin is not None and self._server.stdout is not None
        asked = {"function": function, "args": args, "cwd": str(cwd or ROOT), "timeout": timeout}
        self._server.stdin.write(json.dumps(asked, default=str) + "\n")
        return Outcome(**json.loads(self._server.stdout.readline()))


def serve() -> None:
    """Read cases from stdin, one a line, until it ends."""
    for name in ("torch._dynamo", "xarray", "zarr", "accelerate", "transformers", "tracer.cli.commands",
                 "tracer.training.loop", "tracer.ablate", "tracer.store.chunk_arrays", "tracer.store.schema",
                 "tracer.watching.opening", "tracer.analysis.run_sweep", "dashboard.loading.run_summaries",
                 "safetensors.torch", "tokenizers", "google_crc32c",
                 "transformers.models.gpt2.modeling_gpt2"):  # fmt: skip
        importlib.import_module(name)
    scratch = Path(os.environ.get("TMPDIR", "/tmp")) / f"attack-{os.getpid()}.out"
    for line in sys.stdin:
        print(json.dumps(vars(_run(scratch=scratch, **json.loads(line)))), flush=True)  # noqa: T201 - to the client
    scratch.unlink(missing_ok=True)


def _run(function: str, args: list[Any], cwd: str, timeout: float, scratch: Path) -> Outcome:
    began, pid = time.monotonic(), os.fork()
    if not pid:
        os._exit(_case(function, args, cwd, scratch))
    late = False
    while not (ended := os.wait4(pid, os.WNOHANG))[0]:
        if time.monotonic() - began > timeout:
            late = True
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not come to its own session yet
                os.kill(pid, signal.SIGKILL)
            ended = os.wait4(pid, 0)
            break
        time.sleep(0.001)
    _, status, used = ended
    output = scratch.read_text("utf-8", "replace")[-20_000:] if scratch.exists() else ""
    per_megabyte = 1024 if sys.platform == "linux" else 1 << 20
    code, busy = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    return Outcome(code, busy, used.ru_maxrss / per_megabyte, late, output)


def _case(function: str, args: list[Any], cwd: str, scratch: Path) -> int:
    os.setsid()
    out = os.open(scratch, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(out, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(cwd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    module, _, name = function.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)(*args)
        status = found if isinstance(found, int) else 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
        status = RAISED
    sys.stdout.flush()
    sys.stderr.flush()
    return status & 0xFF


if __name__ == "__main__":
    serve()
