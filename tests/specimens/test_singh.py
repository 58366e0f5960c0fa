"""Rows, clamps and numbers of the paper on parts of an induction head, against rows and a model by hand in numpy."""

from __future__ import annotations

import importlib
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import tracer
from tracer.config import ModelConfig, TrainConfig
from tracer.interventions.clamps import edits
from tracer.model import Transformer
from tracer.specimens.paper_folder import load
from tracer.training.clamping import with_these


def module(name: str) -> Any:
    load("singh")
    return importlib.import_module(f"singh.{name}")


@pytest.mark.parametrize("name", ["FewShot", "Items200", "Labels10", "Labels15"])
def test_only_the_row_itself_says_the_label(name: str) -> None:
    source = getattr(module("exemplars"), name)(5, 0)
    trained, held = source.rows(np.random.default_rng(1), 4000), source.held_out(1000)
    new = source.drawn(np.random.default_rng(2), 1000, new=True)
    seen = []
    for rows in (trained, held, new):
        x1, l1, x2, l2, query, label = rows.T
        assert (x1 != x2).all() and (l1 != l2).all() and (label == np.where(query == x1, l1, l2)).all()
        assert ((query == x1) | (query == x2)).all()
        assert 0.45 < (query == x1).mean() < 0.55 and max(l1.max(), l2.max()) < source.labels <= x1.min()
        seen.append(({frozenset(pair) for pair in zip(l1, l2, strict=True)}, {*x1, *x2}))
    (pairs, items), (held_pairs, held_items), (_, new_items) = seen
    assert not pairs & held_pairs and held_items <= items and not items & new_items
    assert len(pairs | held_pairs) == source.labels * (source.labels - 1) / 2 == 5 * len(held_pairs)
    assert len(items) == source.items and max(new_items) < source.d_vocab
    mean = np.array([trained[trained[:, 4] == item, 5].mean() for item in sorted(items)[:50]])
    assert abs(mean - (source.labels - 1) / 2).max() < source.labels / 3  # no item has a label of its own
    assert (source.loss_mask(trained).sum(0) == [0, 0, 0, 0, 4000]).all()
    assert (source.held_out(9) == source.held_out(9)).all()


def untrained(clamp: Any = ()) -> Transformer:
    small = ModelConfig(n_heads=2, d_model=16, n_ctx=5, positions="rotary", norm="layer", norm_eps=1e-5, d_vocab=235)
    model = Transformer(small, seed=4)
    model.clamps = edits(with_these(TrainConfig(model=small), clamp), 0)
    return model


def by_hand(model: Transformer, tokens: np.ndarray, at_right: bool = False) -> tuple[list[np.ndarray], np.ndarray]:
    """Patterns of both layers and logits at the last place, in float64 from the weights; `at_right`: the last query
    of layer 1 looks at the right label."""
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * weights[f"{name}.w"] + weights[f"{name}.b"]

    def turned(x: np.ndarray) -> np.ndarray:
        n, half = x.shape[1], x.shape[-1] // 2
        angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(half) / half)
        cos, sin, a, b = np.cos(angle), np.sin(angle), x[..., :half], x[..., half:]
        cos, sin = cos[None, :, None], sin[None, :, None]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x, patterns = weights["embed.W_E"][tokens], []
    for layer in range(2):
        read, of = norm(x, f"blocks.{layer}.ln1"), f"blocks.{layer}.attn.W_"
        q, k, v = (np.einsum("bpm,hmd->bphd", read, weights[of + name]) for name in "QKV")
        scores = np.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)) / np.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones((5, 5))) > 0, scores, -np.inf)
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        if at_right and layer == 1:
            pattern[:, :, 4] = np.eye(5)[np.where(tokens[:, 0] == tokens[:, 4], 1, 3)][:, None]
        patterns.append(pattern)
        x = x + np.einsum("bhqk,bkhd,hdm->bqm", pattern, v, weights[of + "O"])
    return patterns, (norm(x, "ln_final") @ weights["unembed.W_U"])[:, 4]


