"""Rows, waves and numbers of the paper on grokking, against sums, regressions and a forward pass in float64 by hand."""

from __future__ import annotations

import importlib
import json
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tracer.config import ModelConfig, TrainConfig
from tracer.data.own_source import made
from tracer.interventions.clamps import edits
from tracer.model import Transformer
from tracer.named_code import name_of, note_named
from tracer.specimens.paper_folder import load, shipped
from tracer.training.clamping import with_these

P = 47


def module(name: str) -> Any:
    load("grokking")
    return importlib.import_module(f"grokking.{name}")


def test_rows_are_the_pairs_each_once_and_the_answer_alone_counts() -> None:
    sums = module("sums")
    note_named(sums.Sums, "data.corpus")
    own = made(name_of(sums.Sums), 4, 0)
    n = sums.N_TRAIN
    train, test = own.source.rows(np.random.default_rng(0), n), own.source.held_out(P * P - n)
    assert n == 883 and own.n_train_rows == n and own.references == {"uniform": pytest.approx(np.log(P))}
    seen = set()
    for a, b, sign, c, last in np.concatenate([train, test]).tolist():
        assert (sign, c, last) == (P, (a + b) % P, P)
        seen.add((a, b))
    assert len(seen) == P * P
    known = sums.trained_on()
    assert all(known[a, b] for a, b in train[:, :2]) and not any(known[a, b] for a, b in test[:, :2])
    counted = own.source.loss_mask(train)
    assert (train[:, 1:][counted] == train[:, 3]).all() and counted.sum() == n


def test_shuffled_answers_are_the_same_of_other_pairs() -> None:
    sums, numbers = module("sums"), module("numbers")
    right, shuffled = numbers.answers(sums.Sums), numbers.answers(sums.Shuffled)
    assert (np.bincount(shuffled.ravel()) == P).all() and (shuffled == right).mean() < 0.05
    for row in sums.Shuffled(4, 0).rows(None, 50):
        assert row[3] == shuffled[row[0], row[1]]
    grid = np.add.outer(np.arange(P), np.arange(P)) % P
    assert (right == grid).all()


def test_the_loss_is_that_of_float64() -> None:
    logits = torch.zeros(1, 4, 48)
    logits[0, 2, 5] = 40.0
    batch = SimpleNamespace(targets=torch.full((1, 4), 5))
    loss = module("sums").exactly(logits, batch)
    assert loss.dtype == torch.float64 and float(loss[0, 2]) == pytest.approx(47 * np.exp(-40.0), rel=1e-9)
    assert float(torch.nn.functional.cross_entropy(logits[0], batch.targets[0], reduction="none")[2]) == 0


def explained(image: np.ndarray, waves: list[np.ndarray]) -> float:
    """The share of an image's variance that a regression on these waves explains."""
    x = np.stack([wave.ravel() for wave in waves], 1)
    y = (image - image.mean()).ravel()
    fitted = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float((fitted**2).sum() / (y**2).sum())


def cosines(p: int, k: int) -> tuple[np.ndarray, ...]:
    a, b = np.meshgrid(2 * np.pi * k / p * np.arange(p), 2 * np.pi * k / p * np.arange(p), indexing="ij")
    return np.cos(a), np.sin(a), np.cos(b), np.sin(b)


def test_one_frequency_explains_what_a_regression_on_its_eight_waves_does() -> None:
    shares, rng, p = module("waves").shares, np.random.default_rng(1), 11
    images = rng.normal(size=(2, p, p))
    found = shares(images)
    assert found.shape == (2, 5)
    assert found.sum(-1).max() < 1  # the others mix two frequencies
    for k in range(1, 6):
        cos_a, sin_a, cos_b, sin_b = cosines(p, k)
        waves = [cos_a, sin_a, cos_b, sin_b, cos_a * cos_b, cos_a * sin_b, sin_a * cos_b, sin_a * sin_b]
        for image, share in zip(images, found[:, k - 1], strict=True):
            assert share == pytest.approx(explained(image, waves))
    cos_a, sin_a, cos_b, sin_b = cosines(p, 3)
    one = 0.5 + 0.2 * cos_a - 0.1 * sin_b + 0.3 * sin_a * cos_b
    assert shares(one) == pytest.approx([0, 0, 1, 0, 0], abs=1e-12)
    assert np.isnan(shares(np.full((p, p), 1 / 3))).all()


