"""torch.compile and a recorder in every order: recorded, or refused before the first update; the graphs stay."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule
from transformers import Trainer, TrainingArguments, set_seed

import tracer
from tests.watching.loops import batches
from tracer.presets import preset
from tracer.store import open_run
from tracer.training.job import prepare

CALL = OptimizedModule.__call__
ORDERS = [
    "watch compile", "compile watch", "compile watch-it", "compile call watch", "watch in-place", "in-place watch",
    "in-place call watch", "watch regions", "regions watch", "watch replaced", "replaced watch", "watch call compile",
    "watch call in-place", "watch compile in-place", "watch in-place compile",
]  # fmt: skip
REFUSED = ["watch function", "function watch"]


class Counts:
    """The backend "eager", and how many graphs it was given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, _inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


def train(gpt: Callable[..., Any], order: str, run: str | None, **how: Any) -> tuple[Any, Any, list[Tensor], int]:
    """The model, its recorder, the loss of every step, and how many graphs were compiled."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, counts, recorder = gpt(dropout=0.0), Counts(), None
    called: Any = model
    how = {"backend": counts, **how}
    data = [(batch[:, :-1], batch[:, 1:]) for batch in batches(4)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for act in order.split():
        if act in ("watch", "watch-it") and run is not None:
            recorder = tracer.watch(called if act == "watch-it" else model, run=run, every=1)
        if act == "compile":
            called = torch.compile(model, **how)
        if act == "in-place":
            model.compile(**how)
        if act == "regions":
            for block in model.h:
                block.compile(**how)
        if act == "replaced":
            for i, block in enumerate(model.h):
                model.h[i] = torch.compile(block, **how)
        if act == "function":
            called = torch.compile(lambda *args: model(*args), **how)
        if act == "call":
            called(*data[0])
    losses = []
    for x, y in data:
        loss = called(x, y)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if recorder is not None:
            recorder.step()
    if recorder is not None:
        recorder.close()
    return model, recorder, losses, counts.graphs


def left_on(model: nn.Module) -> list[Any]:
    """Whatever somebody who watched could have forgotten on a model."""
    found: list[Any] = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    found += [name for m in model.modules() for name in ("forward", "compile", "__call__") if name in vars(m)]
    found += [p for p in model.parameters() if p._post_accumulate_grad_hooks or p._backward_hooks]
    return found if OptimizedModule.__call__ is CALL else [*found, OptimizedModule]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # by dynamo itself
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_recorded(here: Path, gpt: Callable[..., Any], order: str) -> None:
    """In one graph: whatever of ours dynamo met and could not trace would be an error."""
    plain, _, expected, graphs = train(gpt, order, None, fullgraph=True)
    model, recorder, losses, graphs_then = train(gpt, order, "r", fullgraph=True)
    assert recorder.off is None and graphs_then == graphs >= 1 and left_on(model) == left_on(plain)
    assert torch.equal(torch.stack(losses), torch.stack(expected))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    run = open_run("r")
    assert run.trace["step"].values.tolist() == [0, 1, 2, 3, 4] and run.status == "finished"
    assert run.about.layers == ("h.0.attn", "h.1.attn")
    assert not any("_orig_mod" in name for name in run.trace["param"].values.tolist())
    np.testing.assert_array_equal(run.trace["train_loss"][:-1], torch.stack(expected).numpy())


@pytest.mark.parametrize("order", REFUSED)
def test_what_cannot_be_heard_is_refused_before_the_first_update(
    here: Path, gpt: Callable[..., Any], order: str
) -> None:
    """The call is inside of a compiled function, which nothing can look into."""
    plain, _, expected, _ = train(gpt, order, None)
    with pytest.warns(RuntimeWarning, match=r"Compile the model instead: torch.compile\(model\)"):
        model, recorder, losses, _ = train(gpt, order, "r")
    assert (
        recorder.steps == 0 and recorder.off and left_on(model) == left_on(plain) and not Path("checkpoints").exists()
    )
    assert all(torch.equal(a, b) for a, b in zip(losses, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_a_sample_does_not_hide_that_no_call_is_heard(here: Path, gpt: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    model = gpt(dropout=0.0)
    called: Any = torch.compile(lambda *args: model(*args), backend="eager")
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1), tracer.watch(model, run="r", every=1)
    with torch.no_grad():
        model(torch.zeros(2, 5, dtype=torch.long))
    with pytest.warns(RuntimeWarning, match=r"Compile the model instead: torch.compile\(model\)") as said:
        for batch in batches(4):
            loss = called(batch[:, :-1], batch[:, 1:])[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    recorder.close()
    assert len(said) == 1 and recorder.steps == 1 and recorder.off and not Path("checkpoints").exists()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Of several, gradients that inductor's code adds up come in the order in which threads arrive."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "how", [{"backend": "aot_eager"}, {"backend": "cudagraphs"}, {"backend": "inductor", "mode": "reduce-overhead"}],
    ids=lambda how: how["backend"],
)  # fmt: skip
@pytest.mark.parametrize("order", ["watch compile", "in-place watch"])
@pytest.mark.filterwarnings("ignore")  # of the compilers
@pytest.mark.usefixtures("one_thread")
def test_with_compilers_that_make_code(here: Path, gpt: Callable[..., Any], how: dict[str, Any], order: str) -> None:
    plain, _, expected, _ = train(gpt, order, None, **how)
    model, recorder, losses, _ = train(gpt, order, "r", **how)
    assert recorder.off is None and left_on(model) == left_on(plain)
    assert all(torch.equal(a, b) for a, b in zip(losses, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    trace = open_run("r").trace
    np.testing.assert_array_equal(trace["train_loss"][:-1], torch.stack(expected).numpy())
    assert np.isfinite(trace["grad_norm"][:-1]).all() and (trace["clip_factor"][:-1] == 1).all()


def test_a_copy_made_while_watched_compiles_itself(gpt: Callable[..., Any], here: Path) -> None:
    import copy

    model = gpt(dropout=0.0)
    recorder = tracer.watch(model, run="r")
    twin, counts = copy.deepcopy(model), Counts()
    twin.compile(backend=counts)
    x = torch.zeros(2, 5, dtype=torch.long)
    assert torch.equal(twin(x)[0], gpt(dropout=0.0)(x)[0]) and counts.graphs == 1
    assert model._compiled_call_impl is None and recorder.probing is None
    recorder.close()
    assert left_on(model) == left_on(gpt(dropout=0.0))


def test_trainer_that_compiles(here: Path, build: Callable[..., Any]) -> None:
    found = []
    rows = torch.randint(2, 50, (16, 12), generator=torch.Generator().manual_seed(0))
    recorded: Any = tracer.TrainerCallback("hf", every=1)
    for callbacks in ([], [recorded]):
        torch._dynamo.reset()
        set_seed(7)
        model = build("gpt2", attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
        args = TrainingArguments(
            "out", max_steps=4, per_device_train_batch_size=4, report_to=[], save_strategy="no", torch_compile=True,
            logging_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-2,
            torch_compile_backend="aot_eager",
        )  # fmt: skip
        data: Any = [{"input_ids": row, "labels": row} for row in rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Trainer(model, args, train_dataset=data, callbacks=callbacks).train()
        found.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    trace = open_run("hf").trace
    assert trace["step"].values.tolist() == [0, 1, 2, 3, 4] and np.isfinite(trace["train_loss"][:-1]).all()
    # What it asked of Accelerate holds for the whole process; ours is compiled where its own configuration says so.
    job = prepare(replace(preset("induction").config, device="cpu"))
    asked: Any = AcceleratorState().dynamo_plugin
    assert asked.backend == "AOT_EAGER" and job.model is job.raw
