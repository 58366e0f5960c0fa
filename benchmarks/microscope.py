"""The time microscope on the demo: a stretch again with every step recorded, its rows ranked, and a step without each.

All in turn with the same stretch trained as the run was, from the same kept state: what is printed are ratios of
seconds. By arithmetic a ranked update is an update, two more backward passes of its batch, and the probe forward and
back; a step without each of n rows is n backward passes of a row, n updates, and the probe n times.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import in_turn, ratio
from tracer.presets import preset
from tracer.store import open_run
from tracer.store.row_effects import rows_path
from tracer.training.loop import fork, train
from tracer.training.replay import replay
from tracer.training.stretch_rows import stretch_rows
from tracer.training.which_rows import which_rows

TRAINED, FIRST, LAST, HEAD, ROUNDS = 250, 100, 200, (1, 2), 3


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        config = replace(preset("demo").config, steps=TRAINED, device="cpu", run=str(folder / "run"))
        run = train(config, quiet=True)

        def as_it_was() -> None:
            fork(run, FIRST, replace(config, steps=LAST, run=str(folder / "was")), quiet=True, overwrite=True)

        def every_step() -> None:
            replay(run, FIRST, LAST, name=str(folder / "again"), quiet=True, overwrite=True)

        def ranked() -> None:
            stretch_rows(run, FIRST, LAST, HEAD, without=())
            rows_path(run.dir, f"{FIRST}-{LAST}-L{HEAD[0]}H{HEAD[1]}-induction").unlink()

        def without_each() -> None:
            which_rows(run, FIRST, HEAD)

        seconds = in_turn(
            {"as it was": as_it_was, "every step": every_step, "ranked": ranked, "one step": without_each}, ROUNDS
        )
        was, n = seconds["as it was"], LAST - FIRST
        each = statistics.median(was) / n
        print(f"demo, steps {FIRST} to {LAST} from a kept state; {1000 * each:.0f} ms an update, as the run recorded")
        print(f"every step recorded: {ratio(seconds['every step'], was):.2f} times the stretch as it was")
        print(f"every row ranked, {config.optim.batch_size} a step: {ratio(seconds['ranked'], was):.2f} times")
        print(
            f"one step without each of its {config.optim.batch_size} rows: "
            f"{ratio(seconds['one step'], was) * n:.0f} updates"
        )
        again = open_run(folder / "again")
        print(f"equal to the bit: {again.meta['replay']['parts'] is None}, at {again.meta['replay']['compared']}")
        shutil.rmtree(folder / "was")


if __name__ == "__main__":
    main()
