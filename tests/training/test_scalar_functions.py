"""Functions of a person that give numbers at each record of a training."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tracer
from tests.trainings import tiny
from tests.watching.conftest import GPT
from tests.watching.loops import batches
from tracer.cli import configs
from tracer.tracking.own_numbers import OwnNumbers
from tracer.tracking.scalar_functions import ScalarFunctions
from tracer.training import loop

SEEN: list[tuple[bool, bool]] = []


def numbers(model: Any, step: int) -> dict[str, Any]:
    """Uses all dice, and says in which mode it found the model."""
    SEEN.append((model.training, torch.is_grad_enabled()))
    model.train()
    rolled = random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
    assert len(rolled) == 3
    return {
        "squared": tracer.scalar(step**2, label="Step squared", unit="steps"),
        "half_ranks": torch.full((2, 4), step / 2),
        "by_layer": [step, -step],
    }


def broken(model: Any, step: int) -> dict[str, Any]:
    raise KeyError(f"no such thing at {step}")


def words(model: Any, step: int) -> Any:
    return "0.5"


HERE = f"{__name__}:"


def test_a_training_keeps_what_they_give_and_is_the_same_to_the_bit(tmp_path: Path) -> None:
    SEEN.clear()
    alone = loop.train(tiny(tmp_path / "a", steps=8), quiet=True)
    with pytest.warns(RuntimeWarning) as said:
        run = loop.train(tiny(tmp_path / "b", steps=8), quiet=True, scalars=[numbers, broken, f"{HERE}words"])
    assert [str(one.message).partition(": ")[0] for one in said] == [
        f"manyeyes records without {HERE}broken", f"manyeyes does not keep what {HERE}words gives",
    ]  # fmt: skip
    assert run.meta["scalars"] == [f"{HERE}{name}" for name in ("numbers", "broken", "words")]
    steps = run.trace["step"].values
    assert run.trace["squared"].values.tolist() == (steps**2).tolist() and run.trace["squared"].attrs["source"]
    assert (run.trace["squared"].attrs["long_name"], run.trace["squared"].attrs["units"]) == ("Step squared", "steps")
    assert run.trace["half_ranks"].values[:, 1, 2].tolist() == (steps / 2).tolist()
    assert run.trace["by_layer"].dims == ("step", "layer")
    assert set(SEEN) == {(False, False)} and len(SEEN) == len(steps)
    mine, theirs = (one.model(8).state_dict() for one in (alone, run))  # pyrefly: ignore[missing-attribute]
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def watched(run: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with tracer.watch(model, run=run, every=2, **options) as recorder:
        for batch in batches(4):
            optimizer.zero_grad()
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            loss.backward()
            optimizer.step()
            recorder.log({"squared": 0.0} if options else {})
            recorder.step(loss)
    assert recorder.off is None and model.training
    return recorder, model.state_dict()


def test_no_die_and_no_mode_knows_that_they_were_asked() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(1, 1).eval())
    drawn = []
    for functions in (ScalarFunctions(()), ScalarFunctions(numbers)):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        functions.ask(OwnNumbers(), model, 1, 0.0)
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002
    assert drawn[0] == drawn[1] and [one.training for one in model] == [True, False]


def test_one_that_changes_weights_is_named() -> None:
    def greedy(model: Any, step: int) -> dict[str, float]:
        model.weight.data.zero_()  # past the counter of torch's own checks
        return {"x": 1.0}

    own, model = OwnNumbers(), nn.Linear(2, 2)
    with pytest.warns(RuntimeWarning, match="greedy changes weight of the model") as said:
        ScalarFunctions(greedy).ask(own, model, 1, 0.0)
    assert len(said) == 1 and own.waiting == {"x": 1.0}


def test_a_number_with_words_is_a_number() -> None:
    given = tracer.scalar(torch.tensor(0.25), label="Share")
    assert float(given) == given.value == 0.25


def test_one_that_takes_too_long_is_asked_less_often() -> None:
    own, asked = OwnNumbers(), list[int]()

    def slow(model: Any, step: int) -> dict[str, float]:
        asked.append(step)
        return {"x": step}

    functions = ScalarFunctions(slow, share=0.5, free=0.0)
    with pytest.warns(RuntimeWarning, match="less often") as said:
        for step, training in enumerate((0.0, 0.0, 0.0, 1e6, 0.0)):
            functions.ask(own, nn.Linear(1, 1), step, training, must=step == 4)
    assert asked == [0, 3, 4] and len(said) == 1 and own.waiting == {"x": 4}


@pytest.mark.parametrize(
    ("given", "why"),
    [("nowhere:f", "cannot be imported"), (f"{HERE}SEEN", "not a function"), ("f", "write")],
)
def test_what_is_no_function_is_refused(given: Any, why: str) -> None:
    with pytest.raises(ValueError, match=f"scalars=.*{why}"):
        ScalarFunctions(given)


def test_a_file_names_them_and_a_run_never(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = tmp_path / "mine.yaml", tmp_path / "run.json"
    path.write_text("preset: demo\nsteps: 7\nscalars: [mine:f, mine:g]\nrules: mine:h\n")
    assert configs.code(path)["scalars"] == ("mine:f", "mine:g") and configs.read(path)[0].steps == 7
    assert configs.code(path)["rules"] == ("mine:h",)
    path.write_text("preset: demo\nscalars: 3\n")
    with pytest.raises(ValueError, match="scalars=3 is no list"):
        configs.code(path)
    run.write_text('{"format": 1, "config": {"steps": 7}, "scalars": ["mine:f"]}')
    assert configs.code(run) == configs.NO_CODE and configs.read(run)[0].steps == 7
    assert "--scalars mine:f" in capsys.readouterr().out
