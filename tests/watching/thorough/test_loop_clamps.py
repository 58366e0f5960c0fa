"""Clamps in loops of Hugging Face models, of both kernels and with grouped keys."""

from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tests.interventions.test_own_clamps import HERE, halved, previous
from tests.watching.conftest import GPT, family
from tests.watching.test_loop_clamps import Recomputed, held, train, update
from tests.watching.test_own_transformer import CONFIG
from tracer.store.schema import problem
from tracer.watching.recorder import LoopRecorder


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_other_heads_keep_the_models_own_kernel(name: str, here: Path) -> None:
    """Of both kernels, and grouped keys: the same gradients as where the model makes its pattern itself."""
    found = []
    for kernel in ("sdpa", "eager"):
        model = family(name, kernel)
        train(model, kernel, 1, held({"L0H1": previous, "L1H2": halved}))
        found.append([p.grad for p in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)  # gradients of order 1, of two kernels in float32


def test_what_holds_now_is_said(here: Path) -> None:
    model = tracer.Transformer(CONFIG, seed=4)

    def loop(recorder: LoopRecorder, step: int) -> None:
        if step in (1, 3):
            recorder.clamp({"L0H1": previous} if step == 1 else ())

    run = train(model, "mine", 4, loop)
    assert run.meta["clamp"] == [f"L0H1 = {HERE}:previous 1:3"] and problem(run.meta) == ""
    assert (run.trace["previous_token"].sel(layer=0, head=1) == 1).values.tolist() == [False, False, True, True, False]
    again = train(model, "mine", 2, held("L1 off"), start_step=4)
    assert again.meta["clamp"] == [f"L0H1 = {HERE}:previous 1:3", "L1 off 4:"]
    assert "clamp" in problem({**run.meta, "clamp": ["L0H1 of"]})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("L2H0 off", r"clamp 'L2H0 off': this model has layers 0 to 1$"),
        ("L1H2 off", r"clamp 'L1H2 off': this model has layers 0 to 1, and layer 1 has heads 0 to 1$"),
        ("L0H1 previous", "in a loop of your own a head is off, or a function gives its pattern or z"),
        ("L0H1 off 0:0", "is never held"),
        ({"L0H1": lambda head: head.pattern * 2}, "rows that do not sum to 1, such as 2 in row 0"),
        ({"L0H1": lambda head: head.pattern.flip(-1)}, "weights on tokens that come after the query"),
    ],
)
def test_what_cannot_be_held_is_an_error_of_the_loop(given: Any, words: str, here: Path) -> None:
    model = tracer.Transformer(CONFIG)
    recorder = tracer.watch(model, run="mine", every=1)
    with pytest.raises(ValueError, match=words):
        recorder.clamp(given)
        model(torch.randint(20, (8, 12)))
    recorder.close()


def test_recomputed_passes_and_compiled_models_are_refused(here: Path) -> None:
    recorder = tracer.watch(model := Recomputed(), run="mine", every=1)
    recorder.clamp("L0H1 off")
    with pytest.raises(ValueError, match="train it without activation checkpointing"):
        model(torch.randint(20, (8, 12)))
    recorder.close()
    compiled: Any = torch.compile(GPT(), backend="eager")
    recorder = tracer.watch(compiled, run="compiled", every=1)
    with pytest.raises(ValueError, match=r"no clamp can be held: .*compile"):
        compiled(torch.randint(20, (8, 12)))
        recorder.clamp("L0H1 off")
    recorder.close()
    torch.compiler.reset()


def test_a_clamp_that_goes_on_is_one_window(here: Path) -> None:
    model = tracer.Transformer(CONFIG)
    run = train(model, "mine", 4, lambda recorder, step: recorder.clamp("L0H1 off" if step != 2 else "L1H0 off"))
    assert run.meta["clamp"] == ["L0H1 off 0:2", "L1H0 off 2:3", "L0H1 off 3:"]


def test_a_clamp_of_no_head_before_the_first_pass_ends_that_pass_and_not_the_recording(here: Path) -> None:
    model = tracer.Transformer(CONFIG, seed=4)
    recorder = tracer.watch(model, run="mistyped", every=1)
    recorder.clamp("L0H9 off")
    ids = torch.randint(20, (8, 12))
    with pytest.raises(ValueError, match="clamp 'L0H9 off': this model has layers 0 to 1, and layer 0 has heads"):
        model(ids)
    recorder.clamp("L0H1 off")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        update(model, optimizer, step)
        recorder.step()
    recorder.close()
    run = tracer.open_run(recorder.dir)
    assert recorder.off is None and run.trace["step"].values.tolist() == [0, 1, 2, 3]
    assert run.meta["clamp"] == ["L0H1 off"]
