"""Head statistics and largest logits on the second device, against the CPU's and against float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.gpu.place import CPU, Place, off
from benchmarks.gpu.table import Line, at_most
from tracer.heads import pattern, stats
from tracer.heads.row_maxima import row_maxima
from tracer.heads.views import lse, thumbnail

FLOAT32 = 1e-5
"""Relative to float64: sums of up to 1,024 float32 numbers, in any order, err by a few 1e-7."""
PEAKED = 1e-4
"""Where scores reach 50, a float32 score errs by 50 * 6e-8, and so does the weight, relatively."""


@dataclass(frozen=True)
class Case:
    """Shapes and data of one call: q and k, tokens that repeat, maybe a mask; always random, never zeros."""

    name: str
    batch: int
    pos: int
    head: int
    kv_head: int
    d_head: int
    sharp: float = 1.0
    masked: bool = False
    half: bool = False
    bound: float = FLOAT32


CASES = (
    Case("12 heads, 1,024 tokens", 1, 1024, 12, 12, 64),
    Case("8 heads on 2 key heads, 300 tokens", 2, 300, 8, 2, 64),
    Case("a mask, short rows", 4, 96, 4, 4, 32, masked=True),
    Case("scores up to 50", 2, 512, 4, 4, 64, sharp=8.0, bound=PEAKED),
    Case("q and k in bfloat16", 2, 512, 8, 8, 64, half=True),
)
SMALL = (Case("4 heads on 2 key heads, 20 tokens", 2, 20, 4, 2, 8), Case("a mask", 2, 12, 4, 4, 8, masked=True))


def heads(place: Place) -> Iterator[Line]:
    generator = torch.Generator().manual_seed(0)
    for case in SMALL if place.small else CASES:
        yield from _case(place, case, generator)
    yield from _views(place, generator)


def _case(place: Place, case: Case, generator: torch.Generator) -> Iterator[Line]:
    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q = random(case.batch, case.pos, case.head, case.d_head) * case.sharp
    k, v = (random(case.batch, case.pos, case.kv_head, case.d_head) for _ in range(2))
    if case.half:
        q, k, v = (x.bfloat16() for x in (q, k, v))
    tokens = torch.randint(max(4, case.pos // 4), (case.batch, case.pos), generator=generator)
    mask = None
    if case.masked:
        mask = torch.rand(case.batch, 1, case.pos, case.pos, generator=generator) > 0.3
        mask[0, :, -3:] = False  # rows that see no key at all

    def asked(device: torch.device, dtype: torch.dtype | None = None):
        a, b, c = (x.to(device, dtype or x.dtype) for x in (q, k, v))
        m = None if mask is None else mask.to(device)
        scale = case.d_head**-0.5
        found = stats(a, b, tokens.to(device), scale=scale, mask=m, v=c, thumbs=8)
        return found, row_maxima(a, b, scale=scale, mask=m)

    (ours, most), (theirs, _), (exact, exactly) = asked(place.device), asked(CPU), asked(CPU, torch.float64)
    errors = {name: off(x, exact[name]) for name, x in ours.rows.items()}
    of_cpu = max(off(x, exact[name]) for name, x in theirs.rows.items())
    worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else float("inf"))
    line = at_most(f"{len(errors)} statistics, {case.name}, off float64", errors[worst], case.bound)
    yield Line(line.what, f"{line.figure} ({worst}); the CPU {of_cpu:.2g}", line.wanted, line.holds)
    assert ours.z is not None and ours.thumbs is not None and exact.z is not None and exact.thumbs is not None
    finite = exact.lse.isfinite().to(CPU)
    others = {
        "z": off(ours.z, exact.z), "thumbnails": off(ours.thumbs, exact.thumbs),
        "normalisers": off(ours.lse.cpu()[finite], exact.lse[finite]),
        "largest logit of a head": off(ours.max_logit, exact.max_logit),
        "largest logit of a row": off(most.cpu()[finite], exactly[finite]),
    }  # fmt: skip
    worst = max(others, key=lambda name: others[name] if others[name] == others[name] else float("inf"))
    line = at_most(
        f"outputs, thumbnails, normalisers, largest logits, {case.name}, off float64", others[worst], case.bound
    )
    yield Line(line.what, f"{line.figure} ({worst})", line.wanted, line.holds)


def _views(place: Place, generator: torch.Generator) -> Iterator[Line]:
    n = 64 if place.small else 4096
    q, k = (torch.randn(n, 64, generator=generator) for _ in range(2))

    def asked(device: torch.device, dtype: torch.dtype) -> Tensor:
        a, b = q.to(device, dtype), k.to(device, dtype)
        return thumbnail(a, b, lse(a, b, scale=0.125), 64, "max", scale=0.125)

    found = asked(place.device, torch.float32)
    yield at_most(
        f"thumbnail of a pattern of {n:,} tokens, off float64", off(found, asked(CPU, torch.float64)), FLOAT32
    )
    few = slice(n // 2, n // 2 + 8)
    a, b = (x[None, :, None] for x in (q, k))
    rows = pattern(a[:, few].to(place.device), b.to(place.device), scale=0.125, causal=False)
    exact = pattern(a[:, few].double(), b.double(), scale=0.125, causal=False)
    yield at_most("rows of a pattern, off float64", off(rows, exact), FLOAT32)
