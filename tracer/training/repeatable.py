"""A step is a function of (seed, step) on a GPU too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
deterministic: Any = torch.utils.deterministic  # its one setting is made at run time


@contextlib.contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Equal sums in each run: on CUDA, kernels that add in whatever order their blocks end are replaced.

    A CPU's are repeatable as they are. Of ours it is the backward pass of attention that is not: AdamW in float32 on
    an H100 gave other weights at each run. What torch was told before holds again afterwards.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")  # else torch refuses matrix products while it is strict
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fills = deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)  # with warn_only attention would go on as it was
    deterministic.fill_uninitialized_memory = False  # we read nothing that was not written
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])
        deterministic.fill_uninitialized_memory = fills
