"""What `tracer.watch(model, run=...)` costs trainings that several processes share, CPU and gloo: one process, FSDP2
over two, tensor parallel over two. In each process two copies of the model take steps in turn, one of them watched.

A record costs each process one pass without gradients of the few kept sequences and one all-gather of one vector;
`share` bounds the time of both, by default to 1 % of the training's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tracer

LAYOUTS = {"one": 1, "fsdp2": 2, "tp": 2}
D_MODEL, N_HEADS, N_LAYERS, N_CTX, BATCH, D_VOCAB = 256, 8, 2, 128, 4, 512
BLOCK, BLOCKS = 10, 12
"""Steps in a row of one copy, before the other has its turn; and how often."""
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.q, self.k, self.v, self.o = (nn.Linear(D_MODEL, D_MODEL) for _ in range(4))
        self.up, self.down = nn.Linear(D_MODEL, 4 * D_MODEL), nn.Linear(4 * D_MODEL, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        h = self.ln_1(x)
        q, k, v = (f(h).unflatten(-1, (-1, D_MODEL // N_HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(D_VOCAB, D_MODEL), nn.Embedding(N_CTX, D_MODEL)
        self.h = nn.ModuleList([Block() for _ in range(N_LAYERS)])
        self.lm_head = nn.Linear(D_MODEL, D_VOCAB)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), targets.flatten())


def laid_out(layout: str, world: int, device: str) -> Any:
    torch.manual_seed(0)
    model = GPT().to(device)
    mesh = dist.device_mesh.init_device_mesh(device, (world,))
    if layout == "tp":
        columns, rows = ("q", "k", "v", "up"), ("o", "down")
        parts: Any = {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows}
        for block in model.h:
            parallelize_module(block, mesh, parts)
    if layout == "fsdp2":
        for block in model.h:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


class Training:
    def __init__(self, layout: str, world: int, run: Path | None, device: str) -> None:
        self.model = laid_out(layout, world, device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, foreach=False)
        self.recorder = None if run is None else tracer.watch(self.model, run=run)
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def block(self, batches: list[Tensor]) -> None:
        dist.barrier()
        began = time.perf_counter()
        for tokens in batches:
            loss = self.model(tokens[:, :-1], tokens[:, 1:])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(float(loss))
            if self.recorder is not None:
                self.recorder.step(loss)
        dist.barrier()
        self.seconds.append(time.perf_counter() - began)


def process(layout: str, rank: int, world: int, folder: Path, device: str) -> None:
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(BACKENDS[device], init_method=f"file://{folder}/{layout}-meet", rank=rank, world_size=world)
    bare, watched = Training(layout, world, None, device), Training(layout, world, folder / layout, device)
    for i in range(1 + BLOCKS):
        generator = torch.Generator().manual_seed(i if layout == "tp" else i * world + rank)
        batches = [torch.randint(D_VOCAB, (BATCH, N_CTX + 1), generator=generator).to(device) for _ in range(BLOCK)]
        for training in (bare, watched) if i % 2 else (watched, bare):
            training.block(batches)
    assert watched.recorder is not None and watched.recorder.off is None and watched.losses == bare.losses
    began = time.perf_counter()
    watched.recorder.close()
    closing = time.perf_counter() - began
    if rank == 0:
        meta = tracer.open_run(folder / layout).meta
        told = {"bare": bare.seconds, "watched": watched.seconds, "closing": closing, "cost": meta["cost"],
                "records": len(tracer.open_run(folder / layout).trace["step"])}  # fmt: skip
        (folder / f"{layout}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def run(layout: str, world: int, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """What rank 0 tells, once all have ended well."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.processes", layout]
    ranks = [subprocess.Popen([*command, str(rank), str(world), str(folder), device]) for rank in range(world)]
    assert [rank.wait() for rank in ranks] == [0] * world
    return json.loads((folder / f"{layout}.json").read_text())


def ratios_of(told: dict[str, Any]) -> list[float]:
    """Watched over bare, block by block but for the first, sorted."""
    return sorted(a / b for a, b in zip(told["watched"][1:], told["bare"][1:], strict=True))


def main() -> None:
    print(
        f"\ntrainings over several processes, one CPU thread each: {N_LAYERS} x {N_HEADS} heads, width {D_MODEL}, "
        f"{BATCH} x {N_CTX} tokens a process; {BLOCKS} x {BLOCK} steps of each copy in turn; losses equal to the bit"
    )
    print(
        "layout  processes  step ms  watched / bare (median, quartiles of blocks)  by its own clock  records  first s"
    )
    with tempfile.TemporaryDirectory() as folder:
        for layout, world in LAYOUTS.items():
            told = run(layout, world, Path(folder))
            ratios = ratios_of(told)
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            print(
                f"{layout:>6}  {world:>9}  {1000 * median(told['bare'][1:]) / BLOCK:>7.1f}  "
                f"{median(ratios):.3f} ({low:.3f} to {high:.3f}){'':>20}  {told['cost']['recording_share']:>7.2%}"
                f"  {told['records']:>7}  {told['watched'][0] - told['bare'][0]:>7.2f}"
            )


if __name__ == "__main__":
    layout, rank, world, folder, device = sys.argv[1:]
    process(layout, int(rank), int(world), Path(folder), device)
