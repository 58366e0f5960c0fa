"""The jobs of a head whose outputs are written by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from tracer.analysis import head_jobs as module
from tracer.analysis.head_jobs import _frequent, fewer_by_chance, groups_apart, head_jobs
from tracer.config import ModelConfig
from tracer.model import Transformer

WRITTEN = torch.tensor([[2, 0, 0], [0.75, 1.3, 0], [-0.002, 0.0023, 0.0095]]).double()
"""What a head writes at tokens 1, 2 and 3: the third next to nothing, in a direction far from the others."""


def writer(vectors: Float[Tensor, "token d"] = WRITTEN) -> Transformer:
    """One head that writes these, at tokens 1, 2, ..., once more into the stream."""
    n, d = vectors.shape
    config = ModelConfig(
        n_layers=1, n_heads=1, d_model=d, d_head=d, n_ctx=2, d_vocab=n + 1, norm="none", positions="none"
    )
    model = Transformer(config).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.zero_()
    attn, eye = model.blocks[0].attn, torch.eye(d).double()
    assert attn.W_O is not None
    model.embed.W_E[1:], attn.W_V[0], attn.W_O[0], model.W_U[:, 1 : d + 1] = vectors, eye, eye, 3 * eye
    return model


def looks(*n: int) -> xr.Dataset:
    """As a survey keeps them: of each token so many rows, in which the first position looks at itself."""
    tokens = np.array([[token, 2] for token, count in enumerate(n, 1) for _ in range(count)], np.int32)
    at, where = ("layer", "head", "kept"), (1, 1, len(tokens))
    fields = {name: (at, np.zeros(where, int)) for name in ("query_kept", "key_kept")}
    fields["row_kept"] = (at, np.arange(len(tokens)).reshape(where))
    return xr.Dataset({**fields, "first_kept": (at, np.ones(where)), "tokens": (("row", "pos"), tokens)})


def test_what_a_head_hardly_writes_is_no_job_of_its_own() -> None:
    """As two groups: the third direction joins the nearer one, however many looks it has."""
    found = head_jobs(writer(), looks(40, 40, 200), 0, 0, most=2)
    first, second = found.jobs
    total = 40 * 2.0 + 40 * 1.5 + 200 * 0.01
    assert (first.share, second.share) == pytest.approx((8 / 56, 48 / 56))
    assert (first.written, second.written) == pytest.approx(
        (40 * 2.0 / total, (40 * 1.5 + 200 * 0.01) / total), rel=2e-3
    )
    assert [token for token, _ in first.keys] == [1] and {token for token, _ in second.keys} == {2, 3}
    assert found.explained == pytest.approx(1) and found.kept.tolist() == list(range(280))
    assert found.group.tolist() == [0] * 40 + [1] * 240


def test_numbers_of_a_job_by_hand() -> None:
    """Off, the stream still has the token, half of what it had: 3 s in place of 6 s on its own logit, of three."""
    sizes = torch.diag(torch.tensor([2.0, 1.5])).double()
    found = head_jobs(writer(sizes), looks(40, 120), 0, 0)
    few, many = sorted(found.jobs, key=lambda job: job.share)
    assert found.silhouette == pytest.approx(1) and (few.share, many.share) == (0.25, 0.75)
    assert few.keys == few.queries == [(1, 4.0)] and many.keys == [(2, pytest.approx(4 / 3))]
    size = 2  # of token 2 after token 1: its own logit is 0
    assert few.cost == pytest.approx(np.log(np.exp(3 * size) + 2) - np.log(np.exp(6 * size) + 2))
    size = 1.5  # token 2 after itself
    gained = (np.log(np.exp(3 * size) + 2) - 3 * size) - (np.log(np.exp(6 * size) + 2) - 6 * size)
    assert (
        many.cost == pytest.approx(gained) and many.cost > 0 > few.cost and many.cost_se == pytest.approx(0, abs=1e-9)
    )
    assert few.first == 1.0 and set(many.passages) <= set(range(40, 160)) and len(many.passages) == 6


def test_the_error_of_a_cost_is_that_of_a_mean_of_few() -> None:
    """One look before another token, one before the token itself, whose loss rises by 3 s = 6 more: 6 / 2."""
    two = looks(2)
    two["tokens"][1, 1] = 1
    (job,) = head_jobs(writer(torch.diag(torch.tensor([2.0, 1.5])).double()), two, 0, 0).jobs
    before = np.log(np.exp(6) + 2) - np.log(np.exp(12) + 2)
    assert (job.cost, job.cost_se) == (pytest.approx(before + 3), pytest.approx(3))


@pytest.mark.parametrize(("n", "jobs"), [(10, 1), (40, 2)])
def test_a_few_looks_are_no_group(n: int, jobs: int) -> None:
    """Nothing lies half way; of ten looks that may be chance."""
    assert len(head_jobs(writer(torch.eye(2).double()), looks(120, n), 0, 0).jobs) == jobs


def test_the_grouping_whose_silhouette_is_best_is_taken() -> None:
    """Three directions: two of them as one group would be apart from the third, too."""
    found = head_jobs(writer(torch.eye(3).double()), looks(60, 60, 60), 0, 0)
    assert len(found.jobs) == 3 and found.silhouette == pytest.approx(1)


def test_looks_that_write_nothing_are_no_group() -> None:
    """Nor is there one where all write nothing."""
    for vectors, explained in ((torch.tensor([[1.0, 0.0], [0.0, 0.0]]), 1.0), (torch.zeros(2, 2), 1.0)):
        found = head_jobs(writer(vectors.double()), looks(40, 40), 0, 0)
        assert [(job.share, job.written) for job in found.jobs] == [
            (1.0, pytest.approx(1))
        ] and found.explained == explained


def test_one_look_that_writes_what_is_no_number_is_told() -> None:
    vectors = WRITTEN.clone()
    vectors[0, 2] = float("nan")  # of a token that only one row has
    with pytest.raises(ValueError, match="what L0H0 writes is not finite"):
        head_jobs(writer(vectors), looks(1, 5), 0, 0)


def test_a_group_that_weighs_nothing_is_not_apart() -> None:
    x, labels = np.repeat([[0.0], [1.0]], 40, axis=0), np.repeat([0, 1], 40)
    assert groups_apart(x, labels, np.ones(80))
    assert not groups_apart(x, labels, 1.0 - labels)


def test_a_heavy_look_draws_the_middle_of_its_group() -> None:
    """Weighted, the middles are at 0 and 2, and nothing is half way; not weighted at 1 and 2, where half way is 1.5."""
    x, labels = np.repeat([[0.0], [1.5], [2.0]], [30, 60, 60], axis=0), np.repeat([0, 0, 1], [30, 60, 60])
    assert groups_apart(x, labels, np.repeat([1.0, 1e-6, 1.0], [30, 60, 60]))


@pytest.mark.parametrize(
    ("half_way", "around", "p"),
    [(0, 0, 1.0), (0, 20, 0.8**20), (1, 9, 0.8**10 + 10 * 0.2 * 0.8**9), (2, 0, 1.0)],
)
def test_two_counts_are_one_draw_of_a_fifth(half_way: int, around: int, p: float) -> None:
    """Expected is a quarter as many half way as around a middle: one in five of both."""
    assert fewer_by_chance(half_way, around) == pytest.approx(p)


def test_the_most_frequent_tokens_come_first() -> None:
    """Beside how many times their share of the sample they have here."""
    tokens = np.array([1, 2, 2, 3, 3, 3])
    assert _frequent(tokens, tokens < np.array([9, 9, 9, 9, 0, 0])) == [(2, 1.5), (1, 1.5), (3, 0.5)]
    assert [token for token, _ in _frequent(np.arange(9), np.ones(9, bool))] == [0, 1, 2, 3, 4, 5]


def test_directions_without_groups_are_one_job() -> None:
    vectors = torch.randn(60, 12, generator=torch.Generator().manual_seed(0)).double()
    found = head_jobs(writer(vectors), looks(*[1] * 60), 0, 0)
    assert len(found.jobs) == 1 and np.isnan(found.silhouette) and found.jobs[0].share == 1


def test_groups_that_touch_are_groups_where_their_silhouette_is_a_quarter() -> None:
    """Noise of nearly the length of four directions: a third of the way from no structure to four points."""
    vectors = torch.randn(600, 12, generator=torch.Generator().manual_seed(0)).double() * 0.9 / 12**0.5
    vectors[torch.arange(600), torch.arange(600) % 4] += 1
    found = head_jobs(writer(vectors), looks(*[1] * 600), 0, 0)
    assert len(found.jobs) == 4 and 0.3 < found.silhouette < 0.37


def test_rows_are_read_in_as_many_passes_as_memory_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given = writer(), looks(40, 30, 20)
    whole = head_jobs(*given, 0, 0, most=2)
    monkeypatch.setattr(module, "LOGITS", 7 * 2 * given[0].d_vocab)  # 7 rows at once
    parts = head_jobs(*given, 0, 0, most=2)
    assert [job.cost for job in parts.jobs] == pytest.approx([job.cost for job in whole.jobs])
    np.testing.assert_allclose(parts.components, whole.components)
