"""What a model of a run would say next, in tokens that a person reads: for a line, and for each frame of a film."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracer.analysis.run_prompts import strings
from tracer.pictures import guesses as pictures
from tracer.pictures.guesses import TOP, Guesses
from tracer.pictures.picture import Picture
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.analysis.prompt_attention import Said


def likeliest(now: np.ndarray, before: np.ndarray | None = None) -> list[int]:
    """The ids to show, the likeliest first; the one that was likeliest before comes in any case, and then first."""
    ids = [int(i) for i in np.argsort(-now, kind="stable")[:TOP]]
    best = ids[0] if before is None else int(np.argmax(before))
    return ids if best in ids else [best, *ids[: TOP - 1]]


def guesses(run: Run, says: Said) -> Guesses:
    """The likeliest tokens, for a frame of a film."""
    ids = likeliest(says.following)
    return Guesses(strings(run, ids), says.following[ids], says.loss)


def line(run: Run, now: Said, before: Said | None = None, *, quiet: bool = False) -> Picture:
    """The picture of what it says `now`, `quiet` without its loss; `before`: with all heads on, where some are off."""
    ids = likeliest(now.following, None if before is None else before.following)
    words = strings(run, ids)
    shown = Guesses(words, now.following[ids], now.loss)
    then = None if before is None else Guesses(words, before.following[ids], before.loss)
    return pictures.picture(shown, then, quiet=quiet)
