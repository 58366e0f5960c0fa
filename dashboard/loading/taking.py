"""The view of Heads as a file, made when somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard import measured
from dashboard.loading import filming, kept, reading
from dashboard.loading.looking import Head, Sight
from tracer import showing
from tracer.measures import probe_words
from tracer.pictures.portable import Told, heads_file
from tracer.pictures.scales import of_measure
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

LONGEST_FILM = 900_000
"""Bytes of a film that still goes into a file."""


def heads(
    run: Run, trace: xr.Dataset, sight: Sight, focus: Head, measure: str, *, prompt: str, code: str, link: str
) -> str:
    """One HTML file of what the page shows, with the film where the page has it."""
    setting, film = run.about.setting, _film(run, trace, sight)
    measures = {name: measured.scores(trace, name, sight.step) for name in measured.head_measures(trace)}
    explained = showing.explained(measures, setting, probe_words(run.about.kind))
    told = Told(run.name, showing.release(), sight.step, prompt, code, link, explained)
    return heads_file(
        sight, told, measures=measures, focus=focus, measure=measure, norms=reading.norms(run, sight),
        scales={name: of_measure(name, setting, values) for name, values in measures.items()}, film=film,
    )  # fmt: skip


def _film(run: Run, trace: xr.Dataset, sight: Sight) -> bytes | None:
    """The same bytes as the scrubber has; None where nothing was filmed, or too much to send around."""
    name = sight.key[2]
    steps = kept.prompts(run).steps if isinstance(name, str) else run.steps
    if len(steps) < 2:
        return None
    blob, left = filming.blob(run, trace, steps, sight, lambda step: kept.of_prompt(run, step, str(name)), False)
    return None if left or len(blob) > LONGEST_FILM else blob
