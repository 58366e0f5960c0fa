"""Row blocks against the dense definitions in float64, and the bound of Zhai et al. 2023."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.utils._python_dispatch import TorchDispatchMode

from tests.heads.fields import field
from tracer.heads import HeadStats, definitions, pattern, stats, stats_from_pattern
from tracer.heads.blocks import FUSED

SCALE = 0.125
D_HEAD = 64
MASSES = ("confidence", "current_token", "previous_token", "first_token", "duplicate_token", "induction")


def inputs(kind: str, batch: int, pos: int, head: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(pos * head + batch)
    q, k = torch.randn(2, batch, pos, head, D_HEAD, generator=generator)
    match kind:
        case "peaked":
            q = 8 * q
        case "one-hot":
            q = 40 * q
        case "sink":
            direction = torch.ones(D_HEAD)
            q, k = 0.4 * q + direction, torch.cat([k[:, :1] + 3 * direction, 0.4 * k[:, 1:]], 1)
        case "offset":
            k = k + 3
    tokens = torch.randint(0, max(2, pos // 6), (batch, pos), generator=generator)
    return q, k, tokens


def oracle(q: torch.Tensor, k: torch.Tensor, tokens: torch.Tensor, causal: bool = True) -> dict[str, torch.Tensor]:
    p = pattern(q.double(), k.double(), scale=SCALE, causal=causal)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * SCALE
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) & causal
    return {
        "entropy": definitions.entropy(p),
        "entropy_normalised": definitions.entropy_normalised(p, causal=causal),
        "confidence": definitions.confidence(p),
        "current_token": definitions.current_token(p),
        "previous_token": definitions.previous_token(p),
        "first_token": definitions.first_token(p),
        "duplicate_token": definitions.duplicate_token(p, tokens),
        "induction": definitions.induction(p, tokens),
        "back": definitions.tokens_back(p),
        "lse": scores.masked_fill(hidden, -math.inf).logsumexp(-1),
        "attended_distance": definitions.attended_distance(p) / p.shape[-1],
        "max_logit": scores.masked_fill(hidden, -math.inf).amax((-2, -1)),
    }


def check(got: HeadStats, want: dict[str, torch.Tensor], atol: float) -> None:
    for name, expected in want.items():
        value = field(got, name)
        assert value.dtype == torch.float32, name
        value = value / value.shape[-1] if name == "attended_distance" else value
        rtol = 1e-5 if name in ("max_logit", "lse") else 0
        torch.testing.assert_close(
            value.double(), expected, atol=atol, rtol=rtol, equal_nan=True, msg=lambda why, name=name: f"{name}: {why}"
        )


@pytest.mark.parametrize("pos", [1, 2, 3, 64, 127, 128, 129, 300])
def test_any_length(pos: int) -> None:
    q, k, tokens = inputs("normal", 2, pos, 3)
    check(stats(q, k, tokens, scale=SCALE), oracle(q, k, tokens), 3e-6)


@pytest.mark.parametrize(
    ("kind", "atol"), [("normal", 3e-6), ("peaked", 3e-5), ("one-hot", 1e-4), ("sink", 5e-6), ("offset", 1e-5)]
)
def test_any_data(kind: str, atol: float) -> None:
    q, k, tokens = inputs(kind, 1, 256, 4)
    check(stats(q, k, tokens, scale=SCALE), oracle(q, k, tokens), atol)


@pytest.mark.parametrize("block_scores", [1, 7, 64, 500, 2000, 10**6])
@pytest.mark.parametrize(("batch", "pos", "head"), [(1, 13, 5), (5, 9, 3), (7, 4, 1)])
def test_any_block(block_scores: int, batch: int, pos: int, head: int) -> None:
    q, k, tokens = inputs("normal", batch, pos, head)
    check(stats(q, k, tokens, scale=SCALE, block_scores=block_scores), oracle(q, k, tokens), 3e-6)


@pytest.mark.parametrize("block_scores", [7, 500, 10**6])
@pytest.mark.parametrize("only", [slice(5, 9), slice(12, None), slice(0, 1)])
def test_only_these_rows(only: slice, block_scores: int) -> None:
    q, k, tokens = inputs("normal", 2, 13, 3)
    got = stats(q, k, tokens, scale=SCALE, only=only, block_scores=block_scores)
    want = oracle(q, k, tokens)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * SCALE
    for name, whole in want.items():
        if name not in ("max_logit", "back"):
            value = field(got, name)[..., only].double() / (13 if name == "attended_distance" else 1)
            torch.testing.assert_close(value, whole[..., only], atol=3e-6, rtol=1e-5, equal_nan=True)
    seen = scores.masked_fill(torch.ones(13, 13, dtype=torch.bool).triu(1), -math.inf)[..., only, :]
    torch.testing.assert_close(got.max_logit.double(), seen.amax((-2, -1)), atol=3e-6, rtol=1e-5)
    assert got["entropy"].isfinite().sum() == 2 * 3 * len(range(13)[only]) and got.back.shape[2] == 0


@pytest.mark.parametrize("pos", [1, 2, 130])
def test_without_mask(pos: int) -> None:
    q, k, tokens = inputs("normal", 2, pos, 2)
    got = stats(q, k, tokens, scale=SCALE, causal=False, block_scores=3000)
    check(got, oracle(q, k, tokens, causal=False), 3e-6)


def test_near_zero_entropy_is_as_precise_as_an_explicit_softmax() -> None:
    q, k, tokens = inputs("sink", 1, 256, 4)
    exact = oracle(q, k, tokens)["entropy"]
    small = (exact > 1e-9) & (exact < 1e-3)
    assert small.sum() > 200
    explicit = definitions.entropy(pattern(q, k, scale=SCALE)).double()
    got = stats(q, k, scale=SCALE)["entropy"].double()
    error, explicit_error = ((value - exact)[small].abs() / exact[small] for value in (got, explicit))
    assert error.max() < 0.06
    assert error.max() <= 1.1 * explicit_error.max()
    assert error.median() <= 1.1 * explicit_error.median()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    q, k, tokens = inputs("peaked", 1, 64, 2)
    q, k = q.to(dtype), k.to(dtype)
    half, upcast = stats(q, k, tokens, scale=SCALE), stats(q.float(), k.float(), tokens, scale=SCALE)
    assert half["entropy"].dtype == torch.float32
    for name in ("entropy", *MASSES, "max_logit"):
        torch.testing.assert_close(field(half, name), field(upcast, name), rtol=0, atol=0, equal_nan=True)


def test_float64_stays() -> None:
    q, k, tokens = inputs("peaked", 1, 130, 2)
    got, want = stats(q.double(), k.double(), tokens, scale=SCALE), oracle(q, k, tokens)
    for name, expected in want.items():
        value = got["attended_distance"] / 130 if name == "attended_distance" else field(got, name)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-13, equal_nan=True)


def test_without_tokens_there_are_no_copies() -> None:
    q, k, _ = inputs("normal", 1, 8, 2)
    got = stats(q, k, scale=SCALE)
    assert not {"duplicate_token", "induction"} & set(got.rows)


def test_rows_do_not_see_later_keys() -> None:
    q, k, tokens = inputs("normal", 1, 200, 2)
    changed = k.clone()
    changed[:, 100:] = 1e3
    before, after = stats(q, k, tokens, scale=SCALE), stats(q, changed, tokens, scale=SCALE)
    for name in ("entropy", *MASSES):
        torch.testing.assert_close(
            field(before, name)[..., :100], field(after, name)[..., :100], rtol=0, atol=0, equal_nan=True
        )


def test_scores_that_are_not_finite_are_not_hidden() -> None:
    q, k, _ = inputs("normal", 1, 6, 2)
    k[0, 3, 1] = math.nan
    got = stats(q, k, scale=SCALE)
    assert got["entropy"][0].isnan().tolist() == [[False] * 6, [False] * 3 + [True] * 3]
    assert got.max_logit.isnan().tolist() == [[False, True]]


def test_keys_that_no_row_reaches_weigh_nothing() -> None:
    q = torch.full((1, 50, 1, 1), 1000.0)
    k = torch.zeros(1, 50, 1, 1)
    k[0, 0] = 1.0
    got = stats(q, k, scale=1.0)
    assert got["entropy"].max() < 1e-30
    assert got["first_token"].min() == 1


class LargestTensor(TorchDispatchMode):
    """Remembers the largest storage that any operation returned."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return out


