"""When the next measurement of somebody's training is due, by what recording costs."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

import torch

from tracer.tracking.clock import Clock

NEVER = 1 << 62


class Pace(Clock):
    """Measurements and looks at training passes share `share` of the training time, half each; who asks for them at
    certain steps (`every`, every pass) gets them there, whatever they cost.
    """

    def __init__(self, share: float, every: int | None, stretch: tuple[int, int] | None = None) -> None:
        """`stretch`: the first and the last step at which anything is due, and there it is at each `every`-th."""
        super().__init__(torch.device("cpu"))
        self.share, self.every, self.stretch = share, every, stretch
        self.looking = 0.0
        """Seconds of recording that were spent on looking at passes."""
        self.checking = 0.0
        """And on whether the numbers of an update are finite."""
        self._last = self._pass = 0.0

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """One whole measurement."""
        before = self.seconds
        with self.timed():
            yield
        self.records += 1
        if self.records == 1:
            self.setup += self.seconds - before
        else:
            self._last = self.seconds - before

    @contextlib.contextmanager
    def looks(self) -> Iterator[None]:
        """A part of a look at a training pass."""
        began = time.perf_counter()  # no waiting for a GPU in the middle of a pass: there it is what launching takes
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds, self.looking, self._pass = self.seconds + took, self.looking + took, self._pass + took

    def may_look(self) -> bool:
        """May the pass that begins now be looked at?"""
        may = self.looking + self._pass <= self.share / 2 * self.training
        self._pass = 0.0 if may else self._pass
        return may

    @contextlib.contextmanager
    def checks(self) -> Iterator[None]:
        """One reading of an update's numbers."""
        began = time.perf_counter()  # of a GPU what launching takes: that it finishes its work is no cost of recording
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds, self.checking = self.seconds + took, self.checking + took

    def may_check(self, cost: float) -> bool:
        """May so many seconds go into reading all numbers of this update? A quarter of `share` pays for them."""
        return self.checking + cost <= self.share / 4 * self.training

    def due(self, step: int, last: int) -> bool:
        """Is a measurement due at this step? The last one was made at `last`; of the steps between, some may not have
        been counted one by one."""
        if self.stretch is not None:
            return self._next_in(self.stretch, last) <= step <= self.stretch[1]
        if self.every is not None:  # and at 1, 2, 4, ...
            early = step < self.every and step.bit_length() > last.bit_length()
            return early or step // self.every > last // self.every
        return self._spent + self._last <= self.share * self.training

    def next_after(self, step: int, steps: int) -> int:
        """The step of the next measurement, told in advance, of processes that must agree; `steps` were made."""
        if self.stretch is not None:
            return at if (at := self._next_in(self.stretch, step)) <= self.stretch[1] else NEVER
        if self.every is not None:
            return next(n for n in range(step + 1, step + self.every + 1) if self.due(n, step))
        wait = (self._spent + self._last) / self.share - self.training
        return step + max(1, math.ceil(wait * steps / max(self.training, 1e-9)))

    def _next_in(self, stretch: tuple[int, int], last: int) -> int:
        """The first step of a stretch, after `last`, at which something is due; the stretch ends with one."""
        (first, end), every = stretch, self.every or 1
        if last < first:
            return first
        return min(first + ((last - first) // every + 1) * every, end if last < end else end + 1)

    @property
    def _spent(self) -> float:
        """On measurements, with no more of the looks than their half."""
        looking = min(self.looking, self.share / 2 * self.training)
        return self.seconds - self.looking - self.setup + looking + self.writing()
