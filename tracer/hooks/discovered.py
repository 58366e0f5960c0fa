"""What was found so far of the attentions of a model, and the edits that are meant for that model alone."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tracer.hooks.sites import Key, Layer, Place, arrange
from tracer.interventions.edits import Edit
from tracer.interventions.own_clamps import OwnClamp


@dataclass
class DiscoveredAttention:
    """What was found so far: attentions in order, and the rows of heads that they make."""

    keys: list[Key] = field(default_factory=list)
    kinds: dict[Key, Layer] = field(default_factory=dict)
    beside: set[Key] = field(default_factory=set)
    places: dict[Key, Place] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    single: set[Key] = field(default_factory=set)
    """Those with fewer queries than keys, or than positions, that turned out to be no block of a larger one."""
    problems: list[str] = field(default_factory=list)
    checked: set[Key] = field(default_factory=set)
    softmaxes: set[str] = field(default_factory=set)
    """Modules in which something that could be a pattern was made, whatever became of it."""
    lost: list[str] = field(default_factory=list)
    """What a person declared to be attention (`tracer.attends`), of which nothing came, and why."""
    blind: bool = False
    """Was there a forward pass of tensors without values?"""
    _last_input: Any = None

    def add(self, key: Key, layer: Layer, x: Any) -> None:
        self.keys.append(key)
        if isinstance(x, Tensor):
            if self._last_input is not None and self._last_input() is x:
                self.beside.add(key)
            self._last_input = weakref.ref(x)
        self.revise(key, layer)

    def revise(self, key: Key, layer: Layer) -> None:
        """Say what an attention is; once more, where only its first block of queries had come."""
        self.kinds[key] = layer
        self.places, self.layers = arrange(self.keys, self.kinds, self.beside)

    def problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


_EDITS: ContextVar[tuple[tuple[DiscoveredAttention, tuple[Edit, ...]], ...]] = ContextVar(
    "manyeyes_watched", default=()
)


@contextmanager
def editing(found: DiscoveredAttention, edits: Iterable[Edit]) -> Iterator[None]:
    """Edits of this model alone: others that run inside the block, in this thread, have layers and heads too."""
    token = _EDITS.set((*_EDITS.get(), (found, tuple(edits))))
    try:
        yield
    finally:
        _EDITS.reset(token)


Held = Callable[[], Sequence[OwnClamp]]
"""Clamps that are held now."""
_HELD: ContextVar[tuple[tuple[DiscoveredAttention, Held], ...]] = ContextVar("manyeyes_held", default=())


@contextmanager
def holding(found: DiscoveredAttention, held: Held) -> Iterator[None]:
    """Clamps of this model alone: asked at each of its attentions, in this thread."""
    token = _HELD.set((*_HELD.get(), (found, held)))
    try:
        yield
    finally:
        _HELD.reset(token)


@contextmanager
def unedited() -> Iterator[None]:
    """Inside, as outside of every `editing` and `holding`: for passes that are nobody's but the caller's."""
    tokens = _EDITS.set(()), _HELD.set(())
    try:
        yield
    finally:
        _EDITS.reset(tokens[0])
        _HELD.reset(tokens[1])


def held_of(found: DiscoveredAttention) -> list[OwnClamp]:
    """The clamps of `holding` that are in force here for this model."""
    return [clamp for other, held in _HELD.get() if other is found for clamp in held()]


def edits_of(found: DiscoveredAttention) -> list[Edit]:
    """The edits of `editing` that are in force here for this model."""
    return [edit for other, edits in _EDITS.get() if other is found for edit in edits]
