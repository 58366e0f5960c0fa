"""The first page of a site: a card of each run, with its heads in small, how it stands and what happened."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from tracer.analysis import notebook
from tracer.diagnosis.verdict import RunVerdict, verdict
from tracer.pictures.assets import text
from tracer.pictures.montage import montage
from tracer.pictures.page import document
from tracer.site.run_page import Findings, when
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

MOST_HEADS = 256
"""Heads of a picture in small; of larger models the first layers."""
LONGEST = 64
"""Tokens of a pattern in it."""


@dataclass(frozen=True)
class Card:
    """A run on the first page."""

    name: str
    address: str
    line: str
    stands: RunVerdict
    happened: tuple[str, ...]
    pictures: tuple[bytes, bytes] | None
    """PNGs of every head's pattern, for light and for dark."""


def card_of(run: Run, found: Findings, address: str) -> Card:
    trace = found.trace
    step = int(trace["step"].values[-1])
    shape = f"{trace.sizes['layer']} layers of {trace.sizes['head']} heads, " if "layer" in trace.sizes else ""
    line = f"{shape}{run.meta['n_params']:,} parameters, {run.status} at step {step:,}"
    happened = tuple(f"{event.says}: {when(event)}" for event in found.events)
    return Card(run.name, address, line, verdict(found.health), happened, _pictures(trace))


def index(cards: Sequence[Card]) -> str:
    """The page."""
    body = f'<div class="cards wide">{"".join(map(_card, cards))}</div>'
    line = f"{len(cards)} {'run' if len(cards) == 1 else 'runs'}, each with every attention head at every step"
    foot = f"Made with manyeyes {notebook.release()}; works offline."
    return document("Runs", line, body, [], about={"run": None, "step": None, "head": None}, foot=foot,
                    look=text("site.css"))  # fmt: skip


def _card(card: Card) -> str:
    pictures = ""
    if card.pictures is not None:
        light, dark = (f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in card.pictures)
        pictures = (
            f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" alt="Every head\'s pattern on one prompt, a row a layer"></picture>'
        )
    items = "".join(f"<li>{escape(one)}</li>" for one in card.happened) or "<li>No event was dated.</li>"
    stands = f'<p class="{card.stands.severity}">{escape(card.stands.text)}</p>'
    return (
        f'<a class="card" href="{quote(card.address)}"><h2>{escape(card.name)}</h2>{pictures}'
        f"<p>{escape(card.line)}</p>{stands}<ul>{items}</ul></a>"
    )


def _pictures(trace: xr.Dataset) -> tuple[bytes, bytes] | None:
    """Of the last kept pattern of the first prompt; None where none was kept."""
    if "pattern" not in trace or not trace["pattern"].size:
        return None
    kept = trace["pattern"].isel(prompt=0, query_pos=slice(LONGEST), key_pos=slice(LONGEST))
    kept = kept.isel(layer=slice(max(1, MOST_HEADS // max(1, kept.sizes["head"]))))
    there = [row for row in range(kept.sizes["step"] - 1, -1, -1) if np.isfinite(kept.isel(step=row).values).any()][:1]
    if not there or kept.sizes["query_pos"] != kept.sizes["key_pos"]:
        return None
    patterns = kept.isel(step=there[0]).values.astype(np.float32)
    n = int(np.isfinite(patterns).any(axis=(0, 1, 3)).sum())
    light, dark = (montage(patterns[:, :, :n, :n], dark=mode) for mode in (False, True))
    return light, dark
