"""Patterns whose measures are known by hand."""

import math

import pytest
import torch
from transformer_lens import head_detector

from tracer.data.probes import repeated
from tracer.heads import attention_by_offset, definitions, pattern, stats

T = 8
NAN = float("nan")
EXACT = {"rtol": 0, "atol": 0, "equal_nan": True}


def uniform(n: int) -> torch.Tensor:
    return torch.ones(n, n, dtype=torch.float64).tril() / torch.arange(1, n + 1)[:, None]


def stripe(n: int, offset: int) -> torch.Tensor:
    """Every row on the key `offset` back; on key 0 where there is none."""
    keys = (torch.arange(n) - offset).clamp_min(0)
    return torch.nn.functional.one_hot(keys, n).double()


CASES = [
    ("entropy", uniform(T), [math.log(q + 1) for q in range(T)]),
    ("entropy", stripe(T, 1), [0.0] * T),
    ("entropy_normalised", uniform(T), [NAN] + [1.0] * (T - 1)),
    ("entropy_normalised", stripe(T, 0), [NAN] + [0.0] * (T - 1)),
    ("confidence", uniform(T), [1 / (q + 1) for q in range(T)]),
    ("confidence", stripe(T, 3), [1.0] * T),
    ("current_token", uniform(T), [1 / (q + 1) for q in range(T)]),
    ("current_token", stripe(T, 0), [1.0] * T),
    ("current_token", stripe(T, 1), [1.0] + [0.0] * (T - 1)),
    ("previous_token", uniform(T), [NAN] + [1 / (q + 1) for q in range(1, T)]),
    ("previous_token", stripe(T, 1), [NAN] + [1.0] * (T - 1)),
    ("previous_token", stripe(T, 2), [NAN, 1.0] + [0.0] * (T - 2)),
    ("first_token", uniform(T), [1 / (q + 1) for q in range(T)]),
    ("first_token", stripe(T, 0), [1.0] + [0.0] * (T - 1)),
    ("attended_distance", uniform(T), [q / 2 for q in range(T)]),
    ("attended_distance", stripe(T, 3), [min(q, 3) for q in range(T)]),
    ("attended_distance", stripe(T, 1).T, [1.0] * (T - 1) + [0.0]),
]


@pytest.mark.parametrize(("name", "given", "expected"), CASES)
def test_rows(name: str, given: torch.Tensor, expected: list[float]) -> None:
    value = getattr(definitions, name)(given)
    torch.testing.assert_close(value, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (uniform(6), [[NAN] * 3 + [1 / 4, 1 / 5, 1 / 6], [NAN] * 4 + [1 / 5, 1 / 6]]),
        (stripe(6, 2), [[NAN] * 3 + [1.0] * 3, [NAN] * 4 + [0.0] * 2]),
        (stripe(6, 3), [[NAN] * 3 + [0.0] * 3, [NAN] * 4 + [1.0] * 2]),
        (stripe(6, 6), [[NAN] * 3 + [0.0] * 3, [NAN] * 4 + [0.0] * 2]),  # the first token counts nowhere
        (uniform(4), [[NAN] * 3 + [1 / 4]]), (uniform(3), []), (uniform(1), []),
    ],
)  # fmt: skip
def test_tokens_back(given: torch.Tensor, expected: list[list[float]]) -> None:
    found = definitions.tokens_back(given)
    torch.testing.assert_close(found, torch.tensor(expected).double().reshape(-1, len(given)), equal_nan=True)
    assert definitions.tokens_back(uniform(100)).shape == (15, 100), "16 at most"


def test_uniform_entropy_of_64_rows() -> None:
    mean = definitions.entropy(uniform(64)).mean().item()
    assert mean == pytest.approx(math.log(math.factorial(64)) / 64)
    assert mean == pytest.approx(3.206, abs=5e-4)


def test_normalised_entropy_without_mask_counts_every_key() -> None:
    everywhere = torch.full((T, T), 1 / T, dtype=torch.float64)
    assert definitions.entropy_normalised(everywhere, causal=False).tolist() == pytest.approx([1.0] * T)


# tokens a b a a: query 2 has a copy at 0, query 3 at 0 and 2; the keys after them are 1, and 1 and 3
@pytest.mark.parametrize(
    ("tokens", "duplicate", "induction"),
    [
        ([5, 6, 5, 5], [0, 0, 1 / 3, 2 / 4], [0, 0, 1 / 3, 2 / 4]),
        ([5, 6, 7, 8], [0, 0, 0, 0], [0, 0, 0, 0]),
        ([5, 5, 5, 5], [0, 1 / 2, 2 / 3, 3 / 4], [0, 1 / 2, 2 / 3, 3 / 4]),
    ],
)
def test_copies_under_uniform_attention(tokens: list[int], duplicate: list[float], induction: list[float]) -> None:
    given, ids = uniform(4)[None, None], torch.tensor([tokens])
    assert definitions.duplicate_token(given, ids).flatten().tolist() == pytest.approx(duplicate)
    assert definitions.induction(given, ids).flatten().tolist() == pytest.approx(induction)


