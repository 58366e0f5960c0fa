"""Several processes that train one model: one record, the numbers of one process, and the training as it was."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import children
from tests.watching.many import Model
from tracer.store import open_run
from tracer.watching.watcher import Watcher

ROOT = Path(__file__).parents[2]
NOT_BY_HEAD = ("head_grad_norm", "head_grad_norm_clipped", "head_weight_norm", "head_update_ratio", "step_ms")


def launch(layout: str, world: int, folder: Path) -> Path:
    """The run that these processes recorded, once all have ended well."""
    end_well("many.py", [[layout, str(rank), str(world), str(folder)] for rank in range(world)])
    return folder / f"{layout}-{world}".replace(" ", "-")


def end_well(script: str, arguments: list[list[str]]) -> None:
    """A process for each list of arguments."""
    processes = [
        children.start(
            [sys.executable, "-W", "ignore::RuntimeWarning", str(Path(__file__).with_name(script)), *given],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for given in arguments
    ]  # fmt: skip
    outputs = [process.communicate(timeout=500)[0] for process in processes]
    assert {process.returncode for process in processes} == {0}, outputs


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launch("one", 1, tmp_path_factory.mktemp("one"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "world"),
    [("ddp", 2), ("fsdp1", 2), ("fsdp2", 4), ("fsdp2 offload", 2), ("fsdp2 bf16", 2), ("tp", 2), ("fsdp2+tp", 4)],
)
def test_several_processes_record_what_one_does(tmp_path: Path, one: Path, layout: str, world: int) -> None:
    run, alone = open_run(launch(layout, world, tmp_path)), open_run(one)
    for rank in range(world):  # the losses of each process are those of a training that nobody records
        plain, recorded = (torch.load(tmp_path / f"{layout}-{world}-{rank}-{who}.pt") for who in (False, True))
        assert torch.equal(plain, recorded)
    assert run.status == "finished" and run.meta["processes"] == world and run.meta["layers"] == alone.meta["layers"]
    found, expected = run.trace.load(), alone.trace.load()
    assert found["step"].values.tolist() == expected["step"].values.tolist() == [0, 1, 2, 4, 6]
    near: dict[str, Any] = {"rtol": 2e-2, "atol": 1e-2} if layout == "fsdp2 bf16" else {"rtol": 1e-3, "atol": 1e-4}
    unseen = {"grad_norm", "clip_factor"} if layout == "fsdp1" else set()  # its gradients come by no hook
    for name in set(expected.data_vars) - {*unseen, *(NOT_BY_HEAD if layout != "ddp" else ["step_ms"])}:
        np.testing.assert_allclose(found[name], expected[name], err_msg=name, **near)
    assert run.updates is not None and alone.updates is not None
    np.testing.assert_allclose(run.updates["train_loss"], alone.updates["train_loss"], **near)
    largest = [torch.load(folder / f"{name}-largest.pt") for folder, name in ((tmp_path, f"{layout}-{world}"),
                                                                           (one.parent, "one-1"))]  # fmt: skip
    torch.testing.assert_close(*largest, **near)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_s_engine(tmp_path: Path, stage: int) -> None:
    """`DS_BUILD_OPS=0 pip install deepspeed` first: it is built where it is installed, and so in no lock file."""
    pytest.importorskip("deepspeed", reason="not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    end_well("zero.py", [[str(stage), str(rank), port, str(tmp_path)] for rank in range(2)])
    plain, recorded = (torch.load(tmp_path / f"{who}.pt") for who in ("plain", "recorded"))
    torch.testing.assert_close(recorded, plain, rtol=0, atol=0)
    run = open_run(tmp_path / "run")
    last = run.trace.load().isel(step=-1)
    assert run.status == "finished" and run.meta["processes"] == 2 and run.meta["class"] == "Model"
    assert run.meta["n_params"] == sum(x.numel() for x in plain["weights"].values())
    for name, x in plain["weights"].items():
        assert float(last["weight_norm"].sel(param=name)) == pytest.approx(float(x.norm()), rel=1e-5)
    model = Model()
    model.load_state_dict(plain["weights"])
    with Watcher(model) as watcher, torch.no_grad():
        model(*run.probe().values())
    np.testing.assert_allclose(last["entropy"], watcher.arrays(("entropy",))["entropy"], atol=1e-5)
    assert last["grad_norm"].isnull().all() and last["learning_rate"].isnull()  # its engine tells nobody


@pytest.mark.slow
def test_each_stage_of_a_pipeline_records_its_own_layers(tmp_path: Path) -> None:
    end_well("pipeline.py", [[str(rank), str(tmp_path)] for rank in range(2)])
    for rank in range(2):
        plain, apart, together = (torch.load(tmp_path / f"{how}-{rank}.pt") for how in ("plain", "apart", "together"))
        for other in (apart, together):  # one run for both is refused, and nothing of the training changes
            torch.testing.assert_close(other, plain, rtol=0, atol=0)
        run = open_run(tmp_path / f"stage-{rank}")
        trace = run.trace.load()
        assert run.status == "finished" and [layer["name"] for layer in run.meta["layers"]] == ["block.attn"]
        assert trace["step"].values.tolist() == [0, 1, 2, 4, 6] and np.isfinite(trace["entropy"]).all()
        assert run.probe()["0"].equal(apart["given"])  # and not of the call before it, for the shapes alone
        named = trace["weight_norm"].sel(param="block.attn.q.weight", step=6)
        assert float(named) == pytest.approx(float(apart["weights"]["block.attn.q.weight"].norm()), rel=1e-5)
    assert not (tmp_path / "all").exists()


@pytest.mark.slow
def test_a_process_that_does_not_watch_is_named_while_it_is_waited_for(tmp_path: Path) -> None:
    end_well("absent.py", [[str(rank), str(tmp_path)] for rank in range(2)])
    zero, one = (json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in range(2))
    assert zero["ddp-0"]["off"] is None and one["ddp-1"]["off"] is None  # the only one there is records
    assert [len(open_run(tmp_path / name).trace["step"]) for name in ("ddp-0", "ddp-1")] == [3, 3]
    for found, absent in ((zero["ddp-0"], 1), (one["ddp-1"], 0), (one["fsdp2-1"], 0)):
        assert f"waits 1 s at most for rank {absent}, where tracer.watch has not been called" in found["said"][0]
    refused = one["fsdp2-1"]["off"]
    assert "rank 0 did not call tracer.watch before the first pass: every process has to" in refused
    assert not (tmp_path / "fsdp2-1").exists()
