"""A run's heads in its row: small patterns, and where heads are many a square each before those of the strongest."""

from __future__ import annotations

import base64
from html import escape

import streamlit as st

from dashboard import theme
from dashboard.views.runs.data import CELLS, Strip, Tile, strip
from tracer.store import Run

TALL, WIDEST = 48, 12
"""Pixels of all squares together, and of one."""
STYLE = """<style>
.heads-strip { display: flex; align-items: flex-end; gap: 6px; height: 62px; }
.heads-strip figure { flex: 0 1 auto; min-width: 0; margin: 0; text-align: center;
  font: 400 11px/14px "JetBrains Mono", monospace; }
.heads-strip img { display: block; max-width: 100%; height: auto; image-rendering: pixelated; }
@media (max-width: 640px) { .heads-strip figcaption { letter-spacing: -.05em; } } /* L11H11 within its picture */
.heads-strip figcaption { opacity: .72; } .heads-strip .role { opacity: 1; font-weight: 600; }
.heads-strip .begins { margin-left: 8px; } .heads-strip .all { flex: none; margin-right: 10px; }
.heads-strip .all img { margin: auto; }
</style>"""


def draw_heads(run: Run) -> None:
    """Nothing of a run without heads, or of which nothing can be read."""
    seen = strip(run, theme.is_dark())
    if seen is None:
        return
    parts = [_all(seen)] if seen.squares else []
    before = None
    for tile in seen.tiles:
        parts.append(_one(tile, begins=before is not None and tile.head[0] != before))
        before = tile.head[0]
    st.html(f"{STYLE}<div class='heads-strip'>{''.join(parts)}</div>")


def _one(tile: Tile, begins: bool) -> str:
    """With its label below, and its role in words for who hears it; `begins`: another layer."""
    label = theme.head_label(*tile.head)
    said = escape(f"{label}, {tile.role}" if tile.role else label, quote=True)
    return (
        f"<figure{' class=begins' if begins else ''}>{_image(tile.image, said, CELLS, CELLS)}"
        f"<figcaption{' class=role' if tile.role else ''}>{label}</figcaption></figure>"
    )


def _all(seen: Strip) -> str:
    side = max(1, min(WIDEST, TALL // seen.shape[0]))
    said = f"{seen.heads} heads, {seen.roles} with a role; a row a layer, darker: a higher score"
    image = _image(seen.squares, said, seen.shape[1] * side, seen.shape[0] * side)
    return f"<figure class='all' title='{said}'>{image}<figcaption>{seen.heads:,} heads</figcaption></figure>"


def _image(png: bytes, alt: str, width: int, height: int) -> str:
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f"<img src='{source}' alt='{alt}' width='{width}' height='{height}'>"
