"""All statistics of all heads from q and k, against explicit patterns and against plain attention without statistics.

Plain causal attention costs 2 T^2 d FLOPs a head for scores and values each, half of it masked. Statistics need the
scores only, so their floor is half of plain attention; their memory is one block of scores (1 MB), where the patterns
are 4 T^2 bytes a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.measure import in_turn, ratio
from tracer.heads import stats

SHAPES = ((32, 64, 4, 32), (1, 256, 12, 64), (1, 1024, 12, 64), (1, 4096, 1, 64))


def explicit(q: torch.Tensor, k: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
    """What peers do: the pattern of every head at once, then reductions of it."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    entropy = torch.special.entr(pattern).sum(-1)
    return entropy, pattern.amax(-1), pattern.diagonal(dim1=-2, dim2=-1), pattern.diagonal(-1, -2, -1), pattern[..., 0]


def main() -> None:
    torch.set_num_threads(1)
    print("\nhead statistics, one CPU thread: wall time as a ratio")
    print(f"{'batch pos head d_head':>24}  {'ms':>8}  {'explicit / ours':>16}  {'ours / plain attention':>22}")
    for batch, pos, head, d_head in SHAPES:
        q, k, v = (torch.randn(batch, pos, head, d_head) for _ in range(3))
        scale = d_head**-0.5
        heads_first = [t.transpose(1, 2) for t in (q, k, v)]
        times = in_turn(
            {
                "ours": lambda: stats(q, k, scale=scale),  # noqa: B023 - used within the loop
                "explicit": lambda: explicit(q, k, scale),  # noqa: B023
                "plain": lambda: F.scaled_dot_product_attention(*heads_first, is_causal=True),  # noqa: B023
            },
            rounds=9 if pos < 4096 else 5,
        )
        milliseconds = 1000 * min(times["ours"])
        slower, share = ratio(times["explicit"], times["ours"]), ratio(times["ours"], times["plain"])
        print(f"{f'{batch} {pos} {head} {d_head}':>24}  {milliseconds:8.2f}  {slower:16.2f}  {share:22.2f}")
