"""Starts the command line, or a program, in several processes, as a launcher does; Accelerate's `--cpu` starts one."""

import os
import subprocess
import sys
from pathlib import Path

from tests import children

ROOT = Path(__file__).parent.parent


def launch(world: int, port: int, *args: str, program: tuple[str, ...] = ("-m", "tracer")) -> list[str]:
    """What each of `world` processes of Python printed, once all have ended well."""
    processes = []
    for rank in range(world):
        env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(
            children.start(
                [sys.executable, *program, *args], cwd=ROOT, text=True,
                env={**os.environ, **{name: str(value) for name, value in env.items()}},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert {process.returncode for process in processes} == {0}, outputs
    return outputs