def test_no_pattern_is_ever_whole() -> None:
    batch, pos, head = 2, 1024, 4
    q, k, tokens = inputs("normal", batch, pos, head)
    q, k = q[..., :8].clone(), k[..., :8].clone()
    with LargestTensor() as seen:
        stats(q, k, tokens, scale=SCALE)
    one_pattern = 4 * pos * pos
    assert seen.bytes < one_pattern
    with LargestTensor() as seen:
        pattern(q, k, scale=SCALE)
    assert seen.bytes == batch * head * one_pattern


def lower_bound(s: float, n: int) -> float:
    """Theorem 3.1 of Zhai et al. 2023, for a row of n scores at distance s from their mean."""
    beta = math.exp(-s * math.sqrt(n / (n - 1)))
    return math.log1p((n - 1) * beta) + s * math.sqrt(n * (n - 1)) * beta / (1 + (n - 1) * beta)


def entropies(rows: np.ndarray) -> list[float]:
    """Causal row entropies of a square of scores: q holds the rows, k the identity."""
    n = len(rows)
    scores = torch.from_numpy(rows)[None, :, None, :]
    return stats(scores, torch.eye(n, dtype=torch.float64)[None, :, None, :], scale=1.0)["entropy"].flatten().tolist()


@given(st.integers(2, 9).flatmap(lambda n: arrays(float, (n, n), elements=st.floats(-20, 20))))
def test_entropy_never_falls_below_its_bound(rows: np.ndarray) -> None:
    for q, entropy in enumerate(entropies(rows)):
        seen = rows[q, : q + 1]
        if q:
            assert entropy >= lower_bound(float(np.linalg.norm(seen - seen.mean())), q + 1) - 1e-9
        assert -1e-12 <= entropy <= math.log(q + 1) + 1e-9


