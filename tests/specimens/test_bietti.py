"""Rows, kinds, targets and losses of the paper on bigrams, against what is counted token by token."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from tracer.config import ModelConfig
from tracer.model import Transformer
from tracer.specimens.paper_folder import load

TRIGGERS = {1, 2, 3, 4, 5}


def module(name: str) -> Any:
    load("bietti")
    return importlib.import_module(f"bietti.{name}")


@pytest.mark.parametrize("source", ["Redrawn", "Fixed"])
def test_after_a_trigger_comes_its_output_and_else_the_table_decides(source: str) -> None:
    triggers = module("triggers")
    rows = getattr(triggers, source)(64, 0).rows(np.random.default_rng(3), 2000)
    assert rows.shape == (2000, 65) and rows.min() >= 0 and rows.max() < 40
    counts, outputs = np.zeros((40, 40)), []
    for row in rows.tolist():
        drawn: dict[int, int] = {}
        for now, after in zip(row, row[1:], strict=False):
            if now in TRIGGERS:
                assert after not in TRIGGERS and drawn.setdefault(now, after) == after
            else:
                counts[now, after] += 1
        outputs.append(drawn)
    for now in set(range(40)) - TRIGGERS:
        n = counts[now].sum()
        near = 5 * np.sqrt(triggers.TABLE[now] * (1 - triggers.TABLE[now]) / n) + 2 / n
        assert (np.abs(counts[now] / n - triggers.TABLE[now]) <= near).all()
    np.testing.assert_allclose(triggers.TABLE.sum(1), 1)
    of_one = {drawn[1] for drawn in outputs if 1 in drawn}
    assert of_one == set(range(40)) - TRIGGERS if source == "Redrawn" else len(of_one) == 1


def test_kinds_and_targets_are_what_a_reader_would_mark() -> None:
    triggers = module("triggers")
    row = [7, 1, 9, 2, 8, 1, 9, 1, 9]  # 1 gives 9, 2 gives 8
    kinds = {name: mask[0].tolist() for name, mask in triggers.kinds(np.array([row])).items()}
    assert [at for at, held in enumerate(kinds["first"]) if held] == [1, 3]
    assert [at for at, held in enumerate(kinds["again"]) if held] == [5, 7]
    assert [at for at, held in enumerate(kinds["bigram"]) if held] == [0, 2, 4, 6]
    found = triggers.targets(np.array([row]))
    assert found["previous"] == [(0, q, q - 1) for q in (2, 4, 6)]
    assert sorted(found["output"]) == [(0, 5, 2), (0, 7, 2), (0, 7, 6)]
    assert sorted(found["other"]) == [(0, 5, 4), (0, 7, 4)]


def test_losses_are_means_over_each_kind() -> None:
    triggers = module("triggers")
    config = ModelConfig(n_layers=1, n_heads=1, d_model=16, n_ctx=64, d_vocab=40)
    model, rows = Transformer(config).requires_grad_(False), triggers.sample(triggers.Redrawn)
    found = triggers.losses_on(triggers.Redrawn)(model, 0)
    log_p = model(torch.from_numpy(rows[:, :-1])).double().log_softmax(-1)
    losses = -log_p.gather(-1, torch.from_numpy(rows[:, 1:, None]))[..., 0].numpy()
    for name, mask in triggers.kinds(rows).items():
        assert float(found[f"loss_{name}"]) == pytest.approx(losses[mask].mean(), abs=1e-5)
    assert 0 <= found["accuracy_again"] <= 1


def test_half_of_the_way_down_is_read_between_records() -> None:
    import xarray as xr

    paper = module("paper")
    loss = xr.Dataset({"loss": ("step", [4.0, 4.0, 3.0, np.nan, 0.0, 1.0])}, {"step": [0, 10, 20, 25, 30, 40]})
    run = type("Run", (), {"trace": loss})
    assert paper.halfway(run, "loss") == pytest.approx(20 + 10 / 3)
    assert paper.last(run, "loss") == 1.0