def of_waves(amplitudes: dict[int, float], p: int) -> np.ndarray:
    """Logits that are sums of cos w(a + b - c)."""
    at = np.arange(p)
    angle = 2 * np.pi / p * (at[:, None, None] + at[:, None] - at)
    return sum((size * np.cos(k * angle) for k, size in amplitudes.items()), np.zeros((p, p, p)))


def test_key_frequencies_are_those_that_logits_are_made_of() -> None:
    waves, p = module("waves"), 23
    logits = of_waves({2: 3.0, 5: 4.0, 9: 0.5}, p) + np.random.default_rng(0).normal(size=(p, p, 1))
    shares = waves.sum_shares(logits)  # what all answers have in common does not count
    assert shares[[1, 4, 8]] == pytest.approx(np.array([9, 16, 0.25]) / 25.25) and shares.sum() == pytest.approx(1)
    assert waves.key_frequencies(logits) == [2, 5]
    assert waves.key_frequencies(logits, 0.5) == [5] and waves.key_frequencies(logits, 0.995) == [2, 5, 9]
    known = waves.sum_shares(np.random.default_rng(1).normal(size=(p, p, p)))
    assert len(known) == 11 and known.sum() < 0.1


def test_shares_of_sums_and_filters_are_those_of_a_transform() -> None:
    waves, p = module("waves"), 13
    logits = np.random.default_rng(2).normal(size=(p, p, p)) + of_waves({4: 1.0}, p)
    transform = np.fft.fft2(logits, axes=(0, 1))
    centred = np.abs(np.fft.fft2(logits - logits.mean(-1, keepdims=True), axes=(0, 1))) ** 2
    total = centred.sum() - centred[0, 0].sum()
    by_hand = [(centred[k, k] + centred[-k, -k]).sum() / total for k in range(1, 7)]
    assert waves.sum_shares(logits) == pytest.approx(by_hand)
    kept = np.zeros((p, p, 1))
    for k in (4, 6):
        kept[k, k] = kept[-k, -k] = 1
    back = np.fft.ifft2(transform * (1 - kept), axes=(0, 1)).real
    np.testing.assert_allclose(waves.without(logits, [4, 6]), back, atol=1e-12)
    kept[0, 0] = 1
    np.testing.assert_allclose(waves.only(logits, [4, 6]), np.fft.ifft2(transform * kept, axes=(0, 1)).real, atol=1e-12)


def test_what_a_difference_explains() -> None:
    share, p = module("waves").by_difference, 7
    at = np.arange(p)
    difference, total = (at[:, None] - at) % p, (at[:, None] + at) % p
    rng = np.random.default_rng(0)
    of_difference, of_sum = rng.normal(size=p)[difference], rng.normal(size=p)[total]
    assert share(of_difference) == pytest.approx(1) and share(of_sum) == pytest.approx(0, abs=1e-12)
    mixed = of_difference + of_sum
    assert share(mixed) == pytest.approx(of_difference.var() / mixed.var())


@pytest.fixture(scope="module")
def model() -> Transformer:
    """Of the paper's kind, narrow, with random weights that are not small."""
    config = ModelConfig(n_layers=1, n_heads=4, d_model=16, n_ctx=4, d_vocab=P + 1, mlp_hidden=(12,), norm="none")
    return Transformer(config, 3).requires_grad_(False).eval()


