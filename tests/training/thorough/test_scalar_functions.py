"""Functions of a person that give numbers at each record of a training: what the first tier leaves."""

from pathlib import Path

import pytest
import torch

from tests.training.test_scalar_functions import HERE, broken, numbers, watched
from tests.trainings import tiny
from tracer.store import open_run
from tracer.training import loop


def test_who_goes_on_names_them_again(tmp_path: Path) -> None:
    run = loop.train(tiny(tmp_path / "a", steps=4), quiet=True, scalars=numbers)
    for go_on in (lambda **given: loop.resume(run.dir, steps=8, quiet=True, **given),
                  lambda **given: loop.fork(run, 4, tiny(tmp_path / "b", steps=8), quiet=True, **given)):  # fmt: skip
        with pytest.raises(ValueError, match=f"--scalars {HERE}numbers"):
            go_on()
        longer = go_on(scalars=[f"{HERE}numbers"])
        assert longer.trace["squared"].values[-1] == 64 and longer.meta["scalars"] == [f"{HERE}numbers"]


def test_a_watched_loop_keeps_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, alone = watched("alone")
    with pytest.warns(RuntimeWarning) as said:
        recorder, state = watched("r", scalars=[numbers, broken])
    assert [str(one.message).partition(": ")[2][:9] for one in said] == ["KeyError:", f"{HERE}numbers"[:9]]
    assert all(torch.equal(alone[name], state[name]) for name in alone) and recorder.last["own/squared"] == 16
    run = open_run("r")
    assert run.trace["squared"].values.tolist() == [0, 1, 4, 16] and len(run.meta["scalars"]) == 2
