"""Cached searches for passages: the text of a run, every head's looks at one step, and what the page shows of one head.

As in `loading`: keyed by run, step and what was asked, and torch is only imported inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import prompt_tokens, recorded_prompts
from dashboard.loading.kept import OF_A_STEP, of_run
from tracer.measures.aliases import Head
from tracer.pictures import passages
from tracer.pictures.payload import visible
from tracer.pictures.scales import head_label
from tracer.store import Run, open_run

if TYPE_CHECKING:
    from tracer.analysis.max_activating import Hit, Search

TOP, TYPICAL = 12, 4
BINS = 40
RANDOM = {"repeated-random": "random tokens that repeat", "markov": "random Markov chains"}


@dataclass(frozen=True)
class SearchedText:
    """Rows of tokens that were searched, and what they are in words."""

    tokens: np.ndarray
    """[sequence pos]; -1 beyond the end of a short one."""
    what: str
    names: list[str]
    """Of each row."""
    note: str = ""


@st.cache_data(max_entries=16, show_spinner="Reading the held-out text …", hash_funcs=OF_A_STEP)
def text(run: Run) -> SearchedText:
    """What can be searched: held-out text, or what the run kept."""
    from tracer import data
    from tracer.analysis import max_activating
    from tracer.analysis.eval_sequences import batches

    found = batches(run)
    if run.can("held_out") and not found.note:
        config = run.config
        n_ctx, corpus = config.model.n_ctx, config.data.corpus
        rows = data.build(config.data, n_ctx, config.seed).val(max_activating.rows_of_text(n_ctx))[:, :n_ctx]
        return _numbered(rows.numpy(), f"rows of {RANDOM[corpus]}" if corpus in RANDOM else "rows of held-out text")
    if found.text is not None:
        rows = found.text.numpy()[:, : run.about.n_ctx]
        return _numbered(rows, "passages that the run kept" if found.note else "held-out rows", found.note)
    return _numbered(found.repeat.tokens.numpy(), "rows of random tokens that repeat", found.note)


def _numbered(tokens: np.ndarray, what: str, note: str = "") -> SearchedText:
    return SearchedText(tokens, what, [f"row {i}" for i in range(len(tokens))], note)


def kept_text(run: Run) -> SearchedText:
    """The prompts whose patterns were kept."""
    trace = open_run(str(run.dir)).trace
    ids = np.asarray(trace["prompt_tokens"].values, np.int64)
    return SearchedText(ids, "kept prompts", recorded_prompts.prompts(run).names)


@dataclass(frozen=True)
class HeadPeaks:
    """Every head's looks at one step: in a text that the model reads now, or in patterns that were kept."""

    run: Run
    step: int
    from_kept: bool
    text: SearchedText
    search: Search
    off: tuple[Head, ...] = ()
    """Heads that wrote nothing; of kept patterns none."""


OF_A_SEARCH: dict[str | type, Callable[[Any], Any]] = {
    HeadPeaks: lambda of: (*of_run(of.run), of.step, of.from_kept, of.off)
}


def search(run: Run, step: int, from_kept: bool = False, off: tuple[Head, ...] = ()) -> HeadPeaks:
    """A search through what can be searched of this run, with some heads `off` where the model reads it."""
    searched = kept_text(run) if from_kept else text(run)
    return HeadPeaks(run, step, from_kept, searched, _search(run, step, from_kept, off), off)


@st.cache_resource(max_entries=8, show_spinner="Searching every head's looks …", hash_funcs=OF_A_STEP)
def _search(run: Run, step: int, from_kept: bool, off: tuple[Head, ...]) -> Search:
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis import max_activating

    if not from_kept:
        model, tokens = loading.model(run, step), torch.from_numpy(text(run).tokens)
        with zeroed(model, tokens, off):
            return max_activating.search(model, tokens)
    about, patterns = run.about, _patterns(run, step)
    causal = list(about.causal) or [True] * about.n_layers
    return max_activating.of_patterns(list(patterns), kept_text(run).tokens, causal)


@st.cache_data(max_entries=4, show_spinner=False, hash_funcs=OF_A_STEP)
def _patterns(run: Run, step: int) -> np.ndarray:
    """[prompt layer head query_pos key_pos]; nan in cross attention, which looks at other tokens."""
    found = run.trace["pattern"].sel(step=step).transpose("prompt", "layer", "head", "query_pos", "key_pos")
    patterns = found.values.astype(np.float32)
    for layer, name in enumerate(run.about.layers):
        if name.endswith("(cross)"):
            patterns[:, layer] = np.nan
    return patterns


