"""All statistics of all heads from q and k, against explicit patterns and against plain attention without statistics.

A product of queries with keys, or of weights with values, costs 2 d_head FLOPs a visible score, of which a causal head
has T (T + 1) / 2. Statistics need one product, attention two. Ours computes up to 128 hidden scores a row on top, which
are not counted. Memory: a tile of scores (1 or 2 MB) twice, and a copy of q and k; patterns are 4 T^2 bytes a head.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import in_turn, ratio
from tracer.heads import crop, stats, thumbnail
from tracer.heads.tiles import MAX_ROWS
from tracer.heads.views import lse

SHAPES = ((32, 64, 4, 32), (1, 256, 12, 64), (1, 1024, 12, 64), (1, 2048, 12, 64), (1, 4096, 4, 64))
ROUNDS = {64: 30, 256: 30, 1024: 9, 2048: 5, 4096: 3}


def explicit(q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, ...]:
    """What peers do: the pattern of every head at once, then reductions of it."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    pattern = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    entropy = torch.special.entr(pattern).sum(-1)
    position = torch.arange(q.shape[1], dtype=q.dtype, device=q.device)
    distance = position - pattern @ position
    current, previous = pattern.diagonal(dim1=-2, dim2=-1), pattern.diagonal(-1, -2, -1)
    return entropy, pattern.amax(-1), current, previous, pattern[..., 0], distance


def one_head_at_a_time(q: Tensor, k: Tensor, scale: float) -> list[tuple[Tensor, ...]]:
    """The same with one pattern in memory."""
    return [explicit(q[:, :, [h]], k[:, :, [h]], scale) for h in range(q.shape[2])]


def contenders(
    batch: int, pos: int, head: int, d_head: int, device: torch.device | None = None
) -> dict[str, Callable[[], object]]:
    q, k, v = (torch.randn(batch, pos, head, d_head, device=device) for _ in range(3))
    queries, keys, values = (t.transpose(1, 2) for t in (q, k, v))
    scale = d_head**-0.5
    left, right = (torch.randn(8, n, d_head, device=device) for n in (min(MAX_ROWS, pos), pos))
    out = left @ right.mT
    return {
        "ours": lambda: stats(q, k, scale=scale),
        "with z": lambda: stats(q, k, scale=scale, v=v),
        "explicit": lambda: explicit(q, k, scale),
        "one by one": lambda: one_head_at_a_time(q, k, scale),
        "plain": lambda: F.scaled_dot_product_attention(queries, keys, values, is_causal=True),
        "product": lambda: torch.bmm(left, right.mT, out=out),
    }


def speed() -> None:
    print("\nhead statistics, one CPU thread: medians of ratios of wall time; GF/s beside the bare product of one tile")
    columns = ("ours ms", "explicit/ours", "one by one/ours", "ours/plain", "(ours with z)/plain")
    print(
        f"{'batch pos head d_head':>24}" + "".join(f"{name:>21}" for name in columns) + f"{'GF/s ours, z, product':>24}"
    )
    for batch, pos, head, d_head in SHAPES:
        seconds = in_turn(contenders(batch, pos, head, d_head), ROUNDS[pos])
        numbers = (
            1000 * min(seconds["ours"]),
            ratio(seconds["explicit"], seconds["ours"]),
            ratio(seconds["one by one"], seconds["ours"]),
            ratio(seconds["ours"], seconds["plain"]),
            ratio(seconds["with z"], seconds["plain"]),
        )
        visible = batch * head * pos * (pos + 1) / 2
        flops = {"ours": visible, "with z": 2 * visible, "product": 8 * min(MAX_ROWS, pos) * pos}
        rates = [2e-9 * d_head * count / min(seconds[name]) for name, count in flops.items()]
        shares = [rate / rates[-1] for rate in rates[:-1]]
        print(
            f"{f'{batch} {pos} {head} {d_head}':>24}" + "".join(f"{number:21.2f}" for number in numbers)
            + f"   {rates[0]:.0f} ({shares[0]:.0%}), {rates[1]:.0f} ({shares[1]:.0%}), {rates[2]:.0f}"
        )  # fmt: skip


def peak_growth(call: str, pos: int) -> float:
    """MB by which one call raises the peak of a fresh process that already holds its inputs."""
    code = f"""
import resource, torch
from benchmarks.heads import explicit
from tracer.heads import stats
torch.set_num_threads(1)
q, k = torch.randn(2, 1, {pos}, 12, 64).unbind()
{call.replace("q, k", "q[:, :64], k[:, :64]")}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = {call}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    # through a shell, because a process inherits the peak of the one that it was forked from
    command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * unit / 2**20


def memory() -> None:
    print("\nMiB of memory that one call adds to a process with 12 heads of q and k, its copies and results included")
    ours, all_heads = "stats(q, k, scale=0.125)", "explicit(q, k, 0.125)"
    for name, call, pos in (("ours", ours, 1024), ("explicit", all_heads, 1024), ("ours", ours, 8192)):
        print(f"{name:>24}  T = {pos:5}  {peak_growth(call, pos):8.0f}")


def pictures() -> None:
    pos, size = 16384, 512
    q, k = torch.randn(2, pos, 64).unbind()
    normaliser = lse(q, k, scale=0.125)
    window = slice(10000, 10256), slice(5000, 5256)
    seconds = in_turn(
        {
            "lse": lambda: lse(q, k, scale=0.125),
            "thumbnail 512, max": lambda: thumbnail(q, k, normaliser, size, "max", scale=0.125),
            "thumbnail 512, mean": lambda: thumbnail(q, k, normaliser, size, "mean", scale=0.125),
            "crop 256 x 256": lambda: crop(q, k, normaliser, *window, scale=0.125),
        },
        rounds=3,
    )
    print(f"\npictures of one head, T = {pos}, one CPU thread: ms")
    for name, times in seconds.items():
        print(f"{name:>24}  {1000 * min(times):8.2f}")


def main() -> None:
    torch.set_num_threads(1)
    speed()
    memory()
    pictures()
