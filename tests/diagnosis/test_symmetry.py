"""Equal heads and equal keys, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from tracer.diagnosis.symmetry import ALIKE, EQUAL, SPREAD, STATISTICS, clones, twins, uniform

N = 12
NAN = np.nan


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param([[1, 2], [1, 2], [1, 3]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]], id="both have to agree"),
        pytest.param([[1000, 1], [1000.9, 1]], [[0, 1], [1, 0]], id="to a thousandth"),
        pytest.param([[1000, 1], [1002, 1]], [[0, 0], [0, 0]], id="and no further"),
        pytest.param([[1, NAN], [1, NAN]], [[0, 1], [1, 0]], id="what neither has"),
        pytest.param([[1, NAN], [1, 2]], [[0, 0], [0, 0]], id="what one has"),
        pytest.param([[0, 0], [0, 0]], [[0, 0], [0, 0]], id="nothing to compare"),
    ],
)
def test_twins(numbers: list, expected: list) -> None:
    assert twins(np.array(numbers, float)).astype(int).tolist() == expected


def test_the_edge_of_uniform_is_what_scores_half_a_percent_apart_lack() -> None:
    """In float64, by the definition: scores drawn with this spread, over 2 to 64 keys."""
    rng = np.random.default_rng(0)
    for n in (2, 8, 64):
        p = np.exp(SPREAD * rng.standard_normal((20_000, n)))
        p /= p.sum(-1, keepdims=True)
        lacks = 1 + float((p * np.log(p)).sum(-1).mean()) / np.log(n)
        assert 0.1 * ALIKE < lacks < 1.5 * ALIKE


def test_random_heads_are_no_twins() -> None:
    """Norms of normal matrices differ by 1 / sqrt(2 d_model d_head), which is over EQUAL for 768 x 64."""
    rng = np.random.default_rng(0)
    norms = np.linalg.norm(rng.standard_normal((40, 768 * 64)), axis=1)
    assert (
        np.std(norms) / np.mean(norms) == pytest.approx((2 * 768 * 64) ** -0.5, rel=0.3)
        and EQUAL < (2 * 768 * 64) ** -0.5
    )
    eight = 768**0.5 * (1 + rng.standard_normal((1000, 12, 8)) * (2 * 768 * 64) ** -0.5)
    assert not twins(eight).any()


def heads(**changes: list) -> xr.Dataset:
    """Three heads of one layer, told apart in everything unless a change says otherwise; N records."""
    base = {name: [0.3, 0.5, 0.7] for name in STATISTICS} | changes
    arrays: dict[str, Any] = {
        name: (("step", "layer", "head"), np.tile(np.array(row, float), (N, 1, 1))) for name, row in base.items()
    }
    return xr.Dataset(arrays, {"step": np.arange(N)})


def test_heads_of_a_watched_model_that_look_alike() -> None:
    alike = heads(**{name: [0.3, 0.5, 0.5] for name in STATISTICS})
    (found,) = clones({}, alike)
    assert found.heads == ((0, 1), (0, 2)) and found.advice.candidates
    assert list(clones({}, heads())) == []


@pytest.mark.parametrize("entropy", [[0.3, 1.0, 1.0], [0.3, 0.0, 0.0]])
def test_saturated_heads_are_no_copies(entropy: list[float]) -> None:
    """Two heads that look at one key, or at all alike, agree in everything without having one weight in common."""
    same = {name: [0.3, 0.5, 0.5] for name in STATISTICS}
    assert list(clones({}, heads(**{**same, "entropy_normalised": entropy}))) == []


def test_weights_that_differ_are_no_copies() -> None:
    trace = heads(**{name: [0.3, 0.5, 0.5] for name in STATISTICS})
    norms = np.ones((N, 1, 3, 4)) * np.array([1.0, 2.0, 2.1])[None, None, :, None]
    for name in ("weight", "grad"):
        trace[f"head_{name}_norm"] = (("step", "layer", "head", "matrix"), norms)
    assert list(clones({}, trace)) == []
    trace["head_weight_norm"][:] = trace["head_grad_norm"][:] = 1.0
    (found,) = clones({}, trace)
    assert "own" in found.advice.remedy


def test_a_head_that_leaves_uniform_attention_is_no_finding() -> None:
    trace = heads(entropy_normalised=[1.0, 0.5, 1.0])
    (found,) = uniform({}, trace)
    assert (found.heads, found.severity, found.step) == (((0, 0), (0, 2)), "watch", 0)
    trace["entropy_normalised"][-1] = 0.9
    assert list(uniform({}, trace)) == []
    (found,) = uniform({}, heads(entropy_normalised=[1.0, 1.0, 1.0]))
    assert found.severity == "bad"


def test_a_head_that_a_clamp_holds_is_left_alone() -> None:
    meta = {"config": {"model": {"n_heads": 3}, "clamp": ["L0H0 off"]}}
    (found,) = uniform(meta, heads(entropy_normalised=[1.0, 0.5, 1.0]))
    assert found.heads == ((0, 2),)