def forward(
    model: Transformer, heads: tuple[int, ...] = (0, 1, 2, 3), off: tuple[int, ...] = (), alike: bool = False
) -> Any:
    """Attention from "=" to a [head, P, P], neurons [neuron, P, P] and logits [P, P, P] of all pairs, in float64."""
    weights = {name: one.double().numpy() for name, one in model.named_parameters()}
    a, b = np.divmod(np.arange(P * P), P)
    stream = [
        weights["embed.W_E"][token] + weights["pos_embed.W_pos"][at] for at, token in enumerate((a, b, P + 0 * a))
    ]
    q_in, out, looks = stream[2], 0, []
    for head in range(4):
        W_Q, W_K, W_V, W_O = (weights[f"blocks.0.attn.W_{one}"][head] for one in "QKVO")
        scores = np.stack([((q_in @ W_Q) * (x @ W_K)).sum(-1) / 4**0.5 for x in stream], -1) * (not alike)
        pattern = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        looks.append(pattern[:, 0])
        if head in heads:
            out = out + sum(pattern[:, at, None] * (x @ W_V) for at, x in enumerate(stream)) @ W_O
    x = q_in + out
    W_in, b_in, W_out, b_out = (weights[f"blocks.0.mlp.{one}"] for one in ("W_in", "b_in", "W_out", "b_out"))
    post = np.maximum(x @ W_in + b_in, 0)
    silenced = post.copy()
    silenced[:, list(off)] = 0
    logits = (x + silenced @ W_out + b_out) @ weights["unembed.W_U"] + weights.get("unembed.b_U", 0)
    return np.array(looks).reshape(4, P, P), post.T.reshape(-1, P, P), logits.reshape(P, P, P + 1)


def test_numbers_of_a_model_are_those_of_its_weights(model: Transformer) -> None:
    numbers, sums = module("numbers"), module("sums")
    looks, post, logits = forward(model)
    np.testing.assert_allclose(numbers.attention(model), looks, atol=1e-5)
    np.testing.assert_allclose(numbers.neurons(model), post, atol=1e-4)
    np.testing.assert_allclose(numbers.logits_of(model), logits[..., :P], atol=1e-4)
    known, right = sums.trained_on(), numbers.answers(sums.Sums)
    chances = np.exp(logits[..., :P]) / np.exp(logits[..., :P]).sum(-1, keepdims=True)
    losses = -np.log(np.take_along_axis(chances, right[..., None], -1)[..., 0])
    found = {name: np.asarray(of.value) for name, of in numbers.of_sums(model, 0).items()}
    assert found["loss_train"] == pytest.approx(losses[known].mean(), abs=1e-4)
    assert found["loss_test"] == pytest.approx(losses[~known].mean(), abs=1e-4)
    assert found["right_test"] == pytest.approx((chances.argmax(-1) == right)[~known].mean(), abs=1e-3)
    norm = sum((one.double() ** 2).sum() for one in model.parameters()) ** 0.5
    assert found["size_of_weights"] == pytest.approx(float(norm), rel=1e-5)
    for head in range(4):
        shares = module("waves").shares(looks[head])
        assert found["one_wave"][0, head] == pytest.approx(shares.max(), abs=1e-4)
        assert found["which_wave"][0, head] == 1 + shares.argmax()


