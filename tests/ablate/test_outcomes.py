"""What an ablation did, against numbers computed one by one from the logits of a twin whose weights were zeroed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tracer.ablate import (
    MLP,
    Edge,
    Estimate,
    agree,
    change,
    derangement,
    disagreements,
    head_outcomes,
    outcomes,
    self_repair,
)
from tracer.ablate.outcomes import Repair
from tracer.config import InitConfig, ModelConfig
from tracer.data import probes
from tracer.heads import probe_scores, stats, stats_from_pattern
from tracer.interventions.edits import Edit, applied, recording
from tracer.measures import REPEAT_MEASURES, TEXT_MEASURES
from tracer.model import Transformer

CONFIG = ModelConfig(
    n_layers=2, n_heads=3, d_model=24, n_ctx=13, d_vocab=17, mlp_hidden=(16,), init=InitConfig(attn=0.4)
)
TOKENS = torch.randint(0, 17, (4, 13), generator=torch.Generator().manual_seed(0))
OFF = [(0, 1), (1, 2)]


def build(**fields: Any) -> Transformer:
    config = ModelConfig(**vars(CONFIG) | fields)
    return Transformer(config, seed=1).double().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return build()


@pytest.fixture(scope="module")
def logits(model: Transformer) -> np.ndarray:
    """[run batch pos d_vocab]"""
    twin = build()
    for layer, head in OFF:
        twin.get_parameter(f"blocks.{layer}.attn.W_O")[head] = 0
    return np.stack([model(TOKENS).numpy(), twin(TOKENS).numpy()])


def test_every_number_of_a_batch(model: Transformer, logits: np.ndarray) -> None:
    found = outcomes(model, TOKENS, OFF, chosen=[3, 9], pair=(5, 2), top=4)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    assert found["loss"].dims == ("run", "sequence", "pos") and found["kl"].dims == ("sequence", "pos")
    for b in range(4):
        for pos in range(13):
            at = {"sequence": b, "pos": pos}
            loss = -logs[:, b, pos, TOKENS[b, pos + 1]] if pos < 12 else [np.nan, np.nan]
            np.testing.assert_allclose(found["loss"].isel(at), loss, atol=1e-12)
            clean, ablated = logs[:, b, pos]
            kl = sum(np.exp(p) * (p - q) for p, q in zip(clean, ablated, strict=True))
            assert float(found["kl"].isel(at)) == pytest.approx(kl, abs=1e-12)
            order = np.argsort(-logs[:, b, pos], axis=-1)[:, :4]
            np.testing.assert_array_equal(found["top_token"].isel(at), order)
            np.testing.assert_allclose(
                found["top_probability"].isel(at), np.exp(np.take_along_axis(logs[:, b, pos], order, 1)), atol=1e-12
            )
    np.testing.assert_allclose(found["logit"], logits[..., [3, 9]], atol=1e-12)
    np.testing.assert_allclose(found["probability"], np.exp(logs)[..., [3, 9]], atol=1e-12)
    np.testing.assert_allclose(found["logit_difference"], logits[..., 5] - logits[..., 2], atol=1e-12)
    assert list(found["token"].values) == [3, 9] and found.attrs["pair"] == [5, 2] and found.attrs["n_sequences"] == 4
    assert all({"long_name", "units", "formula", "source"} <= set(found[name].attrs) for name in found.data_vars)


def test_change_is_ablated_minus_clean(model: Transformer) -> None:
    found = outcomes(model, TOKENS, OFF, chosen=[3])
    moved = change(found)
    assert moved["logit"].dims == ("sequence", "pos", "token")
    np.testing.assert_allclose(moved["loss"], found["loss"][1] - found["loss"][0])
    assert set(moved.data_vars) == {"loss", "logit", "probability"}


def test_some_rows_only(model: Transformer) -> None:
    every, some = outcomes(model, TOKENS, OFF), outcomes(model, TOKENS, OFF, rows=slice(4, 7))
    assert list(some["pos"].values) == [4, 5, 6] and "logit" not in some and "logit_difference" not in some
    assert every.sel(pos=[4, 5, 6]).equals(some)


def test_rows_one_longer_than_the_context_have_a_loss_everywhere(model: Transformer) -> None:
    found = outcomes(model, torch.cat([TOKENS, TOKENS[:, :1]], 1), OFF)
    assert found.sizes["pos"] == 13 and not found["loss"].isnull().any()


def test_draws_are_averaged(model: Transformer) -> None:
    one = [outcomes(model, TOKENS, OFF, "resample", draws=1, seed=seed, chosen=[1]) for seed in (4, 5)]
    both = outcomes(model, TOKENS, OFF, "resample", draws=2, seed=4, chosen=[1])
    for name in ("loss", "kl", "logit", "probability"):
        np.testing.assert_allclose(both[name], (one[0][name] + one[1][name]) / 2, atol=1e-12)
    assert (derangement(4, 4) != derangement(4, 5)).any() and not one[0]["kl"].equals(one[1]["kl"])
    mixed = np.sort((one[0]["probability"][1, ..., 0] + one[1]["probability"][1, ..., 0]) / 2)
    assert mixed.max() <= both["top_probability"][1].max() + 1e-12


def test_a_head_that_writes_nothing_diverges_nowhere() -> None:
    silent = build()
    silent.get_parameter("blocks.0.attn.W_O")[1] = 0
    found = outcomes(silent, TOKENS, [(0, 1)])
    assert float(np.abs(found["kl"]).max()) < 1e-14
    assert (found["top_token"][0] == found["top_token"][1]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chosen": [17]}, "token 17 is outside the vocabulary: 0 to 16"),
        ({"pair": (0, -1)}, "token -1 is outside the vocabulary: 0 to 16"),
        ({"top": 18}, "top=18 tokens of 17: ask for 1 to 17"),
        ({"top": 0}, "top=0 tokens of 17"),
        ({"positions": [13]}, "position 13 does not exist: the input has positions 0 to 12"),
    ],
)
def test_bad_questions(model: Transformer, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        outcomes(model, TOKENS, OFF, **options)


PROBE = probes.repeated(17, 13, batch=5)
BOTH = (*(name for name in TEXT_MEASURES if name != "fixed_distance_at"), *REPEAT_MEASURES)


def measured(model: Transformer, edits: list[Edit]) -> dict[str, torch.Tensor]:
    """Every head measure of layer 1, from recorded q and k."""
    seen = []
    for tokens in (TOKENS, PROBE.tokens):
        with applied(edits), recording("blocks.1.attn.hook_q", "blocks.1.attn.hook_k") as qk:
            model(tokens)
        ids = None if tokens is TOKENS else tokens
        seen.append(stats(qk["blocks.1.attn.hook_q"], qk["blocks.1.attn.hook_k"], ids, scale=CONFIG.scale))
    text, repeat = seen
    return probe_scores(text, repeat, repeat, PROBE.second_copy)


def test_what_the_other_heads_did(model: Transformer) -> None:
    found = head_outcomes(model, [(0, 1)], repeat=PROBE, text=TOKENS)
    assert set(found.data_vars) == set(BOTH) and found["entropy"].dims == ("run", "layer", "head")
    clean, ablated = measured(model, []), measured(model, [Edit("blocks.0.attn.hook_z", (1,))])
    for name in BOTH:
        np.testing.assert_allclose(found[name].sel(run="clean", layer=1), clean[name], atol=1e-9)
        np.testing.assert_allclose(found[name].sel(run="ablated", layer=1), ablated[name], atol=1e-9)
        assert (change(found)[name].sel(layer=0) == 0).all(), "layer 0 reads nothing that was switched off"
    assert float(np.abs(change(found)["entropy"].sel(layer=1)).max()) > 1e-4
    assert found["induction"].attrs["probe"] == "repeat" and found["entropy"].attrs["probe"] == "text"
    assert set(head_outcomes(model, [(0, 1)], repeat=PROBE).data_vars) == {"induction", "duplicate_token"}


def test_unless_told_otherwise_rows_are_drawn_with_seed_0(model: Transformer) -> None:
    zero, one = (head_outcomes(model, [(0, 1)], "resample", repeat=PROBE, draws=1, seed=seed) for seed in (0, 1))
    untold = head_outcomes(model, [(0, 1)], "resample", repeat=PROBE, draws=1)
    assert untold.identical(zero) and not untold["induction"].equals(one["induction"])


def test_measures_are_those_of_edited_patterns(model: Transformer) -> None:
    held = head_outcomes(model, [(0, 1)], repeat=PROBE, text=TOKENS, frozen=True)
    for name in set(BOTH) - {"max_logit"}:
        np.testing.assert_allclose(change(held)[name], 0, atol=1e-9)
    edge = Edge(1, 0, 9, 4, renormalise=True)
    cut = head_outcomes(model, [edge], repeat=PROBE, text=TOKENS)
    with recording("blocks.1.attn.hook_pattern") as seen:
        model(TOKENS)
    pattern = seen["blocks.1.attn.hook_pattern"].clone()
    pattern[:, 0, 9, 4] = 0
    pattern[:, 0, 9] /= pattern[:, 0, 9].sum(-1, keepdim=True)
    expected = stats_from_pattern(pattern, causal=True)["entropy"][:, 0, 1:].mean()
    assert float(cut["entropy"].sel(run="ablated", layer=1, head=0)) == pytest.approx(float(expected), abs=1e-9)
    assert float(np.abs(change(cut)["entropy"].sel(layer=1, head=[1, 2])).max()) < 1e-9


def test_an_mlp_moves_what_reads_it(model: Transformer) -> None:
    found = change(head_outcomes(model, [MLP(0)], repeat=PROBE))
    assert (found["induction"].sel(layer=0) == 0).all() and float(np.abs(found["induction"].sel(layer=1)).max()) > 1e-6


def of(low: float, high: float) -> Estimate:
    return Estimate((low + high) / 2, low, high, 32)


AGREEMENT = [
    ([(0.1, 0.3), (0.2, 0.4), (0.25, 0.5)], []),
    ([(0.1, 0.3), (0.3, 0.4), (0.25, 0.5)], []),
    ([(0.1, 0.2), (0.15, 0.4), (0.3, 0.5)], [("zero", "resample")]),
    ([(0.1, 0.2), (0.3, 0.4), (0.3, 0.5)], [("zero", "mean"), ("zero", "resample")]),
    ([(float("nan"), float("nan"))] * 2, [("zero", "mean")]),
]


@pytest.mark.parametrize(("intervals", "pairs"), AGREEMENT)
def test_replacements_agree_when_their_intervals_meet(intervals: list, pairs: list) -> None:
    effects = {mode: of(*interval) for mode, interval in zip(("zero", "mean", "resample"), intervals, strict=False)}
    assert disagreements(effects) == pairs and agree(effects) is (not pairs)


@pytest.mark.parametrize("fields", [{}, {"norm": "layer"}, {"norm": "none"}, {"tie_embeddings": True}])
@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_a_direct_effect_is_what_is_missed_and_what_comes_back(fields: dict, mode: str) -> None:
    model = build(**fields)
    for name, weight in model.named_parameters():
        if "ln_" in name:
            weight.add_(torch.linspace(-0.5, 0.5, 24))
    found = self_repair(model, TOKENS, (0, 1), mode, loss_positions=slice(2, 9))
    assert found.direct == pytest.approx(found.missed + found.by_norm + found.by_others, abs=1e-12)
    assert abs(found.by_others) > 1e-4 and (abs(found.by_norm) > 1e-6) is (model.config.norm != "none")


def test_direct_effect_by_hand() -> None:
    """Without norms and in the last layer nothing can come back: the head's own logits are all that is missed."""
    model = build(norm="none", mlp_hidden=())
    with recording("hook_z") as seen:
        model(TOKENS)
    W_O = model.blocks[1].attn.W_O
    assert W_O is not None
    logits = seen["blocks.1.attn.hook_z"][:, :, 2] @ W_O[2] @ model.W_U
    expected = np.mean([
        float(logits[b, p, TOKENS[b, p + 1]] - logits[b, p].mean()) for b in range(4) for p in range(3, 8)
    ])  # fmt: skip
    found = self_repair(model, TOKENS, (1, 2), loss_positions=slice(3, 8))
    assert found.direct == pytest.approx(expected, abs=1e-12) and found.missed == pytest.approx(expected, abs=1e-12)
    assert abs(found.by_norm) < 1e-12 and abs(found.by_others) < 1e-12
    assert found.loss.n == 4


WORDS = [((2.0, 0.04), True), ((2.0, 0.3), False), ((0.5, 0.04), False), ((-2.0, 0.0), False)]


@pytest.mark.parametrize(("numbers", "said"), WORDS)
def test_self_repair_is_said_when_the_effect_is_small_and_the_direct_one_large(numbers: tuple, said: bool) -> None:
    direct, loss = numbers
    words = Repair((1, 2), direct, 1.2, 0.5, 0.3, Estimate(loss, loss, loss, 4)).words()
    assert (words is not None) is said
    if words:
        assert "Switching L1H2 off costs only +0.04 nats, although it writes 2.0 logits" in words
        assert "falls by 1.2: the final norm gives back 0.5, the other heads and MLPs 0.3" in words


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"residual": False}, "residual=False"),
        ({"norm_position": "post"}, "norm_position=post"),
        ({"unembed_hidden": (8,)}, "no W_U"),
    ],
)
def test_no_direct_effect_where_there_is_no_sum(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        self_repair(build(**fields), TOKENS, (0, 1))
