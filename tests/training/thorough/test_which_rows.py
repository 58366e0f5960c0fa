"""Which rows moved a head: parts that add up, and a step without a row that is made by hand in float64.

What the first tier leaves.
"""

from pathlib import Path
from typing import cast

from tests.training.test_which_rows import of_kind, run  # noqa: F401
from tracer.files.sealed import pack
from tracer.model import Transformer
from tracer.store import Run
from tracer.store.layout import snapshot_path
from tracer.training import loop
from tracer.training.which_rows import which_rows


def test_a_step_between_two_states_is_had_and_what_differs_is_said(run: Run, tmp_path: Path) -> None:
    told = which_rows(run, 5, (0, 0), "entropy")
    assert told.attrs["start"] == 4 and told.attrs["same"] == "nothing was kept of this step to compare with"
    assert (told.attrs["measure"], told.attrs["head"], told.attrs["unit"]) == ("entropy", "L0H0", "nats")
    other = loop.train(of_kind(tmp_path / "other"), quiet=True)
    weights = cast(Transformer, other.model(4)).state_dict()
    weights["embed.W_E"][0, 0] += 0.5
    snapshot_path(other.dir, 4).write_bytes(pack(weights))
    assert which_rows(other, 4, (0, 0)).attrs["same"] == (
        "weights not equal to the bit, loss of the batch equal to the bit"
    )
