"""Dates, verdicts and Zhai's bound of the paper on exploding logits, by hand and by other code; its page's figures."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from tracer.analysis.entropy_bound import bound
from tracer.config import ModelConfig
from tracer.model import Transformer
from tracer.specimens.paper_folder import load


def module(name: str) -> Any:
    load("logits")
    return importlib.import_module(f"logits.{name}")


STEPS = [0, 10, 20, 30]


def run(
    losses: list[float], logits: tuple[float, ...] = (6, 6, 6, 6), status: str = "finished", lr: float = 0.02
) -> Any:
    """A run of two layers of two heads; its first head has these largest logits, the others half of them."""
    shares = np.array([[1, 0.5], [0.5, 0.5]])
    largest = np.array(logits)[:, None, None] * shares
    trace = xr.Dataset(
        {
            "val_loss": ("step", np.array(losses, float)),
            "max_logit": (("step", "layer", "head"), largest),
            "entropy_normalised": (("step", "layer", "head"), np.ones((len(losses), 2, 2)) * shares),
        },
        coords={"step": STEPS[: len(losses)]},
    )
    return SimpleNamespace(trace=trace, status=status, config=SimpleNamespace(optim=SimpleNamespace(lr=lr)))


def test_what_a_run_ended_with() -> None:
    numbers = module("numbers")
    assert numbers.end(run([9, 5, 4, 3])) == 4
    assert numbers.end(run([9, 5, math.inf, 3])) == numbers.end(run([9, 5, 4, 3], status="diverged")) == math.inf
    assert numbers.end(run([9, 6, 4, math.nan])) == pytest.approx(19 / 3)  # of the records that have one
    assert numbers.entropy(run([9, 5, 4, 3])) == 0.625
    assert numbers.largest(run([9, 5, 4, 3], (6, 7, 99, 8)))[1].tolist() == [6, 7, 99, 8]


@pytest.mark.parametrize(
    ("outside", "step"),
    [([0, 0, 1, 1], 20), ([0, 1, 0, 1], 30), ([1, 1, 1, 1], 0), ([0, 1, 1, 0], math.nan), ([0, 0, 0, 0], math.nan)],
)
def test_a_curve_has_left_where_it_stays_outside(outside: list[int], step: float) -> None:
    assert module("numbers").left(np.array(STEPS), np.array(outside, bool)) == pytest.approx(step, nan_ok=True)


def test_logits_lead_by_the_steps_between_two_dates() -> None:
    paper = module("paper")
    safe = run([9, 5, 4, 3], (6, 8, 10, 7))  # a band of up to 20
    lost = run([9, 6, 5.5, 5.2], (6, 21, 100, 1000))
    normed = run([9, 5.95, 5.3, 4.2], (3, 3, 3, 4))
    runs = {"none-02": safe, "none-30": lost, "norm-30": normed}
    assert paper.lag("none-30", "norm-30")(runs) == 10  # logits at 10, the loss at 20
    assert paper.of_band("norm-30")(runs) == 0.2
    assert math.isnan(paper.lag("none-30", "norm-30")(runs | {"none-30": safe}))
    early = run([9, 6, 5.5], (6, 21, 100))  # it diverged before its last record
    assert paper.lag("none-30", "norm-30")(runs | {"none-30": early}) == 10


def grid(*ends: float) -> dict[str, Any]:
    """Runs without a remedy that end so, at the rates of the paper."""
    paper = module("paper")
    return {
        name: run([9, end, end, end], lr=paper.runs[name].config.optim.lr)
        for name, end in zip(paper.RATES, ends, strict=True)
    }


def test_a_remedy_wins_by_rates_at_which_runs_train() -> None:
    paper = module("paper")
    runs = grid(4.1, 4.0, 4.6, 5.2)
    assert paper.edge(runs) == 0.05
    assert paper.excess(runs, "none-30") == pytest.approx(1.2)
    held = run([9, 4.3, 4.3, 4.3], lr=0.3)
    assert paper.wins("norm-30")(runs | {"norm-30": held}) == 6
    assert paper.wins("norm-30")(grid(4.1, 4.0, 4.2, 5.2) | {"norm-30": held}) == 3
    assert paper.wins("norm-30")(runs | {"norm-30": run([9, 4.5, 4.5, 4.5], lr=0.3)}) == 0
    dead = run([9, 4, 4, 4], status="diverged", lr=0.1)
    assert paper.edge(runs | {"none-10": dead}) == 0.05 and paper.excess(runs | {"none-10": dead}, "none-10") > 1e9
    of_adam = {"adam-none-1": run([9, 4, 4, 4]), "adam-none-3": run([9, 5, 5, 5]), "adam-norm-3": held}
    assert paper.excess(of_adam, "adam-norm-3") == pytest.approx(0.3)
    assert paper.gains("adam-norm-3", "adam-none-3")(of_adam) == pytest.approx(0.7)


def test_runs_differ_in_what_their_names_say() -> None:
    paper = module("paper")
    told = {}
    for name, of in paper.runs.items():
        optim, rest = of.config.optim, replace(of.config, optim=paper.optim, model=paper.model)
        assert rest == paper.config and not of.code
        assert replace(of.config.model, qk_norm=False, attn_softcap=None) == paper.model
        assert of.config.model.qk_norm == ("norm" in name)
        assert of.config.model.attn_softcap == (30 if name.startswith("cap") else None)
        changed = {"lr": optim.lr, "clip": optim.qk_clip, "slow": optim.qk_lr_factor, "warm": optim.warmup}
        told[name] = (optim.name, *changed.values())
    assert told == {
        "none-02": ("muon", 0.02, None, 1, 0), "none-05": ("muon", 0.05, None, 1, 0),
        "none-10": ("muon", 0.1, None, 1, 0), "none-30": ("muon", 0.3, None, 1, 0),
        "norm-02": ("muon", 0.02, None, 1, 0), "norm-10": ("muon", 0.1, None, 1, 0),
        "norm-30": ("muon", 0.3, None, 1, 0), "clip-02": ("muon", 0.02, 5, 1, 0),
        "clip-30": ("muon", 0.3, 10, 1, 0), "clip-high-10": ("muon", 0.1, 100, 1, 0),
        "never-10": ("muon", 0.1, 1e9, 1, 0), "slow-30": ("muon", 0.3, None, 0.1, 0),
        "cap-02": ("muon", 0.02, None, 1, 0), "cap-30": ("muon", 0.3, None, 1, 0),
        "warm-30": ("muon", 0.3, None, 1, 100), "adam-none-1": ("adamw", 0.01, None, 1, 0),
        "adam-none-3": ("adamw", 0.03, None, 1, 0), "adam-norm-3": ("adamw", 0.03, None, 1, 0),
        "adam-norm-10": ("adamw", 0.1, None, 1, 0), "adam-clip-3": ("adamw", 0.03, 10, 1, 0),
        "adam-warm-3": ("adamw", 0.03, None, 1, 100),
    }  # fmt: skip


def small() -> Transformer:
    torch.manual_seed(3)
    return Transformer(ModelConfig(n_layers=2, n_heads=2, d_model=8, n_ctx=12, d_vocab=20)).requires_grad_(False)


class Reads:
    """A model that reads these tokens, whatever the text is."""

    def __init__(self, model: Transformer, tokens: torch.Tensor) -> None:
        self.model, self.tokens = model, tokens

    def to_tokens(self, text: str) -> torch.Tensor:
        return self.tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@pytest.mark.parametrize("times", [0.0, 0.05, 0.3, 1.0])
def test_zhais_bound_is_that_of_the_pages(times: float) -> None:
    model, tokens = small(), torch.arange(1, 13)[None]
    for block in model.blocks:
        block.attn.W_Q.mul_(times)
    found = module("numbers").zhai(Reads(model, tokens))
    said = bound(model, tokens)
    torch.testing.assert_close(found, said.by_weights)
    assert (found <= said.entropy + 1e-6).all()
    if times == 0:
        assert found.numpy() == pytest.approx(np.log(np.arange(2, 13)).mean())


def test_the_largest_difference_of_two_models() -> None:
    one, other = small(), small()
    same = module("numbers").same
    assert same(one, other) == 0
    other.blocks[1].attn.W_K[0, 3, 2] -= 0.25
    assert same(one, other) == pytest.approx(0.25)


FOLDER = Path(__file__).parents[2] / "papers" / "logits"
PAGE = " ".join((FOLDER / "page.md").read_text().split())
CLAIMS: list[dict[str, Any]] = json.loads((FOLDER / "results.json").read_text())["claims"]


def of(begin: str, control: bool = False) -> list[float]:
    """The figures of the one claim whose text begins so, or of its control, by seed."""
    (claim,) = [one for one in CLAIMS if one["claim"].startswith(begin)]
    return list((claim["control"] if control else claim)["figures"].values())


LOST, EDGE, CAPPED = "Muon at 0.1 without a remedy", "at this edge", "QK-clip at 10 still"
CLIP, NORM = "QK-clip at 5", "QK-norm costs nothing"
SAID: list[tuple[str, list[float]]] = [
    ("the largest reaches {:,.0f} to {:,.0f} within 200 steps", of("Muon at 0.3, nothing")),
    ("the loss is {:.2f} to {:.2f} nats above the best.", of("QK-norm: Muon", control=True)),
    ("entropy ends at {:.2f} to {:.2f} with a rate of 0.05", of(EDGE, control=True)),
    ("and at {:.3f} to {:.3f} with 0.1", of(EDGE)),
    ("does not jump: {:.2f} to {:.2f} nats above", of(LOST, control=True)),
    ("then {:.2f} to {:.2f}. In seed 1", of(LOST)),
    ("it ends at {:.3f} to {:.3f} in all five seeds", of("under AdamW at 0.03 normalised")),
    ("logits leave their band {:.0f} steps before the loss", of("Muon at 0.3: the largest logit")),
    ("At 0.1 they leave it {:.0f} to {:.0f} steps before", of("Muon at 0.1: the largest logit")),
    ("the best of them ends {:.2f} to {:.2f} nats above 0.02", of("the fifth remedy")),
    ("it costs {:.3f} to {:.3f} nats", of("a soft cap of 30 costs")),
    ("with {:.2f} to {:.2f} nats gained", of("under AdamW at 0.03 a warm-up")),
    ("QK-norm and QK-clip gain {:.2f} to {:.2f} and", of("under AdamW at 0.03 QK-norm")),
    ("and {:.2f} to {:.2f} there", of("under AdamW at 0.03 QK-clip")),
    ("lost in all five seeds, by {:.2f} to {:.2f} nats", of("under AdamW at 0.1")),
    ("lower by {:.3f} to {:.3f} and", [-one for one in of(CLIP)]),
    ("and by {:.3f} to {:.3f} nats", [-one for one in of(NORM)]),
    ("({:.2f} to {:.2f} of what they are without)", of("QK-clip at 100", control=True)),
    ("which ends at {:.3f} to {:.3f}.", of("QK-clip at 100")),
    ("the largest is {:.0f} or more", of(CAPPED)),
    ("heads have {:.2f} to {:.2f} of the largest entropy", of("Zhai", control=True)),
]


@pytest.mark.parametrize(("sentence", "figures"), SAID)
def test_the_page_says_what_the_results_say(sentence: str, figures: list[float]) -> None:
    """Each range is that of the seeds, as it is rounded in the sentence."""
    ends = [min(figures), max(figures)][: sentence.count("{")]
    assert sentence.format(*ends) in PAGE


def test_single_figures_of_the_page() -> None:
    assert "stays below 13.4" in PAGE and 13.3 < max(of("Muon at 0.3, nothing", control=True)) < 13.4
    assert "above 0.008" in PAGE and 0.007 < max(of("Muon at 0.3: no head")) < 0.008
    assert "reached 44, above 30" in PAGE and round(of("under AdamW at 0.1", control=True)[2]) == 44
    assert "once 31, in seed 1" in PAGE and round(of(CAPPED, control=True)[1]) == 31
    assert set(of("Muon at 0.3: the largest logit")) == {22}
    never, bound_of_zhai = of("QK-clip that is never reached"), of("Zhai")
    assert "same weights to the bit, in all seeds" in PAGE and set(never) == {0}
    assert "0 to more than ten places" in PAGE and max(bound_of_zhai) < 1e-11
    ratios = [of(begin) for begin in ("QK-norm: Muon", "QK-clip at 10: Muon", "W_Q and W_K at a tenth")]
    assert ratios == [[6, 3, 6, 6, 6]] * 3 and "and three times in seed 1" in PAGE
    assert set(of("100 steps of warm-up")) == set(of("a soft cap of 30: Muon")) == {0}
    failed = [one["claim"] for one in CLAIMS if one["verdict"] == "fails"]
    assert len(failed) == 9 and {one["verdict"] for one in CLAIMS} == {"holds", "fails"}
