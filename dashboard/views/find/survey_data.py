"""Cached questions about heads over a corpus; the computing is `tracer`'s.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import prompt_tokens
from dashboard.loading.kept import of_run
from tracer.measures.aliases import Head
from tracer.measures.described import in_trace, measures_in
from tracer.measures.measure import Measure
from tracer.named_code import MEASURES, remembered
from tracer.pictures import passages
from tracer.pictures.passages import Passage
from tracer.pictures.scales import head_label
from tracer.store import Run, open_run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.analysis.head_jobs import Jobs

OURS = {"entropy", "sink", "sharpest", "n_looks"}
Key = tuple[str, str, int, str, int]
"""Directory, job, step, corpus and tokens read: a survey."""
STRONGEST = 4


@dataclass(frozen=True)
class SurveyPassages:
    """Passages, packed for the browser; of each the row's name, its tokens, and its query and key."""

    blob: bytes
    rows: list[str]
    looks: list[tuple[list[int], int, int]]


def kept(run: Run, step: int) -> xr.Dataset | None:
    """The survey of this step that was made last."""
    from tracer.analysis.survey import kept_survey

    return kept_survey(run, step)


def make(run: Run, step: int, corpus: str, tokens: int, progress: Callable[[int, int], None]) -> None:
    """Read the corpus into the run; `progress` may end it, what was read stays."""
    import torch

    from tracer.analysis.survey import survey

    torch.set_num_threads(1)
    survey(run, corpus or None, step=step, tokens=tokens, measures=remembered(MEASURES), progress=progress)


def own_means(found: xr.Dataset) -> dict[str, Measure]:
    """Measures of a user's that the survey holds, by name."""
    return {name: in_trace(found, name) for name in measures_in(found, ("layer", "head")) if name not in OURS}


def key_of(run: Run, step: int, found: xr.Dataset) -> Key:
    return *of_run(run), step, found.attrs["corpus"], found.attrs["tokens_read"]


@st.cache_data(max_entries=64, show_spinner="Reading the passages …")
def by_decile(key: Key, head: Head, _found: xr.Dataset) -> SurveyPassages:
    """A head's strongest looks and one of each tenth, packed for the browser."""
    from tracer.analysis.survey import deciles

    one = _found.isel(layer=head[0], head=head[1])
    looks = [("top", "strongest", i) for i in range(STRONGEST) if one["row_strongest"].values[i] >= 0]
    looks += [("decile", "kept", place) for _, places in deciles(_found, *head) for place in places]
    return _packed(key, head, _found, looks)


@st.cache_data(max_entries=16, show_spinner="Telling the head's jobs apart …")
def jobs(key: Key, head: Head, _found: xr.Dataset) -> Jobs:
    """ValueError, with the reason, where a head's outputs are not known."""
    from tracer.analysis.head_jobs import head_jobs

    return head_jobs(loading.model(open_run(key[0]), key[2]), _found, *head)


@st.cache_data(max_entries=16, show_spinner=False)
def of_jobs(key: Key, head: Head, _found: xr.Dataset, _jobs: Jobs) -> SurveyPassages:
    """The passages in the middle of each job."""
    looks = [(f"job{i}", "kept", place) for i, job in enumerate(_jobs.jobs) for place in job.passages[:STRONGEST]]
    return _packed(key, head, _found, looks)


def _packed(key: Key, head: Head, found: xr.Dataset, looks: list[tuple[str, str, int]]) -> SurveyPassages:
    """Looks by (group, kind, place); their rows of attention are computed now."""
    import torch

    from tracer.analysis.max_activating import attention

    run, (layer, at) = open_run(key[0]), head
    model, one = loading.model(run, key[2]), found.isel(layer=layer, head=at)
    cells = [[int(one[f"{field}_{kind}"].values[i]) for field in ("row", "query", "key")] for _, kind, i in looks]
    tokens = found["tokens"].values[[row for row, _, _ in cells]]
    places = np.full((model.n_layers, model.n_heads, len(looks), 2), -1)
    for i, (_, query, _) in enumerate(cells):
        places[layer, at, i] = i, query
    shares = attention(model, torch.from_numpy(tokens).long(), places)[layer, at]
    scores = one["score_kept"].values[one["row_kept"].values >= 0]
    cards = []
    for (group, kind, i), (_, query, looked), share, ids in zip(looks, cells, shares, tokens, strict=True):
        score = float(one[f"score_{kind}"].values[i])
        below = float((scores < score).mean()) if len(scores) else 0.0
        strings = prompt_tokens.strings(run, ids.tolist())
        cards.append(Passage(group, len(cards), query, looked, score, below, strings, np.nan_to_num(share)))
    causal = run.about.causal
    blob = passages.pack(head_label(*head), cards, causal[layer] if causal else True)
    drawn = [(ids.tolist(), query, key_pos) for ids, (_, query, key_pos) in zip(tokens, cells, strict=True)]
    return SurveyPassages(blob, [f"row {row}" for row, _, _ in cells], drawn)