def test_models_without_heads_and_without_neurons(model: Transformer) -> None:
    numbers, sums = module("numbers"), module("sums")
    right, known = numbers.answers(sums.Sums), sums.trained_on()
    for heads in ((), (1, 3)):
        _, _, logits = forward(model, heads)
        chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        loss = -np.log(np.take_along_axis(chances, right[..., None], -1)).mean()
        off = [(0, head) for head in range(4) if head not in heads]
        assert numbers.headless(model, off) == pytest.approx(loss, abs=1e-4)
    _, post, logits = forward(model, off=(2, 5))
    np.testing.assert_allclose(numbers.logits_of(model, numbers.silent([2, 5])), logits[..., :P], atol=1e-4)
    best = (logits[..., :P].argmax(-1) == right)[~known].mean()
    assert numbers.right_without(model, [2, 5]) == pytest.approx(best, abs=1e-3)
    best = (forward(model, alike=True)[2][..., :P].argmax(-1) == right)[~known].mean()
    assert numbers.right_alike(model) == pytest.approx(best, abs=1e-3)
    shares = np.nan_to_num(module("waves").shares(post).max(-1))
    least = float(np.median(shares))
    chosen = numbers.structured(model, least)
    assert set(chosen) == set(np.flatnonzero(shares >= least)) and (np.diff(shares[chosen]) <= 1e-4).all()


def test_every_head_looks_everywhere_alike_under_the_clamp() -> None:
    small = ModelConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=4, d_vocab=9)
    uniform = Transformer(small)
    uniform.clamps = edits(with_these(TrainConfig(model=small), {"L0": module("paper").uniform}), 0)
    _, cache = uniform.run_with_cache(torch.arange(4)[None])
    wanted = torch.tensor([[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0], [1 / 4] * 4])
    torch.testing.assert_close(cache["pattern", 0], wanted.expand(1, 2, 4, 4))


def run(steps: list[int], **numbers: list[float]) -> Any:
    trace = {name: SimpleNamespace(values=np.array(values)) for name, values in numbers.items()}
    return SimpleNamespace(steps=steps, trace=trace | {"step": SimpleNamespace(values=np.array(steps))})


def test_dates_are_of_records() -> None:
    paper = module("paper")
    one = run([0, 50, 100, 150], right=[0.0, 1.0, 0.9, 1.0])
    assert paper.first(one, "right", 1) == 50 and np.isnan(paper.first(one, "right", 1.1))
    assert paper.ends(one, "right") == 1.0
    assert paper.falls(one, [4.0, 1.0, 3.0, 1.9], 2) == 150 and paper.falls(one, [0.3] * 4) == 0
    assert np.isnan(paper.falls(one, [4.0, 1.0, 1.0, 3.0], 2)) and np.isnan(paper.falls(one, [0.1, 0.1, 0.1, np.nan]))


def test_what_happens_first_is_read_from_records() -> None:
    paper = module("paper")
    one = run([0, 50, 100, 150], right_train=[0.0, 0.9, 1.0, 1.0], right_test=[0.0, 0.1, 0.2, 0.995],
              size_of_weights=[10.0, 30.0, 20.0, 15.0])  # fmt: skip
    assert paper.between(one) == 50 and paper.at_memory(one) == 0.2
    assert paper.shrinks(one, 150) == 0.5 and paper.shrinks(one, 50) == 1 and np.isnan(paper.shrinks(one, np.nan))
    assert paper.not_there({"decay": one}) == ""
    never = run([0, 50], right_train=[0.0, 1.0], right_test=[0.0, 0.304])
    assert np.isnan(paper.between(never))
    assert paper.not_there({"decay": never}) == "in the end 0.30 of held-out pairs are right: it has not generalised"


