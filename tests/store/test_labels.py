"""What a person says of a run when it begins."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.test_scalar_functions import watched
from tests.trainings import tiny
from tracer.cli.ls import ls
from tracer.store import open_run
from tracer.store.choosing import differences, found_by, settings
from tracer.store.housekeeping import note, write_note
from tracer.store.labels import Labels
from tracer.training import loop

SAID: dict[str, Any] = {"settings": {"lr": 3e-3, "data": {"name": "pile"}}, "note": "warm start", "tags": ["a", "b"]}


def test_settings_have_names() -> None:
    with pytest.raises(ValueError, match=r"settings=\[1, 2\] is a list: give a mapping"):
        Labels.of([1, 2])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"a": {"b": 1}, "c": None, "d": True}, {"a.b": 1, "c": None, "d": True}),
        (Namespace(lr=1e-3, out=Path("x")), {"lr": 1e-3, "out": "x"}),
        ({"x": np.float32(0.5), "y": torch.tensor(2), "z": float("inf"), "n": 10**400}, {"x": 0.5, "y": 2, "z": "inf"}),
        ({"sizes": (1, 2), "dtype": torch.float32, "text": "t" * 2000}, {"sizes": [1, 2], "dtype": "torch.float32"}),
    ],
)  # fmt: skip
def test_settings_are_kept_as_json_has_them(given: Any, kept: dict[str, Any]) -> None:
    found = Labels.of(given).facts["settings"]
    assert {name: found[name] for name in kept} == kept and all(len(str(x)) <= 1000 for x in found.values())


@pytest.mark.parametrize(
    "given", [{"tags": ["two words"]}, {"tags": [""]}, {"tags": [str(i) for i in range(51)]}, {"note": "n" * 2001},
              {"settings": {str(i): i for i in range(501)}}, {"settings": {"n" * 201: 1}}],
)  # fmt: skip
def test_too_much_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="at most"):
        Labels.of(**given)


def test_a_watched_run_is_found_by_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    watched("r", **SAID)
    run = open_run("r")
    assert run.meta["settings"] == {"lr": 3e-3, "data.name": "pile"} and run.meta["tags"] == ["a", "b"]
    assert note(run) == "warm start"
    for text, holds in (("lr>1e-3 tag=a", True), ("tag=c", False), ("tag!=c name=pile warm", True), ("tag!=B", False),
                        ("lr>1e-2", False), ("squared=0 b", True)):  # fmt: skip
        assert found_by(text)(run) == holds, text
    assert ls(find="lr>1e-3 tag=a") == 0 and "r " in capsys.readouterr().out
    write_note(run, "mine")
    watched("r", start_step=2, tags="c", note="of the job")
    again = open_run("r")
    assert (again.meta["tags"], again.meta["settings"], note(again)) == (["c"], run.meta["settings"], "mine")


def test_our_own_runs_have_them_besides_their_config(tmp_path: Path) -> None:
    config = tiny(tmp_path / "a", steps=4)
    said: dict[str, Any] = SAID | {"settings": {"idea": 3, "seed": 9}}
    run = loop.train(config, quiet=True, **said)
    found = settings(run)
    assert (found["idea"], found["settings.seed"], found["seed"], found["tags"]) == (3, 9, config.seed, "a b")
    forked = loop.fork(run, 4, tiny(tmp_path / "b", steps=8), quiet=True, settings={"idea": 4}, note="n", tags=["f"])
    assert differences([found, settings(forked)])["idea"] == [3, 4] and note(forked) == "n"