@pytest.mark.parametrize("height", [0.0, 0.5, 3.0, 12.0])
def test_one_score_above_the_rest_attains_the_bound(height: float) -> None:
    n = 16
    rows = np.zeros((n, n))
    rows[:, 0] = height
    for q, entropy in enumerate(entropies(rows)[1:], start=1):
        assert entropy == pytest.approx(lower_bound(height * math.sqrt(q / (q + 1)), q + 1), rel=1e-9)


def two_back(pattern: torch.Tensor, *, start: int = 0) -> torch.Tensor:
    """A_q,q-2: a measure that the fused pass has no form of; nan in the first two rows."""
    rows = torch.arange(start, start + pattern.shape[-2])
    keys = (rows - 2).clamp(min=0).expand(*pattern.shape[:-1]).unsqueeze(-1)
    return pattern.gather(-1, keys).squeeze(-1).masked_fill(rows < 2, float("nan"))


def on_copies(pattern: torch.Tensor, tokens: torch.Tensor, *, start: int = 0) -> torch.Tensor:
    """The mass on keys that hold the query's token, itself included."""
    asked = tokens[:, start : start + pattern.shape[-2], None] == tokens[:, None, : pattern.shape[-1]]
    return (pattern * asked.unsqueeze(1)).sum(-1)


@pytest.mark.parametrize("block_scores", [64, 10**6])
def test_a_measure_is_its_definition_alone(monkeypatch: pytest.MonkeyPatch, block_scores: int) -> None:
    monkeypatch.setattr(definitions, "ROWS", dict(definitions.ROWS))
    monkeypatch.setattr(definitions, "SQUARE", set(definitions.SQUARE))
    definitions.measure_of_rows(square=True)(two_back)
    definitions.measure_of_rows()(on_copies)
    q, k, tokens = inputs("normal", 3, 40, 4)
    fused = stats(q, k, tokens, scale=SCALE, block_scores=block_scores)
    p = pattern(q.double(), k.double(), scale=SCALE)
    explicit = stats_from_pattern(p, tokens, causal=True)
    by_hand = torch.nn.functional.pad(p.diagonal(-2, -2, -1), (2, 0), value=float("nan"))
    for found in (fused, explicit):
        torch.testing.assert_close(found["two_back"].double(), by_hand, atol=3e-6, rtol=0, equal_nan=True)
        torch.testing.assert_close(found["on_copies"].double(), on_copies(p, tokens), atol=3e-6, rtol=0)
    assert not {"on_copies"} & set(stats(q, k, scale=SCALE).rows)
    wide = stats(q, torch.cat([k, k], 1), scale=SCALE, causal=False)
    assert wide["two_back"].isnan().all()  # queries and keys are other positions


def test_what_has_no_fused_form_can_be_called_with_a_few_rows() -> None:
    assert [n for n in definitions.ROWS if n not in FUSED and not definitions.asks_for(n, "start")] == []
    assert set(definitions.ROWS) >= FUSED
