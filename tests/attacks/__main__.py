"""`make attack`: all attacks, and the table of what came out; `--only NAME`, `--size quick`, `--seed N`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.attacks import attacks
from tests.attacks.forks import Forks
from tests.attacks.table import table


def main() -> int:
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=attacks.ATTACKS, default=list(attacks.ATTACKS))
    parser.add_argument("--size", choices=attacks.SIZES, default="full")
    parser.add_argument("--seed", type=int, default=0)
    asked, tallies = parser.parse_args(), []
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None  # in memory: a thousand cases flush a million files
    with tempfile.TemporaryDirectory(prefix="manyeyes-attack-", dir=fast) as scratch, Forks() as forks:
        honest = attacks.honest_run(forks, Path(scratch))
        for name in asked.only:
            if why := attacks.why_not(name):
                print(f"{name}: left out: {why}", flush=True)  # noqa: T201
                continue
            began = time.monotonic()
            tally = attacks.run(name, forks, Path(scratch) / name, honest, asked.size, asked.seed)
            tallies.append(tally)
            said = f"{tally.cases} cases, {len(tally.failures)} failures, {time.monotonic() - began:.0f} s"
            print(f"{tally.test}: {said}", flush=True)  # noqa: T201
            for failure in tally.failures[:10]:
                print(f"  {failure[:2000]}", flush=True)  # noqa: T201
    print(table(tallies))  # noqa: T201
    return any(tally.failures for tally in tallies)


if __name__ == "__main__":
    sys.exit(main())
