"""Run all benchmarks, or those named: `python -m benchmarks heads recording`."""

from __future__ import annotations

import sys

from benchmarks import dashboard, heads, models, recording, scrubbing, sweeps, threads, training, watching, why

ALL = {
    "dashboard": dashboard.main, "heads": heads.main, "models": models.main, "recording": recording.main,
    "scrubbing": scrubbing.main, "sweeps": sweeps.main, "threads": threads.main, "training": training.main,
    "watching": watching.main, "why": why.main,
}  # fmt: skip

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(ALL)}")
    ALL[name]()
