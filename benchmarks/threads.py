"""How idle threads of torch wait (`tracer/__init__.py`): a step of the demo, alone and beside a second training.

`asleep`: OMP_WAIT_POLICY=PASSIVE alone; `ours`: with 3,000 turns of spinning before; `torch`: as torch does it, with
300,000. The two trainings have together as many cores as one.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.measure import ratio

STEPS, ROUNDS = 30, 3
SIDES = {
    "asleep": {"OMP_WAIT_POLICY": "PASSIVE"},
    "ours": {},
    "torch": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "300000"},
}
CODE = f"""
import time
from dataclasses import replace
from statistics import median
from tracer.presets import preset
from tracer.training.job import forward_backward, prepare, update
job = prepare(replace(preset("demo").config, device="cpu"))
job.raw.train()
took = []
for step in range({STEPS}):
    began = time.perf_counter()
    forward_backward(job, step)
    update(job, step)
    took.append(time.perf_counter() - began)
print(median(took[5:]))
"""


def steps(side: str, together: int) -> float:
    """Seconds of a step in each of so many trainings at once, the slowest."""
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    running = [
        subprocess.Popen([sys.executable, "-c", CODE], env=clean | SIDES[side], stdout=subprocess.PIPE, text=True)
        for _ in range(together)
    ]
    return max(float(one.communicate()[0]) for one in running)


def main() -> None:
    print(f"\nidle threads: a step of the demo, {os.cpu_count()} cores, {ROUNDS} rounds in turn")
    for together, words in ((1, "alone"), (2, "beside a second training")):
        rounds = [{side: steps(side, together) for side in SIDES} for _ in range(ROUNDS)]
        of = {side: [one[side] for one in rounds] for side in SIDES}
        print(
            f"{words}: ours {1000 * sorted(of['ours'])[ROUNDS // 2]:.0f} ms; asleep / ours "
            f"{ratio(of['asleep'], of['ours']):.2f}, torch / ours {ratio(of['torch'], of['ours']):.2f}"
        )
