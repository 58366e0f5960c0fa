"""All heads on one prompt as one file: atlas, pattern and token view, and the film of training where there is one.

Every head's cells travel once, in the bytes of the token view; the script makes the other pictures of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tracer.measures.aliases import Head
from tracer.pictures import atlas, pattern, payload, scrubber, token_view
from tracer.pictures.page import Mount, Note, page
from tracer.pictures.picture import Picture
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.scales import Scale, head_label

BUDGET = 420_000
"""Bytes of the cells: 12 x 12 heads on 64 tokens then fit into a file of 700 kB."""
ROUGH = "Shares are kept in 8 bits, to within 0.004."


@dataclass(frozen=True)
class Told:
    """What a file says of itself beside the pictures."""

    name: str
    """Of the run or the model."""
    version: str
    step: int | None = None
    prompt: str = ""
    code: str = ""
    """Lines of Python that show it again."""
    link: str = ""
    """An address of the same view in the dashboard, or the end of one."""
    explained: Sequence[tuple[str, str]] = ()
    """Each measure and what it is."""


def heads_file(
    seen: PromptPatterns,
    told: Told,
    *,
    measures: Mapping[str, ArrayLike],
    scales: Mapping[str, Scale],
    focus: Head,
    measure: str,
    norms: ArrayLike | None = None,
    film: bytes | None = None,
    token: int | None = None,
    history: Picture | None = None,
    guesses: Picture | None = None,
    roles: atlas.Roles | None = None,
    scored: atlas.Scored = "",
    events: Sequence[scrubber.Event] = (),
    more: Sequence[Note] = (),
) -> str:
    """The file. measures [layer head] by name, of which `measure` colours the atlas; film as `scrubber.pack`.

    `guesses`: what the model would say next; `token`: the one that is held; `history`: the measure of every head over
    training, whose lines are called by head.
    `scored` is as in `atlas.picture`. `events` are marked on the timeline; `more` is read below the pictures, before
    all else.
    """
    exist = np.asarray(np.isfinite(seen.thumbs).any(axis=(2, 3)))
    n_layers, n_heads = exist.shape
    if not (0 <= focus[0] < n_layers and 0 <= focus[1] < n_heads and exist[focus]):
        raise ValueError(f"there is no head {head_label(*focus)}: the model has {n_layers} layers of {n_heads} heads")
    n, total = _tokens(seen), len(seen.strings)
    start = total - n
    blob, rough = _cells(seen, start, exist, None if norms is None else np.asarray(norms))
    token = token if token is not None and start <= token < total else None
    header, _ = payload.unpack(pattern.pack(np.zeros((n, n)), seen.strings[start:], query_start=start, key_start=start))
    part = f"The last {n:,} of {total:,} tokens. " if start else ""
    says = f"The number is its {scales[measure].label.lower()}."
    if roles is not None and roles.measures:
        says = f"Its colour is its {scales[measure].label.lower()}, its number the score of its role."
    mounts = [
        Mount("atlas", atlas.picture(None, selected=focus, measure=measure, scales=scales, off=seen.off,
                                   roles=roles, scored=scored),
              "All heads on this prompt",
              f"{part}A tile is a head. {says} Click one to see its pattern.",
              template={"measures": list(measures), "causal": list(seen.causal), "factors": [1, 1],
                        "layers": [payload.visible(name, 120) for name in seen.names],
                        "values": [_numbers(values) for values in measures.values()],
                        "exist": exist.astype(int).tolist()}),
        Mount("pattern", pattern.picture(None, head=focus, max_size=620), "{head} on this prompt",
              "Rows are the tokens that look, columns what they see.",
              template={k: v for k, v in header.items() if k not in ("arrays", "version", "label", "causal")}),
        Mount("reading", token_view.picture(blob, token=token, head=focus), "What each token looks at",
              "Point at a token to see where it looks; the squares say what every other head does with it.", wide=True),
    ]  # fmt: skip
    if history is not None:
        mounts.insert(2, Mount("history", history, f"{scales[measure].label} over training", wide=True))
    if guesses is not None:
        mounts.insert(0, Mount("guesses", guesses, wide=True))
    if film is not None and not start:  # a film is of the whole prompt
        shown = scrubber.picture(film, step=told.step, head=focus, measure=measure, scale=scales[measure],
                                 events=events, heads_off=bool(seen.off))  # fmt: skip
        along = "the patterns and the next tokens" if guesses is not None else "the patterns"
        caption = f"Play or drag: {along} move along. The token view stays at step {told.step:,}."
        mounts.insert(0, Mount("scrubber", shown, "", caption, wide=True))
    at = "" if told.step is None else f"step {told.step:,} · "
    off = "".join(f" · {head_label(*one)} off" for one in seen.off)
    line = f"{at}{total:,} tokens · {n_layers} layers of {n_heads} heads{off}"
    about = {"run": told.name, "step": told.step, "head": list(focus)}
    foot = f"Made with manyeyes {told.version}; works offline.{' ' + ROUGH if rough else ''}"
    return page(f"Every head of {told.name}", line, mounts, [*more, *notes(told)], about=about, foot=foot)


def notes(told: Told) -> list[Note]:
    """The prompt, how to show it again, what the measures are: as far as they are told."""
    notes = [Note("The prompt", code=told.prompt)] if told.prompt else []
    if told.code or told.link:
        notes.append(Note("Reproduce", code=told.code, link=told.link, copies=bool(told.code)))
    if told.explained:
        notes.append(Note("What the measures are", terms=told.explained, wide=True))
    return notes


def _tokens(seen: PromptPatterns) -> int:
    """How many tokens of the end of the prompt fit with every head."""
    n = min(len(seen.strings), token_view.WHOLE)
    shape = seen.thumbs.shape[:2]
    while not (made := token_view.plan(n, *shape, causal=all(seen.causal))).whole or made.n < n:
        n = min(n - 1, max(made.n, n - 16))
    return n


def _cells(seen: PromptPatterns, start: int, exist: np.ndarray, norms: np.ndarray | None) -> tuple[bytes, bool]:
    """The token view's bytes, and whether they are rough: exact where that is small, with value-weights if they fit."""
    own = [seen.keys(layer) == seen.strings == seen.queries(layer) for layer in range(len(seen.sizes))]
    page = slice(start, len(seen.strings))

    def packed(norms: np.ndarray | None) -> bytes:
        return token_view.pack(
            lambda layer, head: seen.window(layer, head, page, slice(None)), seen.strings[page],
            there=exist & np.array(own)[:, None], causal=seen.causal, norms=norms, start=start,
        )  # fmt: skip

    blob = packed(norms)
    if len(blob) <= BUDGET:
        return blob, False
    blob = rough(blob)
    return (blob if len(blob) <= BUDGET or norms is None else rough(packed(None))), True


def rough(blob: bytes) -> bytes:
    """A token view of which shares are one byte, the code of their square root: half the size, error at most 0.004."""
    header, arrays = payload.unpack(blob)
    for name in ("shares", "means"):
        if arrays[name].dtype == np.uint16:
            arrays[name] = payload.quantise_sqrt(arrays[name] / (payload.MISSING - 1))
    return payload.pack({k: v for k, v in header.items() if k not in ("arrays", "version")}, **arrays)


def _numbers(values: ArrayLike) -> list[list[float | None]]:
    """Five digits of each, as JSON takes them: NaN is null."""
    grid = np.asarray(values, np.float64)
    return [[float(f"{v:.5g}") if np.isfinite(v) else None for v in row] for row in grid]
