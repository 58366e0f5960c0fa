"""Rows, attentions and numbers of the paper on sinks, against exact losses and heads written by hand, in float64."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tracer.config import ModelConfig, TrainConfig
from tracer.interventions.clamps import edits
from tracer.interventions.own_clamps import ClampedHead
from tracer.model import Transformer
from tracer.specimens.paper_folder import load
from tracer.training.clamping import with_these

N_CTX, FIRST_TRIGGER, VOCAB = 64, 61, 64


def module(name: str) -> Any:
    load("sinks")
    return importlib.import_module(f"sinks.{name}")


def as_one_chain(chance: float) -> tuple[np.ndarray, np.ndarray]:
    """The whole law as a Markov chain: states are a symbol, or a trigger with the symbol before it. The chance of each
    next token after each state, [state, token], and of each next state, [state, state]."""
    symbols = module("rows").chain()
    n = len(symbols)
    tokens, states = np.zeros((4 * n, VOCAB)), np.zeros((4 * n, 4 * n))
    for symbol in range(n):
        tokens[symbol, 1 : n + 1] = states[symbol, :n] = (1 - chance) * symbols[symbol]
        for which in range(3):
            tokens[symbol, FIRST_TRIGGER + which] = states[symbol, (which + 1) * n + symbol] = chance / 3
            tokens[(which + 1) * n + symbol, symbol + 1] = states[(which + 1) * n + symbol, symbol] = 1
    return tokens, states


def cost(law: np.ndarray, after: np.ndarray) -> float:
    """The expected loss of predicting what follows by the law of what is known, [known], in nats."""
    return -float(np.sum(law[:, None] * after * np.log(np.where(after > 0, after, 1))))


@pytest.mark.parametrize("name", ["Backcopy", "Plain"])
def test_the_references_are_exact(name: str) -> None:
    source = getattr(module("rows"), name)(N_CTX, 0)
    tokens, states = as_one_chain(source.chance)
    last = np.array([*range(1, 61), *np.repeat([61, 62, 63], 60)])
    law, best, by_last = np.r_[np.full(60, 1 / 60), np.zeros(180)], [np.log(60)], [np.log(60)]
    for _ in range(N_CTX - 1):
        best.append(cost(law, tokens))
        shares = np.bincount(last, law, VOCAB)
        joint = np.array([np.bincount(last, law * after, VOCAB) for after in tokens.T]).T
        by_last.append(cost(shares, joint / np.where(shares > 0, shares, 1)[:, None]))
        law = law @ states
        assert law.sum() == pytest.approx(1)
    assert source.references["best"] == pytest.approx(np.mean(best), abs=1e-12)
    assert source.references["last token"] == pytest.approx(np.mean(by_last), abs=1e-12)
    gap = source.references["last token"] - source.references["best"]
    assert gap > 0.4 if name == "Backcopy" else gap == 0


@pytest.mark.parametrize("name", ["Backcopy", "Plain"])
def test_rows_have_this_law(name: str) -> None:
    """Each row by hand, then its loss within three standard errors of the exact one."""
    source = getattr(module("rows"), name)(N_CTX, 0)
    rows = source.rows(np.random.default_rng(3), 2000)
    tokens, _ = as_one_chain(source.chance)
    losses = np.full((2000, N_CTX), np.log(60))
    for row, loss in zip(rows, losses, strict=True):
        assert row[0] == 0 and 1 <= row[1] <= 60
        for at in range(2, N_CTX + 1):
            if row[at - 1] >= FIRST_TRIGGER:
                assert row[at] == row[at - 2]
                loss[at - 1] = 0
            else:
                loss[at - 1] = -np.log(tokens[row[at - 1] - 1, row[at]])
    assert np.isfinite(losses).all()
    assert abs(losses.mean() - source.references["best"]) < 3 * losses.mean(1).std() / 2000**0.5
    triggers = (rows >= FIRST_TRIGGER).sum((0, 1))
    counts = np.bincount(rows.ravel(), minlength=VOCAB)[FIRST_TRIGGER:]
    assert triggers == 0 if name == "Plain" else np.ptp(counts) < 0.06 * counts.mean()


def test_softmax_with_a_zero_beside_it_holds_the_sigmoid_of_each_score() -> None:
    sigmoids = module("attentions").sigmoids
    scores = (3 * torch.randn(2, 9, 9, dtype=torch.float64)).masked_fill(torch.ones(9, 9).triu(1) > 0, -torch.inf)
    scores.requires_grad_()
    pattern = torch.cat([scores, torch.zeros(2, 9, 1)], -1).softmax(-1)[..., :-1]
    said = sigmoids(pattern)
    torch.testing.assert_close(said, scores.sigmoid())
    (slope,) = torch.autograd.grad(said.sum(), scores)
    torch.testing.assert_close(slope, (scores.sigmoid() * (1 - scores.sigmoid())).detach())
    large = torch.tensor([[40.0, -40.0, 0.0]])
    assert (sigmoids(large.softmax(-1)[..., :-1]) - large[:, :-1].sigmoid()).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["sigmoid", "gate"])
def test_a_model_attends_as_the_clamp_says(name: str) -> None:
    """z of a whole model, and that no head is left out, against q, k and v by hand."""
    small = ModelConfig(n_layers=1, n_heads=2, d_model=16, d_head=8, n_ctx=12, d_vocab=64,
                        sink="zero" if name == "sigmoid" else "none")  # fmt: skip
    config = with_these(TrainConfig(model=small), {"L0 z": getattr(module("attentions"), name)})
    model = Transformer(small)
    model.clamps = edits(config, 0)
    _, cache = model.run_with_cache(torch.arange(1, 13)[None])
    q, k, v, z = (cache[one, 0].double().transpose(1, 2) for one in ("q", "k", "v", "z"))
    scores = (q @ k.mT * 8**-0.5).masked_fill(torch.ones(12, 12).triu(1) > 0, -torch.inf)
    if name == "sigmoid":
        wanted = scores.sigmoid() @ v
    else:
        wanted = torch.cat([scores.softmax(-1) @ v[..., :4] * v[..., 4:].sigmoid(), 0 * v[..., 4:]], -1)
    torch.testing.assert_close(z, wanted, atol=1e-5, rtol=1e-5)


def test_a_gate_multiplies_what_is_read_number_by_number() -> None:
    attentions = module("attentions")
    pattern = torch.tensor([[[1.0, 0.0], [0.25, 0.75]]])
    v = torch.tensor([[[4.0, 8.0, 0.0, 0.0], [0.0, 4.0, 2.0, -50.0]]])
    head = ClampedHead(0, 0, torch.zeros(1, 2, dtype=torch.long), pattern, v)
    wanted = torch.tensor([[[2.0, 4.0, 0, 0], [0.8807971, 0, 0, 0]]])  # sigmoid(0) of 4 and 8; sigmoid(2) of 1
    torch.testing.assert_close(attentions.gate(head), wanted)


def dormant() -> Transformer:
    """One head that looks at the start token from a symbol, and at the token before from a trigger, and copies it.

    The stream holds tokens, places and copies, one-hot, in three parts of 64.
    """
    config = ModelConfig(n_layers=1, n_heads=1, d_model=192, d_head=64, n_ctx=64, d_vocab=64, norm="none",
                         attn_scale="none")  # fmt: skip
    model = Transformer(config).requires_grad_(False)
    attn, eye = model.blocks[0].attn, torch.eye(64)
    chain = torch.from_numpy(module("rows").chain()).clamp(min=1e-12).float()
    parts = (slice(64), slice(64, 128), slice(128, 192))
    assert attn.W_O is not None
    for weight in model.parameters():
        weight.zero_()
    model.embed.W_E[:, parts[0]] = eye
    model.pos_embed.W_pos[:, parts[1]] = eye
    attn.W_Q[0, 1:FIRST_TRIGGER, 0] = 200.0  # a symbol: place 0
    attn.W_Q[0, 65:128, :63] = 100 * torch.eye(63)  # place i: place i - 1
    attn.W_K[0, parts[1]] = eye
    attn.W_V[0, 1:64] = eye[1:]  # nothing of the start token
    attn.W_O[0][:, parts[2]] = eye
    W_U = model.unembed.W_U
    W_U[1:FIRST_TRIGGER, 1:FIRST_TRIGGER] = (0.85 * chain).log()  # pyrefly: ignore[unsupported-operation]
    W_U[1:FIRST_TRIGGER, FIRST_TRIGGER:] = np.log(0.05)  # pyrefly: ignore[unsupported-operation]
    W_U[1:FIRST_TRIGGER, 0] = -40.0  # pyrefly: ignore[unsupported-operation]
    W_U[parts[2]] = 40 * eye  # pyrefly: ignore[unsupported-operation]
    return model


def test_numbers_of_a_head_written_by_hand() -> None:
    numbers, rows = module("numbers"), module("rows")
    model = dormant()
    found = {name: np.asarray(value.value) for name, value in numbers.on_backcopy(model, 0).items()}
    assert found["start_symbol"].item() > 0.999 and found["start_trigger"].item() < 0.001
    assert found["start_value"].item() == 0 and found["mass_symbol"].item() == pytest.approx(1)
    assert found["loss_trigger"] < 1e-6
    given = numbers.fixed(rows.Backcopy)
    tokens, _ = as_one_chain(rows.CHANCE)
    symbol = [(row[at], row[at + 1]) for row in given for at in range(16, 64) if row[at] < FIRST_TRIGGER]
    assert float(found["loss_symbol"]) == pytest.approx(
        np.mean([-np.log(tokens[a - 1, b]) for a, b in symbol]), abs=1e-4
    )
    (resting, at_symbols), (own, at_triggers) = numbers.rests(model)
    assert resting > 0.999 and own < 0.001 and at_symbols == pytest.approx(at_triggers) == pytest.approx(1)
    trigger, elsewhere = numbers.costs(model, [(0, 0)])
    assert trigger == pytest.approx(np.log(64), abs=1e-4) and elsewhere == pytest.approx(0, abs=1e-6)


def run(start: list[float], trigger: list[float], loss: float = 2.0, value: tuple[float, float] = (0.2, 1.0)) -> Any:
    """A run of one layer of two heads whose last known record has these numbers, before one without any."""
    heads = {"start_symbol": start, "start_trigger": trigger, "start_value": value, "mass_symbol": [1.0, 0.4]}
    trace = {name: SimpleNamespace(values=np.array([[list(of)], [[np.nan] * 2]])) for name, of in heads.items()}
    return SimpleNamespace(trace=trace | {"val_loss": SimpleNamespace(values=np.array([9.0, loss]))})


def test_the_head_that_rests_is_the_one_that_looks_away_at_triggers() -> None:
    paper = module("paper")
    one = run([0.6, 0.7], [0.0, 0.5])
    assert paper.dormant(one) == (0, 0) and paper.most(one) == 0.7
    assert paper.of_dormant(one, "start_value") == 0.2
    assert paper.loss(one) == 2.0


def test_what_is_not_learned_as_well_is_not_compared() -> None:
    paper = module("paper")
    softmax, none = run([0.6, 0.0], [0.0, 0.0]), run([0.4, 0.0], [0.0, 0.0])
    runs = {"softmax": softmax, "gate": run([0.2, 0.1], [0.0, 0.0], 2.019), "slow": run([0.1, 0.1], [0.0, 0.0])}
    assert paper.void("gate")(runs) == "" and paper.beside(runs, "gate") == pytest.approx(1 / 3)
    assert paper.less_than_slow("gate").figure(runs) == pytest.approx(-0.1)
    later = runs | {"gate": run([0.2, 0.1], [0.0, 0.0], 2.03)}
    assert paper.void("gate")(later) == "its loss is +0.030 nats from that of softmax"
    assert paper.void("gate")(runs | {"softmax": none}) == "softmax itself has no sink to remove"
    five = dict.fromkeys(paper.FIVE, softmax) | {"sigmoid": run([0.6, 0.0], [0.0, 0.0], 1.9)}
    assert paper.apart(five) == pytest.approx(0.1)


def test_runs_differ_in_what_their_names_say() -> None:
    paper = module("paper")
    runs = paper.paper.runs
    told = {name: (of.config.model.sink, of.code.get("clamp"), of.code["corpus"]) for name, of in runs.items()}
    assert told == {
        "softmax": ("none", None, paper.Backcopy), "softmax1": ("zero", None, paper.Backcopy),
        "learned": ("learned", None, paper.Backcopy),
        "sigmoid": ("zero", {"L0 z": paper.sigmoid}, paper.Backcopy),
        "gate": ("none", {"L0 z": paper.gate}, paper.Backcopy), "plain": ("none", None, paper.Plain),
        "slow": ("none", None, paper.Backcopy),
    }  # fmt: skip
    rates = {name: of.config.optim.lr for name, of in runs.items()}
    assert rates.pop("slow") == 3e-3 / 4 and set(rates.values()) == {3e-3}
