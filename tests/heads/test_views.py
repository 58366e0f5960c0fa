"""Pictures and windows against the pattern itself."""

import math
from typing import Literal

import pytest
import torch
from einops import rearrange
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tiers import quick
from tracer.heads import crop, pattern, stats, thumbnail
from tracer.heads.tiles import MAX_CPU_SCORES
from tracer.heads.views import lse
from tracer.pictures.payload import max_pool

SCALE = 0.3


def heads(n: int, m: int, head: int = 2, d: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n + m)
    return torch.randn(head, n, d, generator=generator), torch.randn(head, m, d, generator=generator)


def whole(q: torch.Tensor, k: torch.Tensor, causal: bool, mask: torch.Tensor | None = None) -> torch.Tensor:
    q, k = (rearrange(x, "head pos d -> 1 pos head d") for x in (q, k))
    return pattern(q.double(), k.double(), scale=SCALE, causal=causal, mask=mask)[0]


def block_means(p: torch.Tensor, size: int) -> torch.Tensor:
    f, g = (-(-n // size) for n in p.shape[-2:])
    rows = [part.split(g, -1) for part in p.split(f, -2)]
    return torch.stack([torch.stack([cell.mean((-2, -1)) for cell in row], -1) for row in rows], -2)


def padding(n: int) -> torch.Tensor:
    """The first third of the keys hidden: early causal rows see none."""
    return (torch.arange(n) >= n // 3).view(1, n)


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("n", "size"),
    quick([(1, 1), (7, 3), (64, 64), (300, 64), (513, 512), (1000, 7), (2048, 512)], {(1, 1), (7, 3), (300, 64)}),
)
def test_thumbnail(n: int, size: int, pool: Literal["max", "mean"], causal: bool, masked: bool) -> None:
    q, k = heads(n, n, 1 if n > 1000 else 2)
    mask = padding(n) if masked else None
    p = whole(q, k, causal, mask)
    got = thumbnail(
        q, k, lse(q, k, scale=SCALE, causal=causal, mask=mask), size, pool, scale=SCALE, causal=causal, mask=mask
    )
    want = torch.from_numpy(max_pool(p.numpy(), size)[0]) if pool == "max" else block_means(p, size)
    torch.testing.assert_close(got.double(), want.double(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("n", "m", "size"), [(30, 50, 8), (50, 30, 8), (3, 200, 20)])
@pytest.mark.parametrize("causal", [True, False])
def test_thumbnail_of_a_rectangle(n: int, m: int, size: int, causal: bool) -> None:
    q, k = heads(n, m)
    p, normaliser = whole(q, k, causal), lse(q, k, scale=SCALE, causal=causal)
    f, g = (-(-x // size) for x in (n, m))
    blocks = [[cell.amax((-2, -1)) for cell in part.split(g, -1)] for part in p.split(f, -2)]
    largest = torch.stack([torch.stack(row, -1) for row in blocks], -2)
    pools: dict[Literal["max", "mean"], torch.Tensor] = {"max": largest, "mean": block_means(p, size)}
    for pool, want in pools.items():
        got = thumbnail(q, k, normaliser, size, pool, scale=SCALE, causal=causal)
        torch.testing.assert_close(got.double(), want, atol=1e-6, rtol=1e-5)


def test_mean_cells_sum_to_the_rows() -> None:
    q, k = heads(200, 200)
    got = thumbnail(q, k, lse(q, k, scale=SCALE), 50, "mean", scale=SCALE)
    torch.testing.assert_close(got.sum(-1) * 4, torch.ones(2, 50))


WINDOWS = [
    (slice(None), slice(None)),
    (slice(0, 10), slice(20, 40)),
    (slice(100, 140), slice(90, 120)),
    (slice(250, None), slice(None, 30)),
    (slice(-3, None), slice(-5, -1)),
    (slice(5, 5), slice(0, 4)),
]


@pytest.mark.parametrize(("rows", "cols"), WINDOWS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_crop(rows: slice, cols: slice, causal: bool, masked: bool) -> None:
    q, k = heads(300, 300)
    mask = padding(300) if masked else None
    got = crop(
        q, k, lse(q, k, scale=SCALE, causal=causal, mask=mask), rows, cols, scale=SCALE, causal=causal, mask=mask
    )
    torch.testing.assert_close(got.double(), whole(q, k, causal, mask)[:, rows, cols], atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_one_head_of_half_precision(dtype: torch.dtype) -> None:
    q, k = (x[0].to(dtype) for x in heads(40, 40))
    want = whole(q[None], k[None], True)[0]
    normaliser = lse(q, k, scale=SCALE)
    assert normaliser.shape == (40,)
    got = crop(q, k, normaliser, slice(None), slice(None), scale=SCALE)
    torch.testing.assert_close(got.double(), want, atol=1e-6, rtol=0)
    torch.testing.assert_close(thumbnail(q, k, normaliser, 40, "max", scale=SCALE).double(), want, atol=1e-6, rtol=0)


def test_a_mask_of_each_head() -> None:
    q, k = heads(20, 20)
    mask = torch.randn(2, 20, 20, generator=torch.Generator().manual_seed(0))
    normaliser = lse(q, k, scale=SCALE, mask=mask)
    got = thumbnail(q, k, normaliser, 20, "mean", scale=SCALE, mask=mask)
    torch.testing.assert_close(got.double(), whole(q, k, True, mask), atol=1e-6, rtol=0)
    window = crop(q, k, normaliser, slice(3, 9), slice(2, 7), scale=SCALE, mask=mask)
    torch.testing.assert_close(window, got[:, 3:9, 2:7], atol=1e-6, rtol=0)


def test_a_mask_of_keys_alone() -> None:
    q, k = heads(20, 20)
    mask = torch.arange(20) >= 4
    got = crop(q, k, lse(q, k, scale=SCALE, mask=mask), slice(5, 9), slice(2, 7), scale=SCALE, mask=mask)
    torch.testing.assert_close(got.double(), whole(q, k, True, mask)[:, 5:9, 2:7], atol=1e-6, rtol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_lse_is_that_of_the_statistics(masked: bool) -> None:
    q, k = heads(150, 150)
    mask = padding(150) if masked else None
    side_by_side = [rearrange(x, "head pos d -> 1 pos head d") for x in (q, k)]
    want = stats(*side_by_side, scale=SCALE, mask=mask).lse[0]
    got = lse(q, k, scale=SCALE, mask=mask)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    assert got[0, 10].item() == (-math.inf if masked else pytest.approx(want[0, 10].item()))


def test_a_picture_needs_a_size() -> None:
    q, k = heads(4, 4)
    with pytest.raises(ValueError, match="0 cells"):
        thumbnail(q, k, torch.zeros(2, 4), 0, "max", scale=1.0)


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
    q, k = heads(2048, 2048, 1)
    normaliser = lse(q, k, scale=SCALE)
    for pool in ("max", "mean"):
        with LargestTensor() as seen:
            thumbnail(q, k, normaliser, 64, pool, scale=SCALE)
        assert seen.bytes <= 4 * MAX_CPU_SCORES < 4 * 2048 * 2048
