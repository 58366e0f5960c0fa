"""`tracer.watch` of others' models: under each of torch's attention kernels, in bfloat16, compiled with CUDA graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import tracer
from benchmarks.gpu.place import CPU, Place, off
from benchmarks.gpu.table import Line, NotHere, at_most
from benchmarks.gpu.training import early_losses
from benchmarks.processes import BATCH, D_VOCAB, GPT, N_CTX

KERNELS = {
    "flash": (SDPBackend.FLASH_ATTENTION, (torch.bfloat16,)),
    "cuDNN": (SDPBackend.CUDNN_ATTENTION, (torch.bfloat16,)),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, (torch.bfloat16, torch.float32)),
    "math": (SDPBackend.MATH, (torch.bfloat16, torch.float32)),
}
BOUNDS = {torch.bfloat16: 1e-2, torch.float32: 1e-5}
"""Relative, of statistics against the CPU's in float32: bfloat16 keeps 8 bits of q and k."""
NAMES = ("entropy", "confidence", "first_token", "previous_token", "current_token", "attended_distance", "max_logit")


def batches(n: int, device: torch.device) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(D_VOCAB, (BATCH, N_CTX + 1), generator=generator).to(device) for _ in range(n)]


def gpt(device: torch.device) -> GPT:
    torch.manual_seed(0)
    return GPT().to(device)


def precision(device: torch.device, dtype: torch.dtype) -> Any:
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


def kernels(place: Place) -> Iterator[Line]:
    (rows,) = batches(1, CPU)
    model = gpt(CPU).eval()
    with torch.no_grad(), tracer.watch(model) as seen:
        model(rows[:, :-1], rows[:, 1:])
    theirs = seen.arrays(NAMES)
    model, rows = gpt(place.device).eval(), rows.to(place.device)
    for name, (backend, dtypes) in KERNELS.items():
        if place.small and name != "math":
            continue
        for dtype in dtypes:
            called = f"{name} kernel, {str(dtype).removeprefix('torch.')}"
            with torch.no_grad(), sdpa_kernel(backend), precision(place.device, dtype):
                try:
                    plain = model(rows[:, :-1], rows[:, 1:])
                except RuntimeError as error:
                    if "No available kernel" not in str(error):
                        raise
                    yield Line(f"the {called}", "this torch has none for this GPU")
                    continue
                with tracer.watch(model) as seen:
                    watched = model(rows[:, :-1], rows[:, 1:])
                ours = seen.arrays(NAMES)
            yield Line(f"loss under the {called}, watched", f"{float(watched - plain):.1g} off", "to the bit",
                       bool(watched == plain))  # fmt: skip
            worst = max(off(ours[measure], theirs[measure]) for measure in NAMES)
            yield at_most(f"its {len(NAMES)} statistics, off the CPU's in float32", worst, BOUNDS[dtype])


@dataclass
class Trained:
    losses: Tensor
    weights: list[Tensor]
    recorder: Any


def trained(place: Place, name: str | None, dtype: torch.dtype, compiled: dict[str, Any] | None, steps: int) -> Trained:
    """A training loop of somebody else's, recorded where it has a name."""
    torch._dynamo.reset()
    model = gpt(place.device)
    call: Callable[..., Tensor] = model if compiled is None else torch.compile(model, **compiled)
    recorder = None if name is None else tracer.watch(model, run=place.out / "runs" / name, every=5)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for rows in batches(steps, place.device):
        with precision(place.device, dtype):
            loss = call(rows[:, :-1], rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())  # a CUDA graph writes its next loss into the same memory
        if recorder is not None:
            recorder.step(loss)
    if recorder is not None:
        recorder.close()
    return Trained(torch.stack(losses).float().cpu(), [p.detach().cpu() for p in model.parameters()], recorder)


def _recorded(
    place: Place, what: str, name: str, dtype: torch.dtype, compiled: dict[str, Any] | None
) -> Iterator[Line]:
    """Losses with a recorder, without, and without again: kernels may add in another order each time."""
    steps = 6 if place.small else 30
    bare, again, watched = (trained(place, run, dtype, compiled, steps) for run in (None, None, name))
    records = 0 if watched.recorder.off else watched.recorder.steps
    yield Line(
        f"{what}: records", f"{records} updates heard", f"{steps}", not watched.recorder.off and records == steps
    )
    own, ours = (float((one.losses - bare.losses).abs().max()) for one in (again, watched))
    wanted = "to the bit" if own == 0 else f"at most 10 x {own:.1g}, which two bare ones differ by"
    yield Line(f"{what}: losses with and without a recorder", f"{ours:.1g} apart", wanted, ours <= 10 * own)


def watching(place: Place) -> Iterator[Line]:
    yield from _recorded(place, "a loop in bfloat16", "loop-bf16", torch.bfloat16, None)
    yield from _recorded(place, "a loop in float32", "loop-float32", torch.float32, None)


def compiled(place: Place) -> Iterator[Line]:
    how = {"backend": "aot_eager"} if place.small else {"mode": "reduce-overhead"}
    called = "aot_eager" if place.small else "CUDA graphs"
    yield from _recorded(place, f"compiled, {called}", "loop-graphs", torch.bfloat16, how)
    if place.small:
        raise NotHere("`tracer train --optim.compile` is not compiled at test size")
    config = place.precise(place.config("induction"))
    eager = early_losses(config, 20)
    fused = early_losses(replace(config, optim=replace(config.optim, compile=True)), 20)
    apart = max(abs(a - b) / b for a, b in zip(fused, eager, strict=True))
    yield at_most("`tracer train --optim.compile`, losses off the uncompiled, relative", apart, 1e-3)


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """float32 products on tensor cores, with 10 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def fast_float32(place: Place) -> Iterator[Line]:
    """Statistics where a user has switched TF32 on: theirs is the choice, so the figure decides nothing."""
    from tracer.heads import stats

    place.need_cuda("TF32")
    q, k = torch.randn(2, 1, 512, 8, 64, generator=torch.Generator().manual_seed(1)).unbind()
    with tf32():
        ours = stats(q.to(place.device), k.to(place.device), scale=0.125)
    exact = stats(q.double(), k.double(), scale=0.125)
    worst = max(off(ours[name], exact[name]) for name in exact.rows)
    yield Line("statistics with TF32 switched on, off float64", f"{worst:.2g}")
