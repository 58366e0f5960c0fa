"""Trainings that processes share by NCCL, each with a GPU of its own: watched, and not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

from benchmarks.gpu.place import Place
from benchmarks.gpu.table import Line, NotHere
from benchmarks.processes import ratios_of, run


def processes(place: Place) -> Iterator[Line]:
    place.need_cuda("NCCL")
    for layout, world in {"one": 1, "fsdp2": 2, "tp": 2}.items():
        if world > (there := torch.cuda.device_count()):
            raise NotHere(f"{layout} over {world} processes takes {world} GPUs, {there} here")
        with tempfile.TemporaryDirectory() as folder:
            told = run(layout, world, Path(folder), "cuda")
        yield Line(
            f"{world} process by NCCL, {layout}: losses with and without a recorder", "equal", "to the bit", True
        )
        yield Line("its time, watched / bare; share by its own clock", f"{median(ratios_of(told)):.2f}; "
                   f"{told['cost']['recording_share']:.1%}")  # fmt: skip