@dataclass(frozen=True)
class HeadPassages:
    """The passages of one head: its strongest looks, then typical ones, and all of them packed for the browser."""

    hits: list[Hit]
    blob: bytes


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=OF_A_SEARCH)
def _blank(found: HeadPeaks) -> list[int]:
    """The tokens of its text that show nothing."""
    ids = [int(token) for token in np.unique(found.text.tokens) if token >= 0]
    return [token for token, text in zip(ids, prompt_tokens.strings(found.run, ids), strict=True) if not text.strip()]


def _top(found: HeadPeaks, kind: str, head: Head) -> list[Hit]:
    """The strongest looks of one head, those at whitespace last."""
    from tracer.analysis import max_activating

    return max_activating.strongest(found.search, kind, head, TOP, last=_blank(found))


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs=OF_A_SEARCH)
def shown(found: HeadPeaks, kind: str, head: Head) -> HeadPassages:
    """What stands in the list of one head; its attention is computed for all heads at once."""
    from tracer.analysis import max_activating

    top = _top(found, kind, head)
    typical = max_activating.typical(found.search, kind, head, TYPICAL)
    hits = [*top, *typical]
    if found.from_kept:
        patterns = _patterns(found.run, found.step)
        rows = np.array([patterns[(hit.sequence, *head, hit.query)] for hit in hits])
    else:
        of_head = _attention(found, kind)[head]
        rows = np.concatenate([of_head[: len(top)], of_head[TOP : TOP + len(typical)]])
    run, cards = found.run, []
    for i, (hit, row) in enumerate(zip(hits, rows, strict=True)):
        strings = prompt_tokens.strings(run, [int(t) for t in found.text.tokens[hit.sequence] if t >= 0])
        group = "top" if i < len(top) else "typical"
        cards.append(passages.Passage(group, hit.sequence, hit.query, hit.key, hit.score, hit.quantile, strings,
                                     np.nan_to_num(row[: len(strings)])))  # fmt: skip
    causal = run.about.causal
    return HeadPassages(hits, passages.pack(head_label(*head), cards, causal[head[0]] if causal else True))


@st.cache_data(max_entries=16, show_spinner="Reading the passages …", hash_funcs=OF_A_SEARCH)
def _attention(found: HeadPeaks, kind: str) -> np.ndarray:
    """[layer head look key_pos]: the top ones first, then the typical ones."""
    import torch

    from tracer.ablate.planner import zeroed
    from tracer.analysis import max_activating

    model, search = loading.model(found.run, found.step), found.search
    places = np.full((model.n_layers, model.n_heads, TOP + TYPICAL, 2), -1)
    for layer, head in np.ndindex(*places.shape[:2]):
        for first, hits in (
            (0, _top(found, kind, (layer, head))),
            (TOP, max_activating.typical(search, kind, (layer, head), TYPICAL)),
        ):
            for i, hit in enumerate(hits):
                places[layer, head, first + i] = hit.sequence, hit.query
    tokens = torch.from_numpy(found.text.tokens)
    with zeroed(model, tokens, found.off):
        return max_activating.attention(model, tokens, places)


@dataclass(frozen=True)
class Ends:
    """The tokens at both ends of a head's sharpest looks, and how all its looks are spread."""

    lists: dict[str, dict[str, list[Any]]]
    """Columns of counted tokens, by which end they stand at."""
    looks: int
    """That were counted."""
    counts: np.ndarray
    """Looks by score, in equal parts from 0 to `top`."""
    top: float


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs=OF_A_SEARCH)
def ends(found: HeadPeaks, kind: str, head: Head) -> Ends:
    from tracer.analysis import max_activating

    *both, looks = max_activating.ends(found.search, kind, head)
    run, scores = found.run, found.search.scores[kind][head]
    lists = {
        name: {
            "token": [visible(text, 24) for text in prompt_tokens.strings(run, [c.token for c in counts])],
            "share": [c.share for c in counts], "of all text": [c.usual for c in counts],
            "looks": [c.count for c in counts],
        } for name, counts in zip(("Looks from", "Looks to"), both, strict=True)
    }  # fmt: skip
    finite = scores[np.isfinite(scores)]
    top = 1.0 if kind != "farthest" else float(np.ceil(finite.max(initial=1)))
    return Ends(lists, looks, np.histogram(finite, BINS, (0, top))[0], top)
