"""A model that several threads run while it is recorded: none of them breaks or waits."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tracer
from tracer.store import open_run
from tracer.watching.watcher import Watcher

IDS = torch.zeros(2, 5, dtype=torch.long)


def elsewhere(work: Callable[[], Any]) -> None:
    """In a thread of its own, which has ended when this returns; what it raises is raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="another")
    thread.start()
    thread.join()
    for error in raised:
        raise error


def test_one_thread_after_another_may_train(here: Path, gpt: Callable[..., Any]) -> None:
    """As `asyncio.to_thread` does it: every step is made in whichever thread is free."""
    model = gpt()
    recorder = tracer.watch(model, run="r", every=1)
    for _ in range(3):
        elsewhere(lambda: (model(IDS), recorder.step(0.5)))
    recorder.close()
    assert recorder.off is None and open_run("r").trace["step"].values.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("grad", [False, True])
def test_a_pass_of_another_thread_ends_within_one_that_is_looked_at(
    here: Path, gpt: Callable[..., Any], grad: bool
) -> None:
    model, looked = gpt(), []
    recorder = tracer.watch(model, run="r", every=1, max_logits="every")
    model(IDS)
    recorder.step(0.5)

    def beside(*_: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            with torch.set_grad_enabled(grad):
                looked.append(recorder._largest._thread)
                elsewhere(lambda: model(IDS))

    gate = model.h[0].register_forward_hook(beside)
    model(IDS)
    gate.remove()
    recorder.step(0.5)
    assert looked == [threading.get_ident()] and recorder.off is None
    assert recorder.max_logits is not None and recorder.max_logits.isfinite().all()
    recorder.close()


def test_a_step_of_another_thread_within_a_pass_that_is_looked_at(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    recorder = tracer.watch(model, run="r", every=5, max_logits="every")
    model(IDS)
    recorder.step(0.5)
    gate = model.h[0].register_forward_hook(lambda *_: elsewhere(lambda: recorder._largest.of_step()))
    model(IDS)
    gate.remove()
    recorder.step(0.5)
    assert recorder.off is None
    recorder.close()


def test_who_calls_the_model_while_it_is_measured_does_not_wait(here: Path, gpt: Callable[..., Any]) -> None:
    """Else `on_record`, say, could never wait for a thread that runs the model."""
    model, told = gpt(), []
    recorder = tracer.watch(
        model, run="r", every=1, on_record=lambda *_: told.append(elsewhere(lambda: model(IDS)))
    )  # fmt: skip
    for _ in range(2):
        model(IDS)
        recorder.step(0.5)
    recorder.close()
    assert len(told) == 3 and recorder.off is None and open_run("r").trace.sizes["step"] == 3


def test_a_pass_of_another_thread_begins_while_hooks_are_put_in(
    gpt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gpt().eval()
    watcher = Watcher(model, keep=1)
    attach = watcher.sites.attach
    monkeypatch.setattr(watcher.sites, "attach", lambda *given: (attach(*given), elsewhere(lambda: model(IDS)))[0])
    with torch.no_grad(), watcher:
        model(IDS)
    assert watcher.read()["entropy"].notnull().all()