@torch.no_grad()
def test_numbers_and_losses_are_those_of_a_model_by_hand() -> None:
    numbers, clamps, source = module("numbers"), module("clamps"), module("exemplars").FewShot
    model, rows = untrained(), numbers.fixed(source).numpy()
    tokens, labels, each = rows[:, :-1], rows[:, [1, 3]], np.arange(len(rows))
    patterns, logits = by_hand(model, tokens)
    which = (tokens[:, 4] == tokens[:, 2]).astype(int)
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    held = np.exp(by_hand(model, tokens, at_right=True)[1])
    on_labels = np.stack([one[:, :, 4, [1, 3]] for one in patterns])
    expected = {
        "previous_item": np.stack([one[:, :, [1, 3], [0, 2]].mean((0, 2)) for one in patterns]),
        "match": (on_labels[:, each, :, which] / on_labels.sum(-1).swapaxes(0, 1)).mean(0),
        "copied": (held / held.sum(-1, keepdims=True))[each, labels[each, which]].mean(),
        "said_loss": -np.log(chances[each, labels[each, which]]).mean(),
    }
    of_head = on_labels[1, :, clamps.HEAD]
    looks = patterns[0][:, clamps.HEAD][:, [1, 3]]  # [row label key]
    found = np.stack([looks[:, i, 0] * (which == 0) + looks[:, i, 2] * (which == 1) for i in (0, 1)], 1)
    two = np.exp(clamps.SHARP * found)
    losses = {
        "copy": -np.log(of_head[each, which] / of_head.sum(1)).mean(),
        "match_and_copy": -np.log(two[each, which] / two.sum(1)).mean(),
    }
    for name, value in expected.items():
        got = numbers.on(source)(model, 0)[name]
        np.testing.assert_allclose(np.asarray(got.value), value, rtol=2e-4, atol=1e-6, err_msg=name)
    for name, value in losses.items():
        got = numbers.on(source, getattr(clamps, name))(model, 0)["said_loss"]
        assert float(got.value) == pytest.approx(value, rel=2e-4), name


def test_what_is_held_is_what_the_row_says() -> None:
    clamps, tokens = module("clamps"), torch.tensor([[7, 1, 9, 3, 9], [7, 1, 9, 3, 7]])
    model = untrained({"L0": clamps.previous, "L1H0": clamps.match})
    below, above = (model.run_with_cache(tokens)[1]["pattern", layer] for layer in range(2))
    assert below[0, 1].argmax(-1).tolist() == [0, 0, 2, 2, 4] and below.max(-1).values.min() == 1
    assert above[:, 0, 4].tolist() == [[0, 0, 0, 1, 0], [0, 1, 0, 0, 0]] and above[0, 1, 4].max() < 1
    torch.testing.assert_close(above[:, 0, :4], by_own(model, tokens)[:, 0, :4])
    assert model(tokens[:, :3]).shape[1] == 3  # other rows than these are read, too
    wrong = untrained({"L0": clamps.own_token})
    assert wrong.run_with_cache(tokens)[1]["pattern", 0][1, 1].equal(torch.eye(5))


