"""What a model would say next: the likeliest tokens, each with its probability as a bar, and its loss on the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from numpy.typing import ArrayLike

from tracer.pictures.payload import visible
from tracer.pictures.picture import Picture, as_json

TOP = 5
LONGEST = 24
"""Characters of a token."""
HEIGHT = 34


class Guesses(NamedTuple):
    """At one step."""

    words: Sequence[str]
    """The likeliest tokens, the likeliest first, as their own text."""
    shares: ArrayLike
    """Their probabilities, [word]."""
    loss: float
    """Nats a token on the text; nan of one token."""


def picture(now: Guesses, before: Guesses | None = None, *, quiet: bool = False) -> Picture:
    """`before`: the same tokens with all heads on, where some are off; `quiet`: the loss is said elsewhere.

    While a film plays that has guesses, those of its step stand there.
    """
    cue = {
        "words": words_of(now.words),
        "shares": as_json(now.shares),
        "before": None if before is None else as_json(before.shares),
        "loss": as_json(now.loss),
        "was": None if before is None else as_json(before.loss),
        "quiet": quiet,
    }
    return Picture("guesses", cue, height=HEIGHT)


def words_of(strings: Sequence[str]) -> list[str]:
    """Tokens as they are shown."""
    return [visible(text, LONGEST) for text in strings]