def test_the_keys_that_count() -> None:
    ids = torch.tensor([[5, 6, 5, 5]])
    rows = torch.eye(4, dtype=torch.float64)  # row k of `looks(k)` puts the last query on key k

    def looks(key: int) -> torch.Tensor:
        return torch.cat([torch.eye(4, dtype=torch.float64)[:3], rows[key : key + 1]])[None, None]

    assert [definitions.duplicate_token(looks(k), ids)[0, 0, 3].item() for k in range(4)] == [1, 0, 1, 0]
    assert [definitions.induction(looks(k), ids)[0, 0, 3].item() for k in range(4)] == [0, 1, 0, 1]


def test_ideal_heads_on_repeated_tokens() -> None:
    probe = repeated(d_vocab=100, n_ctx=64, batch=2, at=25)
    tokens, n, second = probe.tokens, probe.tokens.shape[1], probe.second_copy
    heads = torch.stack([stripe(n, 24), stripe(n, 25), stripe(n, 1), uniform(n)]).expand(2, 4, n, n)
    induction = definitions.induction(heads, tokens)[..., second].mean((0, 2))
    duplicate = definitions.duplicate_token(heads, tokens)[..., second].mean((0, 2))
    previous = definitions.previous_token(heads)[..., second].mean((0, 2))
    assert induction.tolist() == pytest.approx([1, 0, 0, 0.0266], abs=1e-4)
    assert duplicate.tolist() == pytest.approx([0, 1, 0, 0.0266], abs=1e-4)
    assert previous.tolist() == pytest.approx([0, 0, 1, 0.0266], abs=1e-4)


def test_attention_by_offset() -> None:
    by_offset = attention_by_offset(torch.stack([stripe(T, 0), uniform(T)])[None])
    assert by_offset.shape == (1, 2, T)
    assert by_offset[0, 0].tolist() == [1.0] + [0.0] * (T - 1)
    mean_of_rows = [sum(1 / (q + 1) for q in range(d, T)) / (T - d) for d in range(T)]
    assert by_offset[0, 1].tolist() == pytest.approx(mean_of_rows)


def test_pattern_by_hand() -> None:
    q = torch.tensor([[[[1.0]], [[2.0]]]])
    k = torch.tensor([[[[3.0]], [[5.0]]]])
    low = 1 / (1 + math.exp(2.0))  # scores 0.5 * 2 * (3, 5) = 3, 5
    expected = torch.tensor([[[[1.0, 0.0], [low, 1 - low]]]])
    torch.testing.assert_close(pattern(q, k, scale=0.5), expected)
    row_0 = 1 / (1 + math.exp(1.0))  # scores 1.5, 2.5
    assert pattern(q, k, scale=0.5, causal=False)[0, 0, 0].tolist() == pytest.approx([row_0, 1 - row_0])


def test_pattern_of_grouped_heads_by_hand() -> None:
    q = torch.zeros(1, 1, 4, 2)
    q[..., 0] = 1.0
    k = torch.tensor([[[[0.0, 9.0], [1.0, 9.0]], [[math.log(3), 9.0], [1.0, 9.0]]]])  # two keys, two key heads
    got = pattern(q, k, scale=1.0, causal=False)[0, :, 0]
    assert got.tolist() == [pytest.approx([0.25, 0.75])] * 2 + [pytest.approx([0.5, 0.5])] * 2


def test_pattern_under_a_mask_by_hand() -> None:
    q = k = torch.zeros(1, 3, 1, 1)
    hidden = torch.tensor([False, True, True])
    got = pattern(q, k, scale=1.0, mask=hidden)[0, 0]
    assert got.tolist() == [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]]
    bias = torch.tensor([0.0, math.log(2), math.log(3)])
    assert pattern(q, k, scale=1.0, mask=bias)[0, 0, 2].tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6])


@pytest.mark.parametrize(
    ("name", "detection", "field"),
    [
        ("previous_token", head_detector.get_previous_token_head_detection_pattern, "previous_token"),
        ("duplicate_token", head_detector.get_duplicate_token_head_detection_pattern, "duplicate_token"),
        ("induction", head_detector.get_induction_head_detection_pattern, "induction"),
    ],
)
def test_mass_per_row_averaged_over_all_rows_is_what_transformer_lens_detects(name, detection, field) -> None:
    n = 24
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, n, 3, 8, generator=generator)
    tokens = torch.randint(0, 6, (1, n), generator=generator)
    ours = stats(q, k, tokens, scale=1.0)[field].nansum(-1)[0] / n
    theirs = [
        head_detector.compute_head_attention_similarity_score(
            head, detection(tokens), exclude_bos=False, exclude_current_token=False, error_measure="mul"
        )
        for head in pattern(q, k, scale=1.0)[0]
    ]
    assert ours.tolist() == pytest.approx(theirs, rel=1e-5)
    assert min(theirs) > 0.01
