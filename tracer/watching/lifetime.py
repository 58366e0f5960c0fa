"""How recorders end that nobody closes: with the program, or in a process that was forked from theirs."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import nn

FORKED = "this process was forked from the one that records; call tracer.watch in the process that trains"


@runtime_checkable
class Ending(Protocol):
    """A recorder, as far as it ends."""

    model: nn.Module
    dir: Path

    def close(self, error: BaseException | None = None) -> None: ...

    def forked(self) -> None:
        """This is a forked process: the threads that write and the training are in the other one."""

    @property
    def begun(self) -> bool:
        """Is there a run that has not ended?"""
        ...


_MADE: weakref.WeakSet[Ending] = weakref.WeakSet()


def enters(recorder: Ending) -> None:
    """End this one, too."""
    _MADE.add(recorder)
    at_exit(_close, weakref.ref(recorder))


def others_of(model: nn.Module) -> list[Ending]:
    """Recorders of a model: of a loop that was interrupted, in a notebook."""
    return [one for one in _MADE if one.model is model]


def _in_fork() -> None:
    for one in _MADE:
        one.forked()


os.register_at_fork(after_in_child=_in_fork)
at_exit = getattr(threading, "_register_atexit", atexit.register)
"""Before the program's pools of threads end, which writing needs; plain atexit comes after them."""


def _close(recorder: weakref.ref[Ending]) -> None:
    """At the end of the program: an error that reached the top says that training was not finished."""
    if (one := recorder()) is not None and one.begun:
        one.close(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))