def test_filtered_losses_of_a_model_of_waves_and_of_a_table() -> None:
    """Logits of three waves are those waves; a table of the trained pairs is all frequencies alike."""
    paper, sums = module("paper"), module("sums")
    logits = of_waves({3: 8.0, 11: 8.0, 20: 8.0}, P)
    found = paper.of_snapshot(logits, [3, 11, 20], [[1, 2, 4]])
    assert found["restricted"] == pytest.approx(found["test"]) and found["other"] == pytest.approx(np.log(P))
    assert found["excluded"] == pytest.approx(np.log(P)) and found["less other"] == pytest.approx(
        found["test"], rel=0.1
    )
    table = np.where(sums.trained_on()[..., None], of_waves({k: 1.0 for k in range(1, 24)}, P), 0)
    shares = module("waves").sum_shares(table)
    assert len(module("waves").key_frequencies(table)) == 22 and shares.max() < 1.2 * shares.min()
    found = paper.of_snapshot(table, [3, 11, 20], [[1, 2, 4]])
    assert found["restricted"] == pytest.approx(found["other"], rel=0.05)
    waves, known, pairs = module("waves"), sums.trained_on(), module("numbers").answers(sums.Sums)
    shares_of_sums = np.bincount(pairs.ravel(), known.ravel())[pairs] / P  # how often a sum is trained on
    every = waves.only(table, range(1, 24))  # a mean over all pairs of the same sum
    exact = shares_of_sums[..., None] * (P * (pairs[..., None] == np.arange(P)) - 1) / 2
    np.testing.assert_allclose(every, exact, atol=1e-9)
    assert (every.argmax(-1) == pairs).all(), "the filter makes a rule of a table"


def test_runs_differ_in_what_their_names_say() -> None:
    paper = module("paper")
    told = {
        name: (of.config.optim.weight_decay, of.code["corpus"], of.code.get("clamp"))
        for name, of in paper.paper.runs.items()
    }
    assert told == {
        "decay": (1.0, paper.Sums, None), "no-decay": (0.0, paper.Sums, None),
        "shuffled": (1.0, paper.Shuffled, None), "uniform": (1.0, paper.Sums, {"L0": paper.uniform}),
    }  # fmt: skip
    for of in paper.paper.runs.values():
        assert of.config.optim.batch_size == 883 and of.code["loss"] is paper.exactly


OF = r"(-?[\d,.]*\d)"
SAID = [
    ("held-out pairs {}, {} and {} (chance", "when all trained pairs are right", None),
    ("Without weight decay it is {}, {} and {} at step", "without weight decay less than", None),
    ("weights is then {}, {} and {} of its largest", "the weights shrink", None),
    ("Of 23 frequencies {}, {} and {} carry", "in the end at most 6", None),
    ("carry the logits ({}, {} and {} without", "in the end at most 6", "control"),
    ("Without their waves {}, {} and {} of", "without the waves of the key", None),
    ("the restricted loss is {}, {} and {} of a guess, and", "when the held-out loss is still", None),
    ("excluded loss of trained pairs {}, {} and {}. Three", "then the excluded loss", None),
    ("without weight decay, {}, {} and {} of held-out pairs are right by the filtered", "but the filter", None),
    ("filtered logits, and {}, {} and {} by the whole", "but the filter", "control"),
    ("the least of four heads has {}, {} and {} in one", "one frequency explains 0.95", None),
    ("Two frequencies explain at least {}, {} and {}.", "two frequencies explain", None),
    ("all heads off the loss is {}, {} and {} nats", "with all four heads", None),
    ("explains 0.85 or more of {}, {} and {} of them", "its control", "control"),
    ("without these {}, {} and {} of held-out pairs", "neurons, the figure", None),
    ("held so at the end get {}, {} and {} right", "where every head attends", "control"),
    ("a is from b explains {}, {} and {} more", "it does so by another circuit", None),
]


@pytest.mark.parametrize(("sentence", "claim", "of"), SAID)
def test_figures_in_words_are_those_of_the_results(sentence: str, claim: str, of: str | None) -> None:
    folder = shipped()["grokking"]
    (told,) = (one for one in json.loads((folder / "results.json").read_text())["claims"]
               if one["claim"].startswith(claim))  # fmt: skip
    page = " ".join((folder / "page.md").read_text().split())
    found = re.search(re.escape(sentence).replace(r"\{\}", OF), page)
    assert found, sentence
    for said, figure in zip(found.groups(), (told["control"] if of else told)["figures"].values(), strict=True):
        digits = len(said.partition(".")[2])
        assert float(said.replace(",", "")) == pytest.approx(figure, abs=0.5000001 * 10**-digits), sentence
