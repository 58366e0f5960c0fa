"""Memory on the device against its formula.

Statistics hold, beside q and k: a copy of each in float32; two tiles of scores; of each row of each head the sums of a
pass and the statistics, ROWS numbers at most while the last are made. Explicit patterns hold 4 T^2 bytes a head, and as
much again for each step from scores to entropies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.gpu.place import Place
from benchmarks.gpu.table import Line
from benchmarks.heads import explicit
from tracer.ablate import BUDGET, sweep
from tracer.config import ModelConfig
from tracer.heads import stats
from tracer.heads.tiles import budget, tiles
from tracer.model import Transformer

ROWS = 32
"""Numbers a row: nine sums, eight or more statistics, and what is between them."""
SPARE = 1.1
"""The allocator gives out whole blocks, and a reduction takes some for itself."""


def peak(place: Place, call: Callable[[], object]) -> float:
    """MB that a call takes at most, over what was held before it."""
    call()  # handles and workspaces of libraries stay from the first call on
    torch.cuda.empty_cache()
    place.wait()
    before = torch.cuda.memory_allocated(place.device)
    torch.cuda.reset_peak_memory_stats(place.device)
    call()
    place.wait()
    return (torch.cuda.max_memory_allocated(place.device) - before) / 1e6


def formula(q: Tensor) -> float:
    """MB of `stats`, by the docstring above."""
    batch, pos, head, _ = q.shape
    largest = tiles(batch, head, 1, pos, pos, budget(pos, q.device)).largest
    return 4e-6 * (2 * q.numel() + 2 * largest + ROWS * batch * head * pos)


def memory(place: Place) -> Iterator[Line]:
    place.need_cuda("memory of the device")
    for pos in (1024, 4096, 16384):
        q, k = torch.randn(2, 1, pos, 12, 64, device=place.device).unbind()
        found, bound = peak(place, lambda q=q, k=k: stats(q, k, scale=0.125)), SPARE * formula(q)
        patterns = 4e-6 * 12 * pos**2
        yield Line(f"statistics of 12 heads, {pos:,} tokens, MB", f"{found:.0f}; patterns alone {patterns:,.0f}",
                   f"at most {bound:.0f}", found <= bound)  # fmt: skip
        if pos <= 4096:
            theirs = peak(place, lambda q=q, k=k: explicit(q, k, 0.125))
            yield Line(f"explicit patterns of 12 heads, {pos:,} tokens, MB", f"{theirs:,.0f}")
    config = ModelConfig(n_layers=4, n_heads=8, d_model=512, n_ctx=256, d_vocab=8192, mlp_hidden=(2048,))
    model = Transformer(config).eval().to(place.device)
    tokens = torch.randint(config.d_vocab or 0, (32, 256), device=place.device)
    found, bound = peak(place, lambda: sweep(model, tokens)), SPARE * (BUDGET + 4 * 33 * tokens.numel()) / 1e6
    yield Line(
        "sweep of 32 heads over 32 x 256 tokens, MB", f"{found:.0f}", f"at most its budget, {bound:.0f}", found <= bound
    )
