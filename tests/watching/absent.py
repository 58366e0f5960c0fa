"""One of two processes, of which at first only one calls `tracer.watch`, then both, then the other one:
`python absent.py RANK FOLDER`, by test_many.py."""

import json
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import tracer
from tests.watching.many import Model, laid_out
from tracer.watching import ranks

PATIENCE = 1.0


def main(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    told = {}
    for layout, watching in (("ddp", (0,)), ("ddp", (0, 1)), ("ddp", (1,)), ("fsdp2", (1,)), ("fsdp2", (0, 1))):
        patience = PATIENCE if len(watching) < 2 else 120  # who is expected may be slow
        ranks.PATIENCE, ranks.SOON = timedelta(seconds=patience), timedelta(seconds=patience / 5)
        model, _ = laid_out(layout, Model(), 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        dist.barrier()
        name = "-".join((layout, *map(str, watching)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            recorder = tracer.watch(model, run=folder / name, every=1) if rank in watching else None
            dist.barrier()
            for _ in range(2):
                ids = torch.randint(0, 20, (8, 17))
                loss = model(ids[:, :-1], ids[:, 1:])[1]
                loss.backward()
                optimizer.step()
                if recorder is not None:
                    recorder.step(loss)
            if recorder is not None:
                recorder.close()
                said = [str(one.message) for one in caught if "manyeyes" in str(one.message)]
                told[name] = {"off": recorder.off, "said": said}
        dist.barrier()
    (folder / f"told-{rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]), Path(sys.argv[2]))
