"""Functions of a person that give numbers at each record of a training: what the first tier leaves."""

from pathlib import Path

import pytest

from tests.training.test_scalar_functions import HERE, numbers
from tests.trainings import tiny
from tracer.training import loop


def test_who_goes_on_names_them_again(tmp_path: Path) -> None:
    run = loop.train(tiny(tmp_path / "a", steps=4), quiet=True, scalars=numbers)
    for go_on in (lambda **given: loop.resume(run.dir, steps=8, quiet=True, **given),
                  lambda **given: loop.fork(run, 4, tiny(tmp_path / "b", steps=8), quiet=True, **given)):  # fmt: skip
        with pytest.raises(ValueError, match=f"--scalars {HERE}numbers"):
            go_on()
        longer = go_on(scalars=[f"{HERE}numbers"])
        assert longer.trace["squared"].values[-1] == 64 and longer.meta["scalars"] == [f"{HERE}numbers"]
