"""One process of a training under FSDP2 of which another dies, or of the job that goes on with it:
`python dying.py begin RANK WORLD WHO_DIES FOLDER`, then `go-on`; launched by test_many.py."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

import tracer
from tests.watching.many import ROWS, STEPS, Model, laid_out

DIES_AT = 4


def main(job: str, rank: int, world: int, dies: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/{job}-meet", rank=rank, world_size=world)
    plain, first = Model(), DIES_AT if job == "go-on" else 0
    if first:
        plain.load_state_dict(torch.load(folder / "state.pt"))
    model, parts = laid_out("fsdp2", plain, world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    recorder = tracer.watch(model, run=folder / "run", every=2, max_logits="every", start_step=first or None)
    generator = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        batch = torch.randint(0, 20, (ROWS, 17), generator=generator)
        if step < first:
            continue
        if job == "begin" and step == DIES_AT:
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
            if rank == 0:
                torch.save(state, folder / "state.pt")
                assert recorder.probing is not None and recorder.probing.writer is not None
                recorder.probing.writer.flush()  # rows are written together, every 2 s; these steps take none
                recorder.probing.writer.wait()
            dist.barrier()
            if rank == dies:
                os.kill(os.getpid(), signal.SIGKILL)
        mine = batch.chunk(parts)[rank * parts // world]
        optimizer.zero_grad()
        loss = model(mine[:, :-1], mine[:, 1:])[1]
        loss.backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(0.5)
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    job, rank, world, dies, folder = sys.argv[1:]
    main(job, int(rank), int(world), int(dies), Path(folder))
