"""One process of trainings that several share: `python many.py RANK WORLD FOLDER LAYOUT ...`; by test_many.py."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

import tracer

STEPS, ROWS, HEADS, D = 6, 32, 4, 32


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, D // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Sums(nn.Module):
    """In place of attention: what came so far, added up."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.o = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.o(self.v(x).cumsum(1) / x.shape[1])


class Block(nn.Module):
    def __init__(self, headless: bool) -> None:
        super().__init__()
        self.ln, self.attn, self.mlp = nn.LayerNorm(D), Sums() if headless else Attention(), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln(x))
        return x + self.mlp(x).relu()


class Model(nn.Module):
    def __init__(self, headless: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.blocks = nn.Embedding(20, D), nn.ModuleList([Block(headless), Block(headless)])
        self.out = nn.Linear(D, 20)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits = self.out(x)
        return logits, F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def laid_out(layout: str, model: Any, world: int) -> tuple[Any, int]:
    """The model as this layout has it, and into how many parts a batch is cut."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def tensor_parallel(mesh: Any) -> None:
        for block in model.blocks:
            parts: Any = {f"attn.{name}": ColwiseParallel() for name in "qkv"} | {"attn.o": RowwiseParallel()}
            parallelize_module(block, mesh, parts)

    def fsdp(mesh: Any, **options: Any) -> Any:
        for block in model.blocks:
            fully_shard(block, mesh=mesh, **options)
        return fully_shard(model, mesh=mesh, **options)

    if layout.startswith("one"):
        return model, 1
    if layout.startswith("ddp"):
        return nn.parallel.DistributedDataParallel(model), world
    if layout == "fsdp1":
        mine = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
        return mine, world
    if layout == "tp":
        tensor_parallel(dist.device_mesh.init_device_mesh("cpu", (world,)))
        return model, 1
    if layout == "fsdp2+tp":
        mesh = dist.device_mesh.init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        tensor_parallel(mesh["tp"])
        return fsdp(mesh["dp"]), world // 2
    mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
    options: dict[str, Any] = {}
    if layout == "fsdp2 offload":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if layout == "fsdp2 bf16":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if layout == "fsdp2 compiled":
        for block in model.blocks:
            block.compile(backend="aot_eager")
    if layout == "fsdp2 checkpointed":
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block)
    return fsdp(mesh, **options), world


def summed_over_ranks(model: Any, now: bool) -> contextlib.AbstractContextManager[None]:
    """Gradients of a part of a batch; `now`, where it is the last one."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(now)
    elif not now and hasattr(model, "no_sync"):
        return model.no_sync()
    return contextlib.nullcontext()


def main(rank: int, world: int, folder: Path, layouts: list[str]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{world}", rank=rank, world_size=world)
    for layout in layouts:
        train(layout, rank, world, folder)
    dist.destroy_process_group()


def train(layout: str, rank: int, world: int, folder: Path) -> None:
    """Twice: as it is, and recorded."""
    passes = 2 if "accumulated" in layout else 1
    for recorded in (False, True):
        model, parts = laid_out(layout, Model("headless" in layout), world)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        recorder = None
        if recorded:
            run = folder / f"{layout}-{world}".replace(" ", "-")
            recorder = tracer.watch(model, run=run, every=2, max_logits="every")
        generator = torch.Generator().manual_seed(3)
        losses, largest = [], []
        for _ in range(STEPS):
            batch = torch.randint(0, 20, (ROWS * passes, 17), generator=generator)
            mine = batch.chunk(parts)[rank * parts // world].chunk(passes)
            optimizer.zero_grad()
            loss = torch.tensor(0.0)
            for i, rows in enumerate(mine):
                with summed_over_ranks(model, i + 1 == len(mine)):
                    part = model(rows[:, :-1], rows[:, 1:])[1] / len(mine)
                    part.backward()
                loss = loss + part.detach()
            for p in model.parameters():  # clipped by hand: torch cannot take norms of layouts that are mixed
                if p.grad is not None:
                    p.grad.mul_(0.5)
            optimizer.step()
            losses.append(loss)
            if recorder is not None:
                recorder.step(loss)
                largest.append(recorder.max_logits)
        if recorder is not None:
            recorder.close()
            assert recorder.off is None, recorder.off
            unseen = "compiled" in layout or "headless" in layout
            assert recorder.last and (largest[-1] is None) == unseen == bool(recorder.max_logits_unseen)
        torch.save(torch.stack(losses), folder / f"{layout}-{world}-{rank}-{recorded}.pt")
        if recorded and rank == 0 and largest[-1] is not None:
            torch.save(torch.stack(largest), folder / f"{layout}-{world}-largest.pt")
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
