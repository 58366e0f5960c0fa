"""The scrubber: a run's snapshots as a timeline; play or drag draws in the browser, letting go chooses the step."""

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard import theme
from dashboard.components.host import Part, controlled

_PART, _REEL = Part("scrubber"), Part("reel")


def scrubber(
    blob: bytes,
    *,
    key: str,
    step: int,
    head: tuple[int, int] | None = None,
    measure: str | None = None,
    scale: theme.Scale | None = None,
    live: bool = False,
    reels: Sequence[bytes] = (),
    on_change: Callable[[int], None] | None = None,
) -> int:
    """Draw film.film(...); returns the step in force.

    What it shows meanwhile it tells the other parts of the page (topic `frame`), which draw it; `head` and `measure`
    choose the second curve. `live`: the run goes on, so its last snapshot is only the newest; its frames come as
    `reels`, film.reel(...), of which a new snapshot sends only the last one again.
    """
    cue = {"head": head, "measure": measure, "scale": scale.payload() if scale else None, "live": live}
    value = controlled(_PART, blob, cue, key=key, current=step, read=int, on_change=on_change)
    if reels:
        with st.container(key=f"reels_{key}"):
            for i, reel in enumerate(reels):
                _REEL(key=f"{key} reel {i}", data=reel)
    return value
