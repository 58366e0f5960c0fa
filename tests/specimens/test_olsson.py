"""Rows, scores and dates of the third paper, against losses, curves and heads written by hand."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from tracer.config import ModelConfig
from tracer.model import Transformer
from tracer.specimens.paper_folder import load


def module(name: str) -> Any:
    load("olsson")
    return importlib.import_module(f"olsson.{name}")


def test_rows_repeat_as_they_say() -> None:
    numbers = module("numbers")
    rows, second = numbers.repeated()
    assert rows.shape == (512, 65) and (rows[:, 0] == 0).all() and rows[:, 1:].min() == 1 and rows.max() == 64
    lengths = set()
    for row, places in zip(rows[:, 1:], second, strict=True):
        length = next(one for one in range(1, 64) if (row[one:] == row[:-one]).all())
        assert len(set(row[:length])) == length
        assert np.flatnonzero(places).tolist() == list(range(length + 1, 2 * length))
        lengths.add(length)
    assert lengths == set(range(8, 31))
    new = numbers.repeated(False)[0]
    assert all(len(set(row)) == 65 for row in new)


def test_the_score_is_late_losses_less_early_ones() -> None:
    icl = module("numbers").icl
    losses = torch.full((2, 3, 64), 7.0)
    losses[0, :, 56:], losses[0, :, 2:6], losses[1, 1, 60] = 1.0, 4.0, 31.0
    assert icl(losses).tolist() == [-3.0, 1.0]  # 24 / (3 x 8) more


def copier() -> Transformer:
    """A model of one layer that copies: its key is of the token before alone, one head, one-hot tokens."""
    config = ModelConfig(n_layers=1, n_heads=1, d_model=65, n_ctx=64, d_vocab=65, norm="none", positions="none",
                         attn_scale="none", smear="keys")  # fmt: skip
    model = Transformer(config).requires_grad_(False)
    attn, eye = model.blocks[0].attn, torch.eye(65)
    for weight, size in ((model.embed.W_E, 1), (attn.W_Q[0], 50), (attn.W_K[0], 1), (attn.W_V[0], 1)):
        weight.copy_(size * eye)
    attn.W_O[0].copy_(2 * eye)  # pyrefly: ignore[unsupported-operation]
    model.unembed.W_U.copy_(20 * eye)  # pyrefly: ignore[not-callable]
    attn.a_smear.fill_(-40.0)
    return model


def test_one_layer_with_smeared_keys_can_copy_and_without_it_cannot() -> None:
    numbers, model = module("numbers"), copier()
    assert numbers.copied(model) > 0.95 and numbers.copied(model, numbers.NEW) < 0.02
    assert numbers.scores(model)[0] < -5
    np.testing.assert_allclose(numbers.left(model, [[(0, 0)]], False), 0, atol=0.05)
    model.blocks[0].attn.a_smear.fill_(40.0)
    assert numbers.copied(model) < 0.1


def run(best: list[float], icl: list[float], steps: range = range(0, 50, 10)) -> Any:
    """A run whose head L1H0 has these induction scores above its control; the others are at 0."""
    induction = np.zeros((len(best), 2, 2)) + 0.1
    induction[:, 1, 0] += best
    trace = xr.Dataset(
        {"induction": (("step", "layer", "head"), induction), "induction_control": 0.1, "icl_score": ("step", icl)},
        coords={"step": list(steps)},
    )
    return SimpleNamespace(trace=trace)


def test_a_date_is_the_last_crossing_and_what_forms_in_the_window() -> None:
    paper = module("paper")
    one = run([0, 0.4, 0.2, 0.4, 1.0], [0, -1, -1, -2, -4])
    assert paper.reached(one, 0.3) == 25 and np.isnan(paper.reached(one, 1.1))
    smooth = run([0, 0.5, 1.0, 1.0, 1.0], [0, -1, -3, -4, -4])
    # from 0.1 at step 2, score -0.2, to 0.9 at step 18, score -2.6
    assert paper.formed_with(smooth) == pytest.approx(2.4 / 4)
    assert paper.heads(one) == ([(1, 0)], [(0, 0), (0, 1), (1, 1)])
    assert paper.head_by({"two": one, "two-smeared": smooth}) == (6, 25)
    assert "no head of two layers" in paper.no_head({"two": run([0] * 5, [0] * 5)}) and not paper.no_head({"two": one})


def test_a_head_that_is_never_below_has_no_date() -> None:
    paper = module("paper")
    always = run([0.5, 0.5, 0.5], [0, -1, -2], range(0, 30, 10))
    flat = run([0, 0, 0], [0, 0, 0], range(0, 30, 10))
    assert np.isnan(paper.reached(always, 0.3)) and np.isnan(paper.formed_with(always))
    assert np.isnan(paper.formed_with(flat))
    assert paper.paper.claims[0].too_small({"two": flat}).startswith("no head of two layers")


def test_in_context_learning_is_dated_at_half_of_the_last_plain_score() -> None:
    paper = module("paper")
    plain = run([0] * 5, [0, -1, -1, -3, -4])
    smeared = run([0] * 5, [1, -3, -1, -3, -3])
    assert paper.learned_by({"two": plain, "two-smeared": smeared}) == (7.5, 25)
    assert np.isnan(paper.halfway(plain, -9)) and np.isnan(paper.halfway(plain, 0))


def test_most_heads_are_more_than_half_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = module("paper")
    one = run([0, 1.0], [0, -1], range(0, 20, 10))
    one.model = lambda: None
    monkeypatch.setattr(paper, "left", lambda model, sets, frozen: np.array([1.1, 0.9, 1.2] if frozen else [0.9, 1, 1]))
    np.testing.assert_allclose(paper.others_alone({"two": one}, True), [0.1, -0.1, 0.2])
    grows, shrinks = (claim.figure({"two": one}) for claim in paper.paper.claims[-2:])
    assert grows == pytest.approx(2 / 3) and shrinks == pytest.approx(1 / 3)
    assert 0.5 < paper.MOST < 25 / 49


def test_runs_differ_in_what_their_names_say() -> None:
    runs = module("paper").paper.runs
    told = {name: (of.config.model.n_layers, of.config.model.smear) for name, of in runs.items()}
    assert told == {"two": (2, "none"), "two-smeared": (2, "keys"), "one": (1, "none"), "one-smeared": (1, "keys"),
                    "one-queries": (1, "queries")}  # fmt: skip