def by_own(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """The pattern of layer 1 with what is held in layer 0 alone."""
    free = untrained({"L0": module("clamps").previous})
    free.load_state_dict(model.state_dict())
    return free.run_with_cache(tokens)[1]["pattern", 1]


@pytest.mark.parametrize(("loss", "parts"), [("copy", {"0.W_Q", "1.W_Q"}), ("match_and_copy", {"0.W_Q"})])
def test_losses_ask_the_parts_that_are_not_held(loss: str, parts: set[str]) -> None:
    clamps, model = module("clamps"), untrained()
    rows = torch.tensor([[7, 1, 9, 3, 9, 3], [7, 1, 9, 3, 7, 1]])
    batch = tracer.LossBatch(rows[:, :-1], rows[:, 1:], (torch.arange(5) == 4).expand(len(rows), -1), 0, model)
    getattr(clamps, loss)(None, batch).sum().backward()
    moved = {n.removeprefix("blocks.").replace("attn.", "") for n, p in model.named_parameters() if p.grad is not None}
    assert parts <= moved and not moved & {"1.W_V", "1.W_O", "unembed.W_U"}
    assert ("1.W_Q" in moved) == ("1.W_Q" in parts)


def run_of(**values: list[float]) -> Any:
    steps = [0, 100, 200, 300]
    return SimpleNamespace(trace=xr.Dataset({n: ("step", v) for n, v in values.items()}, coords={"step": steps}))


@pytest.mark.parametrize(
    ("values", "step"),
    [([0, 0.4, 0.8, 1], 175), ([0, 0.8, 0.6, 0.9], 233.333), ([1, 1, 1, 1], 0), ([0, 0, 1, 0.6], np.nan)],
)
def test_dates_by_hand(values: list[float], step: float) -> None:
    assert module("paper").date(run_of(copied=values), "copied") == pytest.approx(step, nan_ok=True, abs=1e-3)


def test_a_straight_line_rests_three_quarters() -> None:
    rest, either = module("paper").rest, np.log(2)
    line = run_of(said_loss=[either * part for part in (1.5, 1.0, 0.5, 0.0)])
    assert rest(line) == pytest.approx(module("paper").STRAIGHT)
    late = run_of(said_loss=[either * part for part in (1.3, 0.9, 0.81, 0.0)])
    assert rest(late) == pytest.approx(2.548, abs=1e-3)  # from 12.5 to 201.2, beside from there to 275.3


def test_a_part_that_rises_by_a_straight_line_rests_a_third(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = module("paper")
    monkeypatch.setattr(paper, "curve", lambda run, part: (np.arange(4) * 100.0, np.array(run)))
    level = paper.FORMED["copied"]
    assert paper.rest_of([0.1, 0.1 + (level - 0.1) / 3, 0.1 + (level - 0.1) / 1.5, level], "copied") == pytest.approx(
        1 / 3
    )
    assert paper.rest_of([0.1, 0.1, 0.1, level], "copied") == pytest.approx(220 / 60)


def test_heads_are_switched_off_from_the_best_on() -> None:
    """Of a last layer whose heads are the identity's parts, leads are sums of what each head gives."""
    numbers = module("numbers")
    gives = torch.tensor([1.0, 4.0, 2.0])

    class Sums:
        n_heads = 3

        def run_with_hooks(self, tokens: torch.Tensor, fwd_hooks: Any) -> torch.Tensor:
            z = gives[None, None, :, None].repeat(len(tokens), 5, 1, 1)
            ((_, hook),) = fwd_hooks
            hook(z, None)
            logits = torch.zeros(len(tokens), 5, 10)
            logits[:, 4, tokens[0, 1]] = z.sum((2, 3))[:, 4]
            return logits

    rows = torch.tensor([[7, 1, 9, 3, 7, 1]] * 2)
    steps, alone = numbers.one_by_one(Sums(), rows)
    assert alone == [4, 2, 1] and [lead for lead, _ in steps] == [7, 3, 1, 0]
    assert all(share == 1 for (_, share), _ in itertools.pairwise(steps))


def test_runs_hold_what_their_names_say() -> None:
    runs = module("paper").runs
    held = {name: sorted(run.code["clamp"]) for name, run in runs.items()}
    off = [f"L1H{head}" for head in range(1, 8)]
    assert held["all-heads"] == [] and held["one-head"] == held["c"] == held["b-c"] == off
    assert held["a"] == held["a-c"] == held["wrong-c"] == ["L0", *off] and held["b"] == ["L1H0", *off]
    losses = {name: run.code["loss"].__name__ for name, run in runs.items() if "loss" in run.code}
    assert losses.pop("b-c") == "match_and_copy" and set(losses.values()) == {"copy"}
    assert set(losses) == {"c", "a-c", "wrong-c", "a-c-100", "a-c-200", "a-c-15"}
