"""One process of two that DeepSpeed trains: `python zero.py STAGE RANK PORT FOLDER`; launched by test_many.py."""

import os
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist

import tracer
from tests.watching.many import ROWS, STEPS, Model


def main(stage: int, rank: int, folder: Path) -> None:
    deepspeed.init_distributed("gloo")
    for recorded in (False, True):
        model = Model()
        config = {
            "train_micro_batch_size_per_gpu": ROWS // 2, "gradient_clipping": 1.0,
            "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        }  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        recorder = tracer.watch(engine, run=folder / "run", every=2, max_logits="every") if recorded else None
        generator, losses = torch.Generator().manual_seed(3), []
        for _ in range(STEPS):
            batch = torch.randint(0, 20, (ROWS, 17), generator=generator).chunk(2)[rank]
            loss = engine(batch[:, :-1], batch[:, 1:])[1]
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach().clone())
            if recorder is not None:
                recorder.step(loss)
        if recorder is not None:
            recorder.close()
            assert recorder.off is None, recorder.off
        with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        if rank == 0:
            told = {"losses": losses, "weights": weights}
            torch.save(told, folder / f"{'recorded' if recorded else 'plain'}.pt")
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": sys.argv[2], "LOCAL_RANK": sys.argv[2], "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": sys.argv[3], "DS_ACCELERATOR": "cpu",
    }  # fmt: skip
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[4]))
