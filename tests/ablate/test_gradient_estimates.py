"""Estimates where they are exact, where they fail, and what they call themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tracer.ablate import MODES, LogitDifference, Loss, attribution, integrated_gradients, metric_under_ablation, sweep
from tracer.config import InitConfig, ModelConfig
from tracer.export.to_huggingface import as_huggingface
from tracer.huggingface.wrapped import WrappedModel
from tracer.model import Transformer

TOKENS = torch.randint(0, 11, (4, 9), generator=torch.Generator().manual_seed(2))


def build(**fields) -> Transformer:
    widths: dict[str, Any] = {"n_layers": 2, "n_heads": 3, "d_model": 12, "n_ctx": 9, "d_vocab": 11}
    config = ModelConfig(**widths | fields, init=InitConfig(attn=0.6))
    return Transformer(config, seed=1).double().eval().requires_grad_(False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("estimated", [attribution, integrated_gradients])
def test_exact_where_the_metric_is_linear_in_the_heads(mode: str, estimated) -> None:
    """In all modes by the same replacements, which depend on the draws, the seed and the reference batch."""
    model, others = (
        build(n_layers=1, norm="none"),
        torch.randint(0, 11, (6, 9), generator=torch.Generator().manual_seed(3)),
    )
    how: dict[str, Any] = {"metric": LogitDifference(3, 4), "reference": others, "draws": 2, "seed": 3}
    found, exact = estimated(model, TOKENS, mode, verify=3, **how), sweep(model, TOKENS, mode, **how)
    np.testing.assert_allclose(found["estimate"], exact, atol=1e-10)
    np.testing.assert_allclose(found["exact"], exact, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
def test_along_the_way_the_heads_of_a_layer_sum_to_the_layer(mode: str) -> None:
    model = build(norm="layer", mlp_hidden=(16,), activation="gelu")
    found = integrated_gradients(model, TOKENS, mode, draws=1, steps=64)["estimate"].sum("head")
    layers = [[(layer, head) for head in range(3)] for layer in range(2)]
    values = metric_under_ablation(model, TOKENS, [[], *layers], mode, draws=1).mean((1, 2))
    np.testing.assert_allclose(found, values[1:] - values[0], atol=2e-4)
    one_step = attribution(model, TOKENS, mode, draws=1)["estimate"].sum("head")
    assert np.abs(one_step - (values[1:] - values[0]).numpy()).max() > 1e-3


def test_estimates_say_so_and_the_largest_are_verified() -> None:
    model = build()
    found = attribution(model, TOKENS, metric=Loss(slice(3)), verify=2)
    assert found.attrs["kind"] == found["estimate"].attrs["kind"] == "first-order estimate"
    assert "8 steps" in integrated_gradients(model, TOKENS)["estimate"].attrs["long_name"]
    exact, estimate = found["exact"].values, np.abs(found["estimate"].values)
    checked = ~np.isnan(exact)
    assert checked.sum() == 2 and estimate[checked].min() > estimate[~checked].max()
    truth = sweep(model, TOKENS, positions=slice(3)).values
    np.testing.assert_allclose(exact[checked], truth[checked], atol=1e-12)
    assert np.abs(estimate - np.abs(truth)).max() > 1e-3
    assert np.isnan(attribution(model, TOKENS)["exact"]).all()


@pytest.mark.parametrize("how", [{"draws": 2}, {"draws": 5, "seed": 3}, {"draws": 1}])
def test_what_is_verified_is_replaced_as_what_is_estimated(how: dict[str, Any]) -> None:
    """By the same draws from the same reference."""
    model, reference = build(), torch.randint(0, 11, (6, 9), generator=torch.Generator().manual_seed(5))
    found = attribution(model, TOKENS, "resample", reference=reference, verify=2, **how)["exact"].values
    truth = sweep(model, TOKENS, "resample", reference=reference, **how).values
    np.testing.assert_allclose(found[~np.isnan(found)], truth[~np.isnan(found)], atol=1e-12)


def test_the_same_in_a_model_that_others_wrote() -> None:
    model = build(norm="layer", mlp_hidden=(16,), activation="gelu")
    foreign = WrappedModel(as_huggingface(model), n_ctx=9, d_vocab=11)
    ours, theirs = (attribution(either, TOKENS, verify=1) for either in (model, foreign))
    np.testing.assert_allclose(theirs["estimate"], ours["estimate"], atol=1e-6)
    np.testing.assert_allclose(theirs["exact"], ours["exact"], atol=1e-6)


def test_no_steps() -> None:
    with pytest.raises(ValueError, match="steps=0: integrating needs at least 1"):
        integrated_gradients(build(), TOKENS, steps=0)
