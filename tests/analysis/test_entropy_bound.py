"""The lower bounds of entropy: by hand, attained, and never above what heads do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracer.analysis.entropy_bound import bound, lowest_entropy, qk_norm, score_sizes
from tracer.model import Transformer
from tracer.presets import preset


def by_hand(s: float, T: int) -> float:
    """Theorem 3.1 of Zhai et al. 2023, as printed."""
    if T == 1:
        return 0.0
    beta = math.exp(-s * math.sqrt(T / (T - 1)))
    return math.log1p((T - 1) * beta) + s * math.sqrt(T * (T - 1)) * beta / (1 + (T - 1) * beta)


def softmax(scores: np.ndarray) -> np.ndarray:
    p = np.exp(scores - scores.max())
    return p / p.sum()


def shannon(p: np.ndarray) -> float:
    return float(-sum(x * math.log(x) for x in p if x > 0))


@pytest.mark.parametrize("T", [1, 2, 3, 16, 512])
@pytest.mark.parametrize("s", [0.0, 1e-6, 0.5, 3.0, 40.0, 700.0])
def test_the_formula_is_the_printed_one(s: float, T: int) -> None:
    found = lowest_entropy(torch.tensor(s), torch.tensor(T))
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(by_hand(float(np.float32(s)), T), rel=1e-12, abs=1e-300)


def test_known_ends() -> None:
    assert float(lowest_entropy(torch.tensor(0.0), torch.tensor(8))) == pytest.approx(math.log(8))
    assert float(lowest_entropy(torch.tensor(1e5), torch.tensor(8))) == 0.0  # e^-1e5 is below every float
    assert float(lowest_entropy(torch.tensor(math.inf), torch.tensor(8))) == 0.0
    large, T = 30.0, 64  # T s e^-s, to leading order
    assert float(lowest_entropy(torch.tensor(large), torch.tensor(T))) == pytest.approx(
        (T - 1) * math.exp(-large * math.sqrt(T / (T - 1))) * (1 + large * math.sqrt(T / (T - 1))), rel=1e-6
    )


@pytest.mark.parametrize("T", [2, 5, 64])
@pytest.mark.parametrize("s", [0.1, 2.0, 9.0])
def test_it_is_attained_by_one_key_ahead_of_equal_others(s: float, T: int) -> None:
    row = np.full(T, -s / math.sqrt(T * (T - 1)))
    row[0] = s * math.sqrt((T - 1) / T)
    assert np.linalg.norm(row - row.mean()) == pytest.approx(s)
    assert shannon(softmax(row)) == pytest.approx(by_hand(s, T), rel=1e-9)


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=40))
def test_no_row_is_below_it(row: list[float]) -> None:
    scores = np.array(row)
    s = float(np.linalg.norm(scores - scores.mean()))
    least = float(lowest_entropy(torch.tensor(s, dtype=torch.float64), torch.tensor(len(row))))
    assert shannon(softmax(scores)) >= least - 1e-9


def test_a_larger_norm_allows_less() -> None:
    sizes = torch.linspace(0, 60, 400, dtype=torch.float64)
    assert (lowest_entropy(sizes, torch.tensor(17)).diff() < 0).all()


def test_the_spectral_norm_is_that_of_the_product() -> None:
    torch.manual_seed(0)
    W_Q, W_K = torch.randn(2, 3, 24, 4, dtype=torch.float64)
    expected = [np.linalg.svd(q.numpy() @ k.numpy().T, compute_uv=False)[0] for q, k in zip(W_Q, W_K, strict=True)]
    np.testing.assert_allclose(qk_norm(W_Q, W_K), expected, rtol=1e-12)


def test_score_sizes_are_of_the_keys_a_row_sees() -> None:
    scores = torch.tensor([[5.0, 9.0, 9.0], [1.0, 3.0, 9.0], [1.0, 1.0, 4.0]])
    np.testing.assert_allclose(score_sizes(scores, scores.tril() > 0), [0, math.sqrt(2), math.sqrt(6)], rtol=1e-12)


CHANGES: dict[str, dict[str, Any]] = {
    "no norm": {},
    "rms": {"norm": "rms"},
    "layer norm with gain": {"norm": "layer"},
    "post-norm": {"norm": "layer", "norm_position": "post"},
    "rotary": {"positions": "rotary"},
    "shortformer": {"positions": "shortformer"},
    "sinusoidal": {"positions": "sinusoidal"},
    "unscaled": {"attn_scale": "none"},
    "no W_O": {"attn_out": False},
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("size", [0.02, 0.3, 2.0])
def test_no_model_is_below_its_bounds(name: str, size: float) -> None:
    config = replace(preset("induction").config.model, d_vocab=30, d_model=16, n_ctx=12, **CHANGES[name])
    model = Transformer(config, seed=1).double()  # at scores of thousands float32 patterns depend on the order of sums
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
    tokens = torch.randint(30, (4, 12), generator=generator)
    found = bound(model, tokens)
    assert (found.by_weights >= 0).all()
    assert (found.by_weights <= found.by_scores + 1e-9).all()
    assert (found.by_scores <= found.entropy + 1e-6).all()
    assert (found.score_size <= found.weight_size * (1 + 1e-5)).all()
    _, cache = model.run_with_cache(tokens)
    for layer in range(model.n_layers):  # an oracle that shares no code: numpy, float64, row by row
        pattern = cache["pattern", layer].double().numpy()
        for head in range(model.n_heads):
            rows = [shannon(p) for sequence in pattern[:, head] for p in sequence[1:]]
            assert float(found.entropy[layer, head]) == pytest.approx(np.mean(rows), abs=1e-5)


@pytest.mark.parametrize("changes", [{"qk_norm": True}, {"smear": "keys"}, {"smear": "queries"}])
def test_what_is_normed_or_smeared_is_bound_by_no_weights(changes: dict[str, Any]) -> None:
    config = replace(preset("induction").config.model, d_vocab=30, d_model=16, n_ctx=6, **changes)
    found = bound(Transformer(config, seed=3), torch.randint(30, (2, 6), generator=torch.Generator().manual_seed(4)))
    assert found.by_weights.isnan().all() and found.weight_size.isnan().all()
    assert (found.by_scores <= found.entropy).all() and (found.score_size > 0).all()


def test_zhais_number_by_hand() -> None:
    config = replace(preset("induction").config.model, d_vocab=30, d_model=16, n_ctx=6, n_layers=1, norm="none")
    model = Transformer(config, seed=3)
    tokens = torch.randint(30, (2, 6), generator=torch.Generator().manual_seed(4))
    found = bound(model, tokens)
    x = (model.embed.W_E[tokens] + model.pos_embed.W_pos[:6]).detach().double().numpy()
    attn = model.blocks[0].attn
    for head in range(model.n_heads):
        product = attn.W_Q[head].detach().double().numpy() @ attn.W_K[head].detach().double().numpy().T
        sizes = [float(config.scale * np.linalg.norm(product, 2) * np.linalg.norm(rows @ rows.T, 2)) for rows in x]
        rows = [by_hand(s, q + 1) for s in sizes for q in range(1, 6)]
        assert float(found.weight_size[0, head]) == pytest.approx(np.mean(sizes), rel=1e-6)
        assert float(found.by_weights[0, head]) == pytest.approx(np.mean(rows), rel=1e-6)
