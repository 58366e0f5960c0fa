"""Every page of a run whose attention a person declared, with and without where z is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from streamlit.testing.v1 import AppTest

import tracer
from tests.dashboard.words import answer, changes
from tests.hooks.quotients import VOCABULARY, Quotient, Stack, sigmoid, told
from tests.watching.headless import next_token_loss

Open = Callable[..., AppTest]
WHY = "The heads of blocks.0 cannot be switched off: nobody said where their z is. Name the part of it that reads z, "


class Located(Quotient):
    pass


class Blind(Quotient):
    pass


def pattern(module: Any, inputs: Any, output: Any) -> torch.Tensor:
    return told(module, inputs, output)[0]


tracer.attends(Located, told, out="proj")
tracer.attends(Blind, pattern)


def located() -> Stack:
    return Stack(sigmoid, layer=Located)


def blind() -> Stack:
    return Stack(sigmoid, layer=Blind)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("declared")
    for make in (located, blind):
        model, dice = make(), torch.Generator().manual_seed(1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        where = folder / "checkpoints" / make.__name__
        with tracer.watch(model, run=where, build=f"{__name__}:{make.__name__}", every=4) as recorder:
            for _ in range(8):
                half = torch.randint(1, VOCABULARY, (8, 12), generator=dice)
                loss = next_token_loss(model, torch.cat([half, half], 1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
    return folder


@pytest.fixture
def elsewhere(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(made)
    monkeypatch.setenv("MANYEYES_BUILD", f"{__name__}:located,{__name__}:blind")
    yield made


@pytest.mark.parametrize("run", ["located", "blind"])
@pytest.mark.parametrize("page", ["heads", "training", "find", "circuits", "phases", "gradients"])
def test_a_page_is_that_of_any_model(elsewhere: Path, open_page: Open, page: str, run: str) -> None:
    app = open_page(page, run=run, layer=1, head=2)
    assert not app.error and "No heads were recorded" not in str([one.value for one in app.info])


def test_heads_are_switched_off_where_it_was_said_what_reads_them(elsewhere: Path, open_page: Open) -> None:
    app = open_page("ablate", run="located", off=((1, 0),), section="effect")
    assert not app.error and len(answer(app)) == len(changes(app)) == 2


@pytest.mark.parametrize("off", [(), ((0, 1),)])
def test_ablate_says_what_cannot_be_done(elsewhere: Path, open_page: Open, off: tuple[Any, ...]) -> None:
    app = open_page("ablate", run="blind", off=off)
    assert [one.value for one in app.error] == ["This cannot be shown."]
    whys = [one.value for one in app.text if "switched off" in one.value]  # of what is off, and of every head
    assert len(whys) == 1 + bool(off)
    assert {why[0].upper() + why[1:].rstrip(".") for why in whys} == {f"{WHY}tracer.attends(Blind, ..., out='proj')"}
