"""The CPU's side in a process of its own: `python -m benchmarks.gpu.beside FOLDER SMALL THREADS`.

Accelerate keeps the device that a process first trained on, so the CPU cannot train where a GPU does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from benchmarks.gpu.place import CPU, Place
from benchmarks.gpu.training import early


def main(folder: Path, small: bool, threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)
    place = Place(CPU, folder, small)
    (folder / "early.json").write_text(json.dumps(early(place)))
    place.trained(place.precise(place.demo_config), "demo-cpu")


if __name__ == "__main__":
    main(Path(sys.argv[1]), bool(int(sys.argv[2])), int(sys.argv[3]))
