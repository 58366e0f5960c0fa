"""Several processes that train one model: one record, the numbers of one process, and the training as it was."""

import json
import signal
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from tests import forked
from tests.watching.many import Model
from tracer.store import Run, open_run
from tracer.watching.watcher import Watcher

ROOT = Path(__file__).parents[3]
LAYOUTS = {
    1: ["one", "one accumulated", "one headless"],
    2: [
        "ddp", "ddp accumulated", "ddp headless", "fsdp1", "fsdp2 offload", "fsdp2 bf16", "fsdp2 checkpointed",
        "fsdp2 accumulated", "fsdp2 headless", "tp",
        "fsdp2 compiled",  # the last, since nothing looks into passes of a program that compiles
    ],
    4: ["fsdp2", "fsdp2+tp"],
}  # fmt: skip
COUNTED = {"unigram_loss", "bigram_loss", "copy_loss", "common_token"}
"""Each process counts the tokens of its own batches, and knows them later."""
NOT_BY_HEAD = (
    "head_grad_norm", "head_grad_norm_clipped", "head_weight_norm", "head_update_ratio", "step_ms", "future_effect",
    "unmoved", "row_effect",
)  # fmt: skip
"""Of weights in parts nobody asks."""


def end_well(script: str, arguments: list[list[str]]) -> None:
    """A process for each list of arguments."""
    codes, outputs = ended(script, arguments)
    assert set(codes) == {0}, outputs


def ended(script: str, arguments: list[list[str]]) -> tuple[list[int], list[str]]:
    """A process for each list of arguments: how each ended, and what it printed."""
    return forked.ended((str(ROOT / "tests" / "watching" / script),), arguments)


def run_of(recorded: Callable[[int], Path], layout: str, world: int) -> Run:
    return open_run(recorded(world) / f"{layout}-{world}".replace(" ", "-"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of what so many processes recorded: every layout for them, one after the other."""

    @cache
    def made(world: int) -> tuple[Path, list[int], list[str]]:
        folder = tmp_path_factory.mktemp(f"world-{world}")
        ranks = [[str(rank), str(world), str(folder), *LAYOUTS[world]] for rank in range(world)]
        return folder, *ended("many.py", ranks)

    def folder(world: int) -> Path:
        made_there, codes, outputs = made(world)
        assert set(codes) == {0}, outputs
        return made_there

    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("world", "layout"), [(world, layout) for world in (2, 4) for layout in LAYOUTS[world]])
def test_several_processes_record_what_one_does(recorded: Callable[[int], Path], world: int, layout: str) -> None:
    single = next((f"one {how}" for how in ("accumulated", "headless") if how in layout), "one")
    here, files = recorded(world), f"{layout}-{world}"
    run, alone = run_of(recorded, layout, world), run_of(recorded, single, 1)
    for rank in range(world):  # the losses of each process are those of a training that nobody records
        unwatched, watched = (torch.load(here / f"{files}-{rank}-{who}.pt") for who in (False, True))
        assert torch.equal(unwatched, watched)
    assert run.status == "finished" and run.meta["processes"] == world and run.meta["layers"] == alone.meta["layers"]
    found, expected = run.trace.load(), alone.trace.load()
    assert found["step"].values.tolist() == expected["step"].values.tolist() == [0, 1, 2, 4, 6]
    near: dict[str, Any] = {"rtol": 2e-2, "atol": 1e-2} if layout == "fsdp2 bf16" else {"rtol": 1e-3, "atol": 1e-4}
    unseen = COUNTED | ({"step_ms"} if layout.startswith("ddp") else {*NOT_BY_HEAD})
    unseen |= {"fsdp1": {"grad_norm", "clip_factor"}, "fsdp2 compiled": {"max_logit"}}.get(layout, set())
    for name in set(expected.data_vars) - unseen:  # FSDP1's gradients come by no hook
        np.testing.assert_allclose(found[name], expected[name], err_msg=name, **near)
    assert run.updates is not None and alone.updates is not None
    np.testing.assert_allclose(run.updates["train_loss"], alone.updates["train_loss"], **near)
    largest = [recorded(1) / f"{single}-1-largest.pt", here / f"{files}-largest.pt"]
    if "headless" in layout:
        assert "layer" not in found.sizes and run.about.why_not("heads") and not any(one.exists() for one in largest)
    elif layout == "fsdp2 compiled":  # nothing looks into what is compiled: of the kept sequences alone
        assert not largest[1].exists() and (found["max_logit"] <= expected["max_logit"] + 1e-4).all()
    else:
        torch.testing.assert_close(*map(torch.load, largest), **near)


@pytest.mark.slow
@pytest.mark.parametrize(("dies", "world"), [(0, 4), (1, 1)])
def test_a_process_dies_and_another_number_of_them_goes_on(
    tmp_path: Path, recorded: Callable[[int], Path], dies: int, world: int
) -> None:
    codes, outputs = ended("dying.py", [["begin", str(rank), "2", str(dies), str(tmp_path)] for rank in range(2)])
    assert codes[dies] == -signal.SIGKILL and codes[1 - dies] == 1, outputs
    left = open_run(tmp_path / "run")
    assert left.status == ("stopped" if dies else "interrupted") and left.trace["step"].values.tolist() == [0, 1, 2]
    end_well("dying.py", [["go-on", str(rank), str(world), "-1", str(tmp_path)] for rank in range(world)])
    run, alone = open_run(tmp_path / "run"), run_of(recorded, "one", 1)
    found, expected = run.trace.load(), alone.trace.load()
    assert run.status == "finished" and run.meta["processes"] == world
    assert found["step"].values.tolist() == expected["step"].values.tolist() == [0, 1, 2, 4, 6]
    for name in set(expected.data_vars) - {*NOT_BY_HEAD} - COUNTED:
        np.testing.assert_allclose(found[name], expected[name], err_msg=name, rtol=1e-3, atol=1e-4)
    assert run.updates is not None and alone.updates is not None  # that of step 3 had not been made the loss of all
    loss = alone.updates["train_loss"].sel(step=[0, 1, 2, 4, 5])
    xr.testing.assert_allclose(run.updates["train_loss"], loss, rtol=1e-3)


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
    with Watcher(model, keep=1) as watcher, torch.no_grad():
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
    for name in ("ddp-0-1", "fsdp2-0-1"):  # what only some had watched before is in nobody's way
        assert all(told[name] == {"off": None, "said": []} for told in (zero, one))
        assert open_run(tmp_path / name).meta["processes"] == 2
