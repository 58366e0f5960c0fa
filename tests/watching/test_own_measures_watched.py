"""A user's measures and probes in somebody's own loop: the same numbers as of the patterns, and never in the way."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tracer
from tests.tiers import quick
from tests.watching.headless import language, rows
from tests.watching.headless import train as trained
from tracer.heads.row_block import RowBlock

TOKENS = torch.randint(20, (3, 16), generator=torch.Generator().manual_seed(1))


@tracer.measure(range=(0, 1))
def on_even(block: RowBlock) -> Tensor:
    return block.pattern[..., ::2].sum(-1)


@tracer.measure(probe="mine")
def sharp(block: RowBlock) -> Tensor:
    return block.pattern.square().sum(-1)


@tracer.measure(probe="repeat")
def length(block: RowBlock) -> Tensor:
    return block.z.norm(dim=-1).transpose(1, 2)


OWN: Any = {
    "measures": [on_even, sharp, length],
    "probes": {"mine": tracer.Probe(TOKENS, {"two back": [(5, 3), (6, 4), (7, 5)]})},
}


def record(model: Any, name: str, **options: Any) -> list[float]:
    optimizer, dice, losses = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(2), []
    with tracer.watch(model, run=name, every=2, rows=3, **options) as recorder:
        for _ in range(4):
            ids = torch.randint(20, (8, 17), generator=dice)
            loss = model(ids[:, :-1], ids[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("flash", quick([True, False], (True,)))
def test_they_are_those_of_the_patterns(gpt: Any, here: Path, flash: bool) -> None:
    model = gpt(flash, dropout=0.0)
    with_own = record(model, "r", **OWN)
    assert with_own == record(gpt(flash, dropout=0.0), "plain")
    last, run = tracer.open_run("r").trace.isel(step=-1), tracer.open_run("r")
    assert run.meta["measures"] == [f"{__name__}:{name}" for name in ("on_even", "sharp", "length")]
    with torch.no_grad(), tracer.watch(model.eval(), keep=3) as watcher:
        loss = model(TOKENS, TOKENS.roll(-1, 1))[0]
    p = torch.stack(
        [torch.stack([torch.stack([watcher.pattern(a, b, sequence=s) for s in range(3)]) for b in range(4)])
         for a in range(2)]
    ).double()  # fmt: skip
    np.testing.assert_allclose(last.sharp, p.square().sum(-1).mean((2, 3)), rtol=1e-4)
    named = (p[:, :, 0, 5, 3] + p[:, :, 1, 6, 4] + p[:, :, 2, 7, 5]) / 3
    np.testing.assert_allclose(last.mine_two_back, named, rtol=1e-4)
    expected = torch.nn.functional.cross_entropy(loss[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
    np.testing.assert_allclose(last.mine_loss, expected.item(), rtol=1e-4)
    assert np.isfinite([last[name] for name in ("on_even", "on_even_se", "length", "length_se", "sharp_se")]).all()
    plain = tracer.open_run("plain").trace
    for name in ("entropy", "induction", "pattern", "val_loss", "repeat_loss"):
        np.testing.assert_array_equal(plain[name], run.trace[name], name)


def test_they_are_read_once_without_a_run(gpt: Any) -> None:
    with torch.no_grad(), tracer.watch(gpt().eval(), measures=on_even) as watcher:
        watcher.model(TOKENS)
    found = watcher.read()
    expected = watcher.pattern(1, 2)[1:, ::2].sum(-1).mean()
    with torch.no_grad(), tracer.watch(watcher.model, measures=on_even) as one:
        watcher.model(TOKENS[:1])
    np.testing.assert_allclose(one.read().on_even[1, 2], expected, rtol=1e-4)
    assert found.on_even.dims == ("layer", "head") and found.on_even.attrs["valid_max"] == 1


def test_one_that_raises_is_said_once_and_the_training_goes_on(gpt: Any, here: Path) -> None:
    def broken(block: RowBlock) -> Tensor:
        raise RuntimeError("no such luck")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        record(gpt(), "r", measures=[broken, on_even])
    assert ["no such luck" in str(one.message) for one in said] == [True]
    trace = tracer.open_run("r").trace
    assert trace.broken.isnull().all() and trace.on_even.notnull().all()


def test_a_model_without_heads_has_the_loss_of_the_probe(here: Path) -> None:
    with pytest.warns(RuntimeWarning, match="records r without heads"):
        trained(language(), rows(4), "r", probes={"mine": tracer.Probe(TOKENS % 3, {"x": [(3, 1)] * 3})})
    trace = tracer.open_run("r").trace
    assert "mine_x" not in trace and trace.mine_loss.notnull().all()


def test_a_classifier_has_the_scores_of_the_probe_and_no_loss(here: Path) -> None:
    layer, dice = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.Generator().manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(20, 16), layer, torch.nn.Flatten(), torch.nn.Linear(16 * 16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracer.watch(model, run="r", every=2, probes=OWN["probes"]) as recorder:
        for _ in range(4):
            ids = torch.randint(20, (8, 16), generator=dice)
            loss = torch.nn.functional.cross_entropy(model(ids), ids[:, 0] % 3)
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    trace = tracer.open_run("r").trace
    assert recorder.off is None and trace.mine_two_back.notnull().all() and trace.mine_loss.isnull().all()
