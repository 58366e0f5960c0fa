"""What goes wrong in a recorder is said once, and never reaches the training: then it is off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from tracer.watching.entrance import Entrance
from tracer.watching.pace import Pace


class RecorderGuard:
    """Around everything that a recorder does while somebody's training runs."""

    def __init__(
        self, entrance: Entrance, pace: Pace, may_wait: Callable[[str], bool], ends: Callable[[str, bool], None]
    ) -> None:  # fmt: skip
        """`may_wait`: this went wrong; does it wait until other processes are told? `ends`: the recorder, for this
        reason; may hooks of optimisers be removed?"""
        self._entrance, self._pace, self._may_wait, self._ends = entrance, pace, may_wait, ends
        self.off: str | None = None
        """Why nothing is recorded any more; None while all is well."""

    @contextlib.contextmanager
    def safely(self, in_hook: bool = False) -> Iterator[None]:
        """`in_hook`: an optimiser is going through its hooks, of which none may be removed now."""
        try:
            yield
        except Exception as error:
            if self.off is not None:  # what fails after the first trouble fails for it
                return
            why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            if not self._may_wait(why):
                self.switch_off(why, detach=not in_hook and self._entrance.of_one)

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """What is measured of an update."""
        with self.safely(in_hook=True), self._pace.timed(), torch.no_grad():
            yield

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """What is looked at in a training pass."""
        with self.safely(in_hook=True), self._pace.looks(), torch.no_grad():
            yield

    def switch_off(self, why: str, detach: bool = True) -> None:
        if self.off is None:  # the first reason counts
            self.off = why
            self._ends(why, detach)
