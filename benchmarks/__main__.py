"""Run all benchmarks, or those named: `python -m benchmarks heads recording`."""

from __future__ import annotations

import sys
from importlib import import_module

ALL = (
    "dashboard", "heads", "microscope", "models", "people", "processes", "recording", "scrubbing", "sweeps", "threads",
    "training", "watching", "why",
)  # fmt: skip

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(ALL)}")
    import_module(f"benchmarks.{name}").main()
