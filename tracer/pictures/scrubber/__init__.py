"""The scrubber: a run's snapshots as a timeline; play or drag draws in the browser, letting go chooses the step.

Its film is every head's pattern at every step, with the loss and the measures.

Frames are uint8 codes of sqrt(share), pooled until all of them fit a budget: 4 x 4 heads at 100 snapshots and 64 tokens
are 6.6 MB and stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracer.measures.aliases import Head
from tracer.pictures import payload
from tracer.pictures.atlas import Roles
from tracer.pictures.guesses import TOP, Guesses, words_of
from tracer.pictures.payload import quantise_linear, quantise_sqrt
from tracer.pictures.picture import Picture
from tracer.pictures.scales import Scale

BUDGET = 8_000_000
"""Bytes of all frames in the browser, before they are deflated for the way there."""
REEL = 8
"""Frames of a film that is still being shot, in one piece: a new snapshot sends only the piece it is in again."""
HEIGHT = 90
"""Pixels on a wide page, with its table closed."""
NONE = 65535
"""Stands for a step that was not filmed."""


class Event(NamedTuple):
    """What happened in training: a mark on the timeline, with a few words."""

    step: float
    low: float
    """Both ends of the 95 % interval of its date."""
    high: float
    label: str
    says: str
    """The same as a sentence without its dot, where there is room."""


def picture(
    blob: bytes,
    *,
    step: int | None,
    head: Head | None = None,
    measure: str | None = None,
    scale: Scale | None = None,
    live: bool = False,
    events: Sequence[Event] = (),
    heads_off: bool = False,
) -> Picture:
    """`pack(...)`, drawn; picks a step.

    What it shows meanwhile it tells the other parts of the page (topic `frame`), which draw it; `head` and `measure`
    choose the second curve; `events`, in order, are marked. `live`: the run goes on, so its last snapshot is only the
    newest; its frames come as `reel(...)`, of which a new snapshot sends only the last one again. `heads_off`: on this
    page some are, which were on when all this was recorded.
    """
    cue = {"head": head, "measure": measure, "scale": scale.payload() if scale else None, "live": live,
           "events": [event._asdict() for event in events], "heads_off": heads_off}  # fmt: skip
    return Picture("scrubber", cue, blob, step, int, HEIGHT)


def resolution(n: int, heads: int, frames: int, budget: int = BUDGET) -> int:
    """Cells a side of a pattern of n tokens: n, or as many as whole tokens in a cell allow within the budget."""
    for factor in range(1, n + 1):
        size = -(-n // factor)
        if heads * frames * size * size <= budget:
            return size
    return 1


def codes(thumbs: ArrayLike) -> NDArray[np.uint8]:
    """A frame [layer head rows cols] as the browser holds it; a head that does not exist is dark."""
    return quantise_sqrt(thumbs)


def pack(
    steps: Sequence[int],
    frames: Mapping[int, NDArray[np.uint8]],
    loss: ArrayLike,
    measures: Mapping[str, ArrayLike],
    *,
    n: tuple[int, int],
    factors: tuple[int, int] = (1, 1),
    causal: Sequence[bool] = (),
    loss_label: str = "loss",
    reel: str = "",
    roles: Roles | None = None,
    only: Head | None = None,
    guesses: Mapping[int, Guesses] = MappingProxyType({}),
) -> bytes:
    """All steps of a timeline, with the frames of those that were filmed, unless they come in pieces named `reel`.

    `loss` [step] and each measure [step layer head] are nan where nothing was measured; the codes of `roles` are
    [step layer head], too. Where measures are of one head `only`, they are [step]. `guesses`: what the model would say
    next at steps that were filmed.
    """
    shapes = {frame.shape for frame in frames.values()}
    if len(shapes) > 1:
        raise ValueError(f"frames differ in shape: {sorted(shapes)}")
    for name, values in {"loss": loss, **measures}.items():
        if len(np.asarray(values)) != len(steps):
            raise ValueError(f"{name!r} has {len(np.asarray(values))} rows, there are {len(steps)} steps")
    filmed = [step for step in steps if step in frames]
    index = {step: i for i, step in enumerate(filmed)}
    arrays: dict[str, NDArray[Any]] = {
        "steps": np.asarray(steps, np.float64),
        "loss": np.asarray(loss, np.float32),
        "film": np.array([index.get(step, NONE) for step in steps], np.uint16),
    }
    ranges = []
    for i, values in enumerate(measures.values()):
        lo, hi = payload.ends(values)
        ranges.append([lo, hi])
        arrays[f"measure{i}"] = quantise_linear(values, lo, hi)
    if roles is not None:
        arrays |= {"roles": np.asarray(roles.codes, np.uint8), "lost": np.asarray(roles.lost, np.uint8)}
    words: list[str] = []
    if said := {index[step]: guess for step, guess in guesses.items() if step in index}:
        words = sorted({word for guess in said.values() for word in words_of(guess.words)})
        arrays |= _guessed(said, len(filmed), words)
    if filmed and not reel:
        arrays["frames"] = np.stack([frames[step] for step in filmed])
    header = {"measures": list(measures), "ranges": ranges, "n": list(n), "factors": list(factors),
              "causal": [bool(c) for c in causal], "loss": loss_label,
              "reel": reel, "every": REEL, "cells": list(*shapes), "only": only, "words": words}  # fmt: skip
    return payload.pack(header, **arrays)


def _guessed(said: Mapping[int, Guesses], n_frames: int, words: list[str]) -> dict[str, NDArray[Any]]:
    """Guesses by the place of their frame: which of `words`, NONE where there are none; how likely; and the loss."""
    top = min(TOP, *(len(guess.words) for guess in said.values()))
    place = {word: i for i, word in enumerate(words)}
    guessed, shares = np.full((n_frames, top), NONE, np.uint16), np.zeros((n_frames, top), np.float32)
    losses = np.full(n_frames, np.nan, np.float32)
    for at, guess in said.items():
        guessed[at] = [place[word] for word in words_of(guess.words)[:top]]
        shares[at], losses[at] = np.asarray(guess.shares)[:top], guess.loss
    return {"guessed": guessed, "shares": shares, "losses": losses}


def reel(frames: Sequence[NDArray[np.uint8]], first: int, name: str) -> bytes:
    """Frames of a film from its `first`, which is a multiple of REEL, on."""
    return payload.pack({"reel": name, "first": first}, frames=np.stack(frames))
