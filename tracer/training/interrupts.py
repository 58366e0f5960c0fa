"""Stopping cleanly: a first Ctrl-C asks, and all processes stop after the same step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from accelerate import PartialState


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM only sets what this yields to True; the second one is the usual interrupt."""
    asked = False  # no Event: one that is set in a handler waits for itself where a second signal comes meanwhile

    def is_asked() -> bool:
        return asked

    if threading.current_thread() is not threading.main_thread():
        yield is_asked
        return

    def ask(number: int, _: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(number, old[signal.Signals(number)])

    old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield is_asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def processes() -> PartialState:
    """Those that a launcher started together, or this one alone."""
    from accelerate import PartialState

    return PartialState(cpu=not torch.cuda.is_available())


def one_process(what: str) -> None:
    """ValueError where a launcher has started several."""
    if (n := processes().num_processes) > 1:
        raise ValueError(f"{what} works in one process: start it without `accelerate launch` (here are {n})")


def any_process(asked: bool) -> bool:
    """Has any process been asked to stop? All must stop after the same step, or the others wait for ever."""
    from accelerate import PartialState
    from accelerate.utils import reduce

    state = PartialState()
    if state.num_processes == 1:
        return asked
    return bool(reduce(torch.tensor(float(asked), device=state.device), "sum") > 0)
