"""Run all benchmarks, or those named: `python -m benchmarks heads recording`."""

from __future__ import annotations

import sys

from benchmarks import heads, recording

ALL = {"heads": heads.main, "recording": recording.main}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(ALL)}")
    ALL[name]()
