"""Cached films of a prompt: every snapshot's patterns, made once and grown by what a run adds.

As in `loading`: keyed by run and prompt, and torch is only imported inside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import streamlit as st

from dashboard.loading import head_scores, recorded_prompts, roles
from tracer.analysis import guessing
from tracer.analysis.timeline import CHEAP_BYTES
from tracer.pictures import scrubber
from tracer.pictures.guesses import Guesses
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run, nearest_row, open_run

if TYPE_CHECKING:
    import xarray as xr

CHEAP_FLOPS = 4e10
"""What is filmed without being asked for: about two seconds on one core, of `CHEAP_BYTES` of weights at most."""
LOSSES = {"val_loss": "held-out loss", "train_loss": "training loss"}


class Frame(NamedTuple):
    """A prompt at one snapshot, as the browser gets it."""

    codes: np.ndarray
    """[layer head rows cols]"""
    guesses: Guesses | None = None
    """None where the model foretells no tokens, and of a kept prompt."""


Reel = dict[int, Frame]
"""Of a prompt, by step."""


@dataclass(frozen=True)
class Film:
    """The timeline, the film beside it where the run goes on, and how many snapshots cost too much to film unasked."""

    blob: bytes
    reels: list[bytes]
    left: int


def film_of(
    run: Run, trace: xr.Dataset, steps: list[int], shown: PromptPatterns, see: Callable[[int], PromptPatterns],
    asked: bool, apart: bool = False,
) -> Film:  # fmt: skip
    """A timeline with its film in it, or `apart`: then what a new snapshot sends again is one of its pieces."""
    size, reel, left = _film(run, steps, shown, see, asked)
    return _packed(trace, steps, shown, size, reel, left, apart)


def whole_film(
    run: Run, trace: xr.Dataset, steps: list[int], shown: PromptPatterns, see: Callable[[int], PromptPatterns],
    asked: bool,
) -> bytes | None:  # fmt: skip
    """The timeline with its film in it; None, and nothing is packed, where some snapshot is not filmed."""
    size, reel, left = _film(run, steps, shown, see, asked)
    return None if left else _packed(trace, steps, shown, size, reel, left, apart=False).blob


def _film(
    run: Run, steps: list[int], shown: PromptPatterns, see: Callable[[int], PromptPatterns], asked: bool
) -> tuple[int, Reel, int]:  # fmt: skip
    """The size of a frame, all frames there are, and how many snapshots are left."""
    size = scrubber.resolution(
        max(max(pair) for pair in shown.sizes), shown.thumbs.shape[0] * shown.thumbs.shape[1], len(steps)
    )
    reel = _reel(shown.look, size)
    missing = [step for step in steps if step not in reel]
    if asked or cheap(run, shown, missing):
        _shoot(shown, see, missing, size, reel)
        missing = []
    return size, reel, len(missing)


def _packed(
    trace: xr.Dataset, steps: list[int], shown: PromptPatterns, size: int, reel: Reel, left: int, apart: bool
) -> Film:  # fmt: skip
    filmed = tuple(step for step in steps if step in reel)
    rows = tuple(nearest_row(trace["step"].values, step) for step in steps)
    measures = tuple(head_scores.head_measures(trace))
    name = hashlib.sha256(repr((*shown.look, size)).encode()).hexdigest()[:16] if apart else ""
    looks = (*shown.look, size)
    timeline = _blob(looks, tuple(steps), filmed, rows, measures, roles.labels(), name, trace, shown, reel)
    pieces = [filmed[i : i + scrubber.REEL] for i in range(0, len(filmed), scrubber.REEL)] if apart else []
    reels = [_piece(piece, i * scrubber.REEL, name, reel) for i, piece in enumerate(pieces)]
    return Film(timeline, reels, left)


def loss_of(trace: xr.Dataset, rows: list[int]) -> tuple[str, np.ndarray]:
    """The loss of a timeline at these rows, [row], and its name: of held-out text where that was measured."""
    loss = next((name for name in LOSSES if head_scores.holds(trace, name)), None)
    return LOSSES.get(loss or "", "loss"), trace[loss].values[rows] if loss else np.full(len(rows), np.nan)


def cheap(run: Run, shown: PromptPatterns, steps: list[int]) -> bool:
    """May these steps be filmed unasked? Kept patterns only have to be read; a click on a switch waits for no film."""
    if not _reads(shown):
        return True
    if shown.off and steps:
        return False
    n_params = run.meta["n_params"]
    return n_params * 2 * len(shown.strings) * len(steps) <= CHEAP_FLOPS and 4 * n_params * len(steps) <= CHEAP_BYTES


def _reads(shown: PromptPatterns) -> bool:
    """Is this a text that the model reads now, rather than a kept prompt?"""
    return isinstance(shown.key[2], tuple)


@st.cache_resource(max_entries=6, show_spinner=False)
def _reel(key: tuple[object, ...], size: int) -> Reel:
    """What was filmed of a prompt so far; it grows, and a frame in it never changes."""
    return {}


def _shoot(
    shown: PromptPatterns, see: Callable[[int], PromptPatterns], steps: list[int], size: int, reel: Reel
) -> None:  # fmt: skip
    if not _reads(shown):
        shape = shown.thumbs.shape
        for step in steps:
            thumbs = see(step).thumbs
            if thumbs.shape == shape:  # a run that diverged keeps patterns of another size
                reel[step] = Frame(scrubber.codes(recorded_prompts.pooled(thumbs, size, "max")))
        return
    import torch

    from tracer.analysis.prompt_over_steps import film

    torch.set_num_threads(1)
    run, tokens = open_run(str(shown.key[0])), torch.tensor([shown.key[2]])
    for step, shot in film(run, tokens, steps, size=size, off=shown.off):
        says = shot.said if all(shown.causal) else None
        reel[step] = Frame(scrubber.codes(shot.thumbs), None if says is None else guessing.guesses(run, says))


@st.cache_resource(max_entries=6, show_spinner=False)
def _blob(
    key: tuple[object, ...], steps: tuple[int, ...], filmed: tuple[int, ...], rows: tuple[int, ...],
    measures: tuple[str, ...], labels: tuple[str, ...], name: str, _trace: xr.Dataset, _shown: PromptPatterns,
    _reel: Reel,
) -> bytes:  # fmt: skip
    """Packed again only when a snapshot came, or a recorded row that is nearer to one."""
    label, loss = loss_of(_trace, list(rows))
    n = max(q for q, _ in _shown.sizes), max(k for _, k in _shown.sizes)
    cells = next((_reel[step].codes.shape[2:] for step in filmed), (1, 1))
    return scrubber.pack(
        steps, {step: _reel[step].codes for step in filmed},
        loss,
        {name: _trace[name].values[list(rows)] for name in measures},
        n=n, factors=(-(-n[0] // cells[0]), -(-n[1] // cells[1])), causal=_shown.causal,
        loss_label=label, reel=name,
        roles=roles.of_rows(_trace, list(rows)) if head_scores.has_heads(_trace) else None,
        guesses={step: said for step in filmed if (said := _reel[step].guesses) is not None},
    )  # fmt: skip


@st.cache_resource(max_entries=64, show_spinner=False)
def _piece(steps: tuple[int, ...], first: int, name: str, _reel: Reel) -> bytes:
    return scrubber.reel([_reel[step].codes for step in steps], first, name)
