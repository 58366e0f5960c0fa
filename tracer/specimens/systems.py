"""A system that a tutorial builds: what it changes, what its author saw, and what its author asks of the reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracer.config.field_docs import fields_in_help
from tracer.store import Run


@fields_in_help
@dataclass(frozen=True)
class Check:
    """One thing that an exercise asks for."""

    asks: str
    """In a line."""
    answer: str
    """What came out, in numbers."""
    holds: bool | None = None
    """None: a question without a right answer."""


@fields_in_help
@dataclass(frozen=True)
class Exercise:
    """An exercise that was run."""

    checks: tuple[Check, ...]
    """In the order in which they are asked."""
    pattern: np.ndarray
    """[head query_pos key_pos] on the input, before any training."""
    strings: tuple[str, ...]
    """The input, a token each."""


@fields_in_help
@dataclass(frozen=True)
class System:
    """One system of a paper that is told as a story, on a card of its own on the page Papers."""

    name: str
    """That of its run; of a preset, where there is nothing to train."""
    title: str
    """In a few words."""
    changed: str
    """What is different from the one before."""
    expects: str
    """What to look for while it trains."""
    published: str
    """What its author saw, in his units."""
    finding: str = ""
    """What it shows, in a sentence, as a claim that may turn out otherwise; else its title stands there."""
    perplexity: float | None = None
    """Published held-out perplexity at the end."""
    entropy: tuple[float | None, float] | None = None
    """Published mean row entropy at the start, where it was, and at the end, in nats over all rows."""
    heads: tuple[tuple[float, ...], ...] = ()
    """Published entropies at the end, [layer][head]; of the first layers, where not all were."""
    loss: float | None = None
    """Published training loss, where no perplexity was."""
    n_params: int | None = None
    """Parameters as published, which follow from the shapes."""
    cure: str = ""
    """What repairs it, and which system does."""
    exercise: Callable[[], Exercise] | None = None
    """Checks that its author asks for and that need no trained run."""
    answers: Callable[[Sequence[Mapping[str, Run]]], Sequence[Check]] | None = None
    """What trained runs, {name: tracer.Run} of each seed, say to its author's questions; none of none."""
