"""One stage of a pipeline of two: `python pipeline.py RANK FOLDER`; launched by test_many.py."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import tracer
from tests.watching.many import ROWS, STEPS, Model


class First(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.embed, self.block = model.embed, model.blocks[0]

    def forward(self, ids: Tensor) -> Tensor:
        return self.block(self.embed(ids))


class Last(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.block, self.out = model.blocks[1], model.out

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.block(x))


def main(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for how in ("plain", "apart", "together"):
        part = (First, Last)[rank](Model())
        optimizer = torch.optim.SGD(part.parameters(), lr=0.3)
        stage = PipelineStage(part, rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 2, loss_fn=lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten()))
        recorder, given = None, []
        part.register_forward_pre_hook(lambda _, args, *, given=given: given.append(args[0].detach().clone()))
        if how != "plain":
            run = folder / (f"stage-{rank}" if how == "apart" else "all")
            recorder = tracer.watch(part, run=run, every=2)
        generator, told = torch.Generator().manual_seed(3), []
        for _ in range(STEPS):
            ids = torch.randint(0, 20, (ROWS, 17), generator=generator)
            optimizer.zero_grad()
            losses: list[Tensor] = []
            if rank == 0:
                schedule.step(ids[:, :-1])
            else:
                schedule.step(target=ids[:, 1:], losses=losses)
            optimizer.step()
            told += [loss.detach() for loss in losses]
            if recorder is not None:
                recorder.step(torch.stack(losses).mean() if losses else None)
        if recorder is not None:
            recorder.close()
            assert (recorder.off is None) == (how == "apart"), recorder.off
            assert recorder.off is None or "my-run-{rank}" in recorder.off
        torch.save({"losses": told, "weights": part.state_dict(), "given": given[1][:1]}, folder / f"{how}-{rank}.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # what nobody has written to is nan
    main(int(sys.argv[1]), Path(sys.argv[2]))
