"""The loss on what is held out, beside the same taken by hand in float64."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import tracer
from tests.tiers import quick
from tests.watching.loops import batches
from tracer.hooks.inputs import Inputs
from tracer.measures import MEASURES, Setting
from tracer.store import open_run
from tracer.watching.held_out import _is_call
from tracer.watching.run_directory import attrs

ROWS = torch.randint(2, 20, (22, 17), generator=torch.Generator().manual_seed(9))
GIVEN: dict[str, Any] = {
    "ids alone": ROWS[:, :-1],
    "arguments": (ROWS[:, :-1], ROWS[:, 1:]),
    "loader of ids": DataLoader(ROWS[:, :-1], batch_size=4, shuffle=True),  # pyrefly: ignore[bad-argument-type]
    "loader of arguments": [(rows[:, :-1], rows[:, 1:]) for rows in ROWS.split(5)],
    "list of arguments": [ROWS[:, :-1], ROWS[:, 1:]],
    "list of two batches of ids": [ROWS[:11, :-1], ROWS[11:, :-1]],
    "list of three batches of ids": [rows[:, :-1] for rows in ROWS.split(8)],
    "mappings": [{"idx": rows[:, :-1], "targets": rows[:, 1:]} for rows in ROWS.split(7)],
}  # fmt: skip


def by_hand(model: Any, what: str) -> float:
    """Mean over all targets; ids alone hold one target less."""
    twin_logits = model(ROWS[:, :-1], ROWS[:, 1:])[0].double()
    end = 15 if "ids" in what else 16
    return float(F.cross_entropy(twin_logits[:, :end].flatten(0, 1), ROWS[:, 1 : end + 1].flatten()))


@pytest.mark.parametrize("what", quick(GIVEN, ("ids alone", "arguments")))
def test_the_loss_is_that_of_all_targets_in_eval_mode(here: Path, gpt: Callable[..., Any], what: str) -> None:
    found = []
    for given in (None, GIVEN[what]):
        torch.manual_seed(1)
        model, expected = gpt(dropout=0.2), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        recorder = tracer.watch(model, run="plain" if given is None else "r", every=1, held_out=given)
        for batch in batches(3):
            with torch.no_grad():
                expected.append(by_hand(model.eval(), what))
            loss = model.train()(batch[:, :-1], batch[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
        recorder.close()
        found.append([*model.parameters(), torch.rand(2)])
    trace = open_run("r").trace
    np.testing.assert_allclose(trace["val_loss"][:-1], expected, rtol=1e-5)
    assert np.isnan(open_run("plain").trace["val_loss"]).all()
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))  # training, and every draw, as without it
    assert open_run("r").about.probes["held_out"].startswith("the batches given as held_out")


class Masked(nn.Module):
    """Targets of 0 do not count."""

    def __init__(self, gpt: Any) -> None:
        super().__init__()
        self.gpt = gpt

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.gpt(idx)[0]
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)


BLANK = torch.where(torch.arange(16) < 3, -100, ROWS[:, 1:])


@pytest.mark.parametrize(
    ("given", "is_call"),
    [
        ([ROWS[:, :-1], ROWS[:, 1:]], True), ([ROWS[:, :-1], BLANK], True), ([ROWS[:11, :-1], ROWS[11:, :-1]], False),
        ([ROWS[:, :-1], ROWS[:, 1:], BLANK], False), ([ROWS[:, :-1]], True), ((ROWS[:, :-1], ROWS[:, 1:]), False),
        ([], False), ([ROWS[:, :-1], 7], False), ([ROWS[:, :-1] % 2 + 2, ROWS[:, 1:]], False),
    ],
)  # fmt: skip
def test_a_list_of_what_the_model_is_called_with_is_one_batch(given: Any, is_call: bool) -> None:
    """In training it is called with ids and the next ones."""
    assert _is_call(given, Inputs.of((ROWS[:4, :-1], ROWS[:4, 1:]), {})) is is_call


@pytest.mark.parametrize(
    ("name", "kind", "changed"),
    [
        ("val_loss", "watched", {"units", "formula"}),
        ("val_loss", "opened", set()), ("train_loss", "watched", set()), ("entropy", "watched", {"probe"}),
        ("entropy", "opened", set()), ("induction", "watched", set()),
    ],
)  # fmt: skip
def test_what_a_trace_says_of_a_measure(name: str, kind: str, changed: set[str]) -> None:
    """As the registry has it, but for the text of a watched model, and the unit of its own loss."""
    found, known = attrs(name, kind), MEASURES[name].attrs
    assert found.keys() == known.keys() and {key for key in found if found[key] != known[key]} == changed
    assert (found["units"] == "") == (known["units"] == "" or "units" in changed)
    assert "probe" not in changed or found["probe"] == "train"


def test_no_loss_of_somebodys_own_is_compared_with_guessing() -> None:
    setting = Setting.of(512, 64)
    assert {"chance", "chance_text"} <= attrs("entropy", "watched", setting).keys()
    assert "chance" in attrs("repeat_loss", "watched", setting) and "chance" in attrs("val_loss", "opened", setting)
    for name in ("train_loss", "val_loss"):
        assert not {"chance", "chance_text"} & attrs(name, "watched", setting).keys()


MASKED = torch.cat([torch.zeros_like(ROWS[:, 1:6]), ROWS[:, 6:]], 1)


@pytest.mark.parametrize("what", ["a tuple", "lists of one"])
def test_what_is_said_instead_of_such_a_list_is_taken(here: Path, gpt: Callable[..., Any], what: str) -> None:
    given: Any = (ROWS[:, :-1], MASKED) if what == "a tuple" else [[ROWS[:11, :-1]], [ROWS[11:, :-1]]]
    with tracer.watch(model := Masked(gpt()), run="r", every=1, held_out=given) as recorder:
        model(ROWS[:4, :-1], ROWS[:4, 1:])
    logits = model.eval().gpt(ROWS[:, :-1])[0].detach()
    end, targets = (16, MASKED) if what == "a tuple" else (15, ROWS[:, 1:16])
    expected = F.cross_entropy(logits[:, :end].flatten(0, 1), targets.flatten(), ignore_index=0)
    assert recorder.off is None
    np.testing.assert_allclose(open_run("r").trace["val_loss"][0], float(expected), rtol=1e-5)


def broken() -> Any:
    yield ROWS[:4, :-1]
    raise KeyError("no such file")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "holds no batch"), ([torch.zeros(2, 4)], "cannot be called with a batch of held_out"),
        ([{"words": ROWS}], "give what it is called with in training"), (broken(), "KeyError: 'no such file'"),
    ],
)  # fmt: skip
def test_what_is_no_batch_is_said_once_and_all_else_is_recorded(
    here: Path, gpt: Callable[..., Any], given: Any, says: str
) -> None:
    model = gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with (
        pytest.warns(RuntimeWarning, match="held_out is left out from here on, everything else is") as warned,
        tracer.watch(model, run="r", every=1, held_out=given) as recorder,
    ):
        for batch in batches(2):
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    assert len(warned) == 1 and says in str(warned[0].message) and recorder.off is None
    trace = open_run("r").trace
    assert np.isnan(trace["val_loss"]).all() and np.isfinite(trace["entropy"]).all() and len(trace.step) == 3


def test_what_is_neither_a_batch_nor_a_loader_is_refused_at_once(gpt: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="neither a batch"):
        tracer.watch(gpt(), run="r", held_out=7)
