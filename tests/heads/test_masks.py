"""Grouped heads, masks, outputs and thumbnails against patterns made by hand in float64."""

import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st

from tests.heads.fields import field
from tracer.heads import HeadStats, definitions, head_means, pattern, stats, stats_from_pattern
from tracer.heads.masks import visible
from tracer.pictures.payload import max_pool

SCALE = 0.25
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def qkv(batch: int, query_pos: int, key_pos: int, head: int, kv_head: int, d: int = 16, seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, query_pos, head, d, generator=generator)
    k, v = torch.randn(2, batch, key_pos, kv_head, d, generator=generator)
    return q, k, v


def by_hand(q, k, *, causal, mask=None, scale=SCALE) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores with -inf where a key is hidden, and the pattern, 0 in rows that see none; in float64."""
    group = q.shape[2] // k.shape[2]
    s = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double().repeat_interleave(group, 2)) * scale
    if mask is not None and mask.dtype == torch.bool:
        s = s.masked_fill(~mask, -math.inf)
    elif mask is not None:
        s = s + mask.double().masked_fill(mask == torch.finfo(mask.dtype).min, -math.inf)
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return s, s.softmax(-1).nan_to_num(0.0)


def check(got: HeadStats, s: torch.Tensor, p: torch.Tensor, tokens=None, v=None, atol: float = 1e-5) -> None:
    """Every field of `got` against the scores and the pattern they stand for."""
    sees = (s > -math.inf).sum(-1)
    square = p.shape[-1] == p.shape[-2]

    def rows(value: torch.Tensor) -> torch.Tensor:
        return value.masked_fill(sees == 0, math.nan)

    undefined = torch.full_like(p[..., 0], math.nan)
    entropy = rows(definitions.entropy(p))
    want = {
        "entropy": entropy,
        "entropy_normalised": (entropy / sees.double().log()).masked_fill(sees < 2, math.nan),
        "confidence": rows(p.amax(-1)),
        "current_token": rows(definitions.current_token(p)) if square else undefined,
        "previous_token": rows(definitions.previous_token(p)) if square else undefined,
        "first_token": rows(p[..., 0]),
        "attended_distance": rows(definitions.attended_distance(p)) if square else undefined,
        "lse": s.logsumexp(-1),
        "max_logit": s.amax((-2, -1)),
    }
    if square:
        want["back"] = rows(definitions.tokens_back(p).movedim(2, 0)).movedim(0, 2)
    if tokens is not None:
        want |= {"duplicate_token": rows(definitions.duplicate_token(p, tokens))}
        want |= {"induction": rows(definitions.induction(p, tokens))}
    if v is not None:
        group = p.shape[1] // v.shape[2]
        want |= {"z": torch.einsum("bhqk,bkhd->bqhd", p, v.double().repeat_interleave(group, 2))}
    for name, expected in want.items():
        value = field(got, name).double()
        allowed = atol * (p.shape[-1] if name == "attended_distance" else 1)
        torch.testing.assert_close(
            value, expected, atol=allowed, rtol=1e-5, equal_nan=True, msg=lambda why, name=name: f"{name}: {why}"
        )


@pytest.mark.parametrize(("head", "kv_head"), [(4, 4), (4, 2), (6, 2), (4, 1), (1, 1)])
@pytest.mark.parametrize("block_scores", [1, 40, 300, 5000, None])
@pytest.mark.parametrize("causal", [True, False])
def test_grouped_heads(head: int, kv_head: int, block_scores: int | None, causal: bool) -> None:
    q, k, v = qkv(2, 20, 20, head, kv_head)
    tokens = torch.arange(40).view(2, 20) % 7
    got = stats(q, k, tokens, scale=SCALE, causal=causal, v=v, block_scores=block_scores)
    check(got, *by_hand(q, k, causal=causal), tokens, v)


@pytest.mark.parametrize(("query_pos", "key_pos"), [(5, 12), (12, 5), (1, 9), (9, 1), (130, 140), (140, 130)])
@pytest.mark.parametrize("causal", [True, False])
def test_more_keys_than_queries_or_fewer(query_pos: int, key_pos: int, causal: bool) -> None:
    q, k, v = qkv(2, query_pos, key_pos, 4, 2)
    got = stats(q, k, scale=SCALE, causal=causal, v=v)
    check(got, *by_hand(q, k, causal=causal), v=v)
    averages = head_means(got, slice(None))
    undefined = {"previous_token", "current_token", "attended_distance", "fixed_distance", "fixed_distance_at"}
    assert got.back.shape[2] == 0
    assert {name for name, value in averages.items() if value.isnan().all()} >= undefined
    assert not averages["entropy"].isnan().any()


LENGTH = torch.arange(12) < torch.tensor([12, 7, 1])[:, None]
RELATIVE = -0.3 * (torch.arange(12)[:, None] - torch.arange(12)).abs().float()
MASKS = {
    "right padding": LENGTH.view(3, 1, 1, 12),
    "left padding": LENGTH.flip(1).view(3, 1, 1, 12),
    "left padding as -inf": torch.zeros(3, 1, 1, 12).masked_fill(~LENGTH.flip(1).view(3, 1, 1, 12), -math.inf),
    "left padding as the lowest float": torch.zeros(3, 1, 1, 12).masked_fill(
        ~LENGTH.flip(1).view(3, 1, 1, 12), torch.finfo(torch.float32).min
    ),
    "lowest half": torch.zeros(3, 1, 1, 12, dtype=torch.float16).masked_fill(
        ~LENGTH.flip(1).view(3, 1, 1, 12), torch.finfo(torch.float16).min
    ),
    "lowest bfloat16": torch.zeros(3, 1, 1, 12, dtype=torch.bfloat16).masked_fill(
        ~LENGTH.flip(1).view(3, 1, 1, 12), torch.finfo(torch.bfloat16).min
    ),
    "a bias of all heads": RELATIVE,
    "a bias of each head": RELATIVE * torch.tensor([1.0, 0.5, 0.25, 0.125]).view(4, 1, 1),
    "a window": (torch.arange(12)[:, None] - torch.arange(12)).abs() < 3,
    "whole rows": (torch.arange(12) % 3 > 0).view(12, 1),
    "nothing": torch.zeros(1, dtype=torch.bool),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("block_scores", [1, 50, None])
def test_masks(name: str, causal: bool, block_scores: int | None) -> None:
    q, k, v = qkv(3, 12, 12, 4, 2)
    tokens, mask = torch.arange(36).view(3, 12) % 5, MASKS[name]
    s, p = by_hand(q, k, causal=causal, mask=mask)
    got = stats(q, k, tokens, scale=SCALE, causal=causal, mask=mask, v=v, thumbs=5, block_scores=block_scores)
    check(got, s, p, tokens, v)
    explicit = pattern(q, k, scale=SCALE, causal=causal, mask=mask)
    torch.testing.assert_close(explicit.double(), p, atol=1e-6, rtol=0)
    assert got.thumbs is not None
    pooled, _ = max_pool(explicit.numpy(), 5)
    torch.testing.assert_close(got.thumbs, torch.from_numpy(pooled), atol=1e-6, rtol=0)


def test_a_row_without_keys() -> None:
    q, k, v = qkv(1, 4, 4, 2, 2)
    mask = torch.tensor([False, False, True, True]).view(1, 1, 1, 4)
    got = stats(q, k, torch.zeros(1, 4, dtype=torch.long), scale=SCALE, mask=mask, v=v, thumbs=4)
    assert got.z is not None
    assert got.thumbs is not None
    for name in definitions.ROWS.keys() - {"entropy_normalised"}:
        assert field(got, name)[0, :, :2].isnan().all(), name
        assert not field(got, name)[0, :, 2:].isnan().any(), name
    assert got.lse[0, :, :2].tolist() == [[-math.inf] * 2] * 2
    assert got["entropy_normalised"][0, 0].isnan().tolist() == [True, True, True, False]
    assert got.z[0, :2].abs().max() == 0
    assert got.thumbs[0, :, :2].max() == 0
    assert got.thumbs[0, :, :, :2].max() == 0


def test_z_is_what_pytorch_computes() -> None:
    q, k, v = qkv(2, 50, 50, 6, 2)
    mask = torch.rand(2, 6, 50, 50, generator=torch.Generator().manual_seed(0)) < 0.8
    mask |= torch.eye(50, dtype=torch.bool)
    for causal in (True, False):
        combined = mask.tril() if causal else mask
        heads_first = (x.transpose(1, 2) for x in (q, k, v))
        want = F.scaled_dot_product_attention(*heads_first, attn_mask=combined, scale=SCALE, enable_gqa=True)
        got = stats(q, k, scale=SCALE, causal=causal, mask=mask, v=v).z
        assert got is not None
        torch.testing.assert_close(got, want.transpose(1, 2), atol=2e-6, rtol=0)


@pytest.mark.parametrize("n", [1, 5, 64, 127, 128, 129, 300])
@pytest.mark.parametrize("size", [1, 3, 64, 96, 400])
@pytest.mark.parametrize("causal", [True, False])
def test_thumbs_are_the_pooled_pattern(n: int, size: int, causal: bool) -> None:
    q, k, _ = qkv(1, n, n, 2, 1)
    got = stats(q, k, scale=SCALE, causal=causal, thumbs=size, block_scores=3000).thumbs
    pooled, _ = max_pool(pattern(q, k, scale=SCALE, causal=causal).numpy(), size)
    assert got is not None
    torch.testing.assert_close(got, torch.from_numpy(pooled), atol=1e-6, rtol=0)


def test_thumbs_of_a_rectangle_by_hand() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.6, 0.1], [0.5, 0.1, 0.1, 0.3]]).log()[None, :, None, :]
    got = stats(weights, torch.eye(4)[None, :, None, :], scale=1.0, causal=False, thumbs=2).thumbs
    assert got is not None
    # two queries are two rows, four keys two columns of two
    assert got[0, 0].tolist() == [pytest.approx([0.2, 0.6]), pytest.approx([0.5, 0.3])]


def test_values_that_are_not_finite_give_nan() -> None:
    q, k, v = qkv(1, 8, 8, 2, 2)
    for bad in (math.nan, math.inf):
        broken = k.clone()
        broken[0, 3] = bad
        got = stats(q, broken, torch.zeros(1, 8, dtype=torch.long), scale=SCALE, v=v, thumbs=4)
        assert got.z is not None
        assert got["entropy"][..., :3].isnan().tolist() == [[[False] * 3] * 2]
        assert got["entropy"][..., 3:].isnan().all()
        assert got.lse[..., 3:].isnan().all()
        assert got.max_logit.isnan().all()
        assert got.z[:, 3:].isnan().all()
        assert head_means(got)["entropy"].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_types(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in qkv(1, 30, 30, 2, 1))
    got = stats(q, k, scale=SCALE, v=v, thumbs=10)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert got.z is not None
    assert got.thumbs is not None
    assert {x.dtype for x in (got["entropy"], got["entropy_normalised"], got["attended_distance"], got.z)} == {wide}
    check(got, *by_hand(q, k, causal=True), v=v, atol=1e-12 if dtype == torch.float64 else 1e-5)


MESSAGES = [
    ({"q": (1, 4, 3, 8), "k": (1, 4, 2, 8)}, {}, "3 query heads cannot share 2 key heads"),
    ({"q": (1, 4, 2, 8), "k": (1, 4, 2, 8)}, {"mask": torch.ones(3, dtype=torch.bool)}, r"mask of shape \[3\]"),
    ({"q": (1, 4, 2, 8), "k": (1, 4, 2, 8)}, {"mask": torch.ones(1, 1, 1, 1, 4)}, r"mask of shape \[1, 1, 1, 1, 4\]"),
    ({"q": (1, 4, 2, 8), "k": (1, 4, 2, 8)}, {"thumbs": 0}, "0 cells a side"),
    ({"q": (1, 3, 2, 8), "k": (1, 4, 2, 8)}, {"tokens": torch.zeros(1, 3).long()}, "3 queries and 4 keys"),
]


@pytest.mark.parametrize(("shapes", "options", "message"), MESSAGES)
def test_what_cannot_be_is_named(shapes: dict, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stats(torch.zeros(shapes["q"]), torch.zeros(shapes["k"]), scale=1.0, **options)


class Case(NamedTuple):
    """What a random example is made of; short, so that a report of a failure has room for its reason."""

    sizes: tuple[int, int, int]
    """Sequences, queries, keys."""
    kv_head: int
    group: int
    mask: tuple[int, ...] | None
    """Its shape."""
    added: bool
    """Whether the mask is added to the scores, and not only true or false."""
    visible: float
    """The share of its entries that hide no key, about."""
    causal: bool
    block_scores: int | None
    thumbs: int
    seed: int

    def tensors(self) -> tuple[Tensors, torch.Tensor | None]:
        q_k_v = qkv(*self.sizes, self.kv_head * self.group, self.kv_head, d=4, seed=self.seed)
        if self.mask is None:
            return q_k_v, None
        generator = torch.Generator().manual_seed(self.seed)
        mask = torch.rand(self.mask, generator=generator) < self.visible
        if self.added:
            mask = torch.randn(self.mask, generator=generator).masked_fill(~mask, -math.inf)
        return q_k_v, mask


@st.composite
def cases(draw):
    batch, query_pos, key_pos = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 12))
    if draw(st.booleans()):
        key_pos = query_pos
    kv_head, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = tuple(n if draw(st.booleans()) else 1 for n in (batch, kv_head * group, query_pos, key_pos))
    return Case(
        sizes=(batch, query_pos, key_pos),
        kv_head=kv_head,
        group=group,
        mask=draw(st.none() | st.just(shape[draw(st.integers(0, 3)) :])),
        added=draw(st.booleans()),
        visible=draw(st.sampled_from([0.3, 0.9])),
        causal=draw(st.booleans()),
        block_scores=draw(st.sampled_from([None, 1, 5, 30, 200])),
        thumbs=draw(st.integers(1, 13)),
        seed=draw(st.integers(0, 9)),
    )


@given(cases())
@example(Case((3, 6, 6), 1, 1, (1, 1, 1, 6), True, 0.3, True, None, 6, 4))
def test_any_shape_mask_and_group(case: Case) -> None:
    (q, k, v), mask = case.tensors()
    how, size = {"mask": mask, "causal": case.causal}, case.thumbs
    s, p = by_hand(q, k, **how)
    tokens = torch.zeros(q.shape[:2], dtype=torch.long) if q.shape[1] == k.shape[1] else None
    got = stats(q, k, tokens, scale=SCALE, v=v, thumbs=size, block_scores=case.block_scores, **how)
    check(got, s, p, tokens, v)
    torch.testing.assert_close(pattern(q, k, scale=SCALE, **how).double(), p, atol=1e-5, rtol=0)
    assert got.thumbs is not None
    of_pattern = stats_from_pattern(p, tokens, causal=case.causal, thumbs=size)
    torch.testing.assert_close(got.thumbs.double(), of_pattern.thumbs, atol=1e-5, rtol=0)
    assert got.rows.keys() == of_pattern.rows.keys()
    for name in got.rows.keys() - {"entropy_normalised"}:
        torch.testing.assert_close(got[name].double(), of_pattern[name], atol=2e-5, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "row", "expected"),
    [
        (torch.float32, [0.0, -4999.0, -5000.0], [True, True, False]),  # so far below the largest no score comes
        (torch.float32, [-4e9, -4e9], [True, True]),
        (torch.float32, [-5e29, -5e29], [False, False]),  # all of them hidden, by half of what hides a key
        (torch.float32, [-1e30, -1e30], [False, False]),
        (torch.float16, [-30000.0, -30000.0], [True, True]),
        (torch.float16, [-40000.0, -40000.0], [False, False]),  # by the lowest number of its type, once halved
    ],
)
def test_what_a_row_sees_is_read_from_its_scores(dtype: torch.dtype, row: list[float], expected: list[bool]) -> None:
    assert visible(torch.tensor([row], dtype=dtype))[0].tolist() == expected
