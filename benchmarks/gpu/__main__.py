"""`python -m benchmarks.gpu`: all checks, one table; without CUDA it says so and ends well."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import torch

from benchmarks.gpu.place import Place
from benchmarks.gpu.table import Line, Row, Table

Check = Callable[[Place], Iterable[Line]]


def late(module: str, name: str) -> Check:
    """A check that is imported when its turn comes, so that what is missing here is an error of its own row."""
    return lambda place: getattr(import_module(f"benchmarks.gpu.{module}"), name)(place)


CHECKS: dict[str, Check] = {
    "demo": late("training", "demo"), "heads": late("heads", "heads"), "ablations": late("questions", "ablations"),
    "answers": late("questions", "answers"), "own": late("own", "own"), "kernels": late("kernels", "kernels"),
    "curves": late("training", "curves"), "watching": late("kernels", "watching"), "memory": late("memory", "memory"),
    "resumed": late("training", "resumed"), "statistics": late("speed", "statistics"),
    "training": late("speed", "training"), "recording": late("speed", "recording"),
    "compiled": late("kernels", "compiled"), "processes": late("processes", "processes"),
    "fast_float32": late("kernels", "fast_float32"),
}  # fmt: skip
"""The most telling first; `curves` waits for the CPU, which trains beside those before it, and speeds come after."""
OUT_OF_TIME = "out of time"


def main(arguments: Sequence[str] | None = None, checks: dict[str, Check] = CHECKS) -> int:
    """0 where every row holds, or there is no CUDA; 1 where one does not."""
    given = parser(checks).parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        built = torch.version.cuda or "no CUDA"
        print(f"NOT RUN: torch {torch.__version__}, built for {built}, sees no GPU here")
        return 0
    shutil.rmtree(given.out / "runs", ignore_errors=True)  # of an earlier table
    place = Place(
        torch.device(given.device), given.out.resolve(), given.small, threads=max(1, (os.cpu_count() or 2) // 2)
    )
    table = Table(given.out, header(given.device))
    ends = time.perf_counter() + 60 * given.minutes
    wanted = given.only or list(checks)
    try:
        if "curves" in wanted and "curves" in checks:
            place.begin_beside()
        for name in wanted:
            if time.perf_counter() > ends:
                table.add(Row(name, "", check=name, not_run=OUT_OF_TIME))
            else:
                table.run(name, lambda name=name: checks[name](place))
    finally:
        place.close()
    print(f"{len(table.rows)} rows, {len(table.failed)} do not hold: {table.out / 'table.md'}")
    return int(bool(table.failed))


def parser(checks: Iterable[str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    made.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the same checks, of the CPU alone"
    )
    made.add_argument("--only", nargs="+", choices=tuple(checks), metavar="CHECK", help=f"of {', '.join(checks)}")
    made.add_argument("--out", type=Path, default=Path("build/gpu"), help="where table.md, table.json and log.txt go")
    made.add_argument("--minutes", type=float, default=9.0, help="no check begins after so many")
    made.add_argument("--small", action="store_true", help="sizes for a test")
    return made


def header(device: str) -> dict[str, str]:
    """When, where and with what."""
    found = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": _said("git", "describe", "--always", "--dirty")}
    if device == "cuda":
        one = torch.cuda.get_device_properties(0)
        driver = _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()
        found |= {"GPU": f"{torch.cuda.device_count()} x {one.name}, {one.total_memory / 2**30:.0f} GiB",
                  "driver": driver[0] if driver else "?", "CUDA": str(torch.version.cuda)}  # fmt: skip
    on = torch.backends.cuda.matmul.allow_tf32
    return found | {
        "torch": torch.__version__, "Python": platform.python_version(), "CPU": f"{os.cpu_count()} cores",
        "float32": f"TF32 {'on' if on else 'off'} unless a row says otherwise",
    }  # fmt: skip


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "?"


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=UserWarning)
    sys.exit(main())
