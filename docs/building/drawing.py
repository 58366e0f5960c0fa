"""Curves over training and patterns as small SVGs, in the colours of the page around them.

Groups (layers, matrices, depths) have the colours .g0, .g1, ... of static/site.css; the dashed line is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

Curves = Mapping[str, Sequence[Sequence[float | None]]]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 190, 76, 8, 10, 24
DECADES = 2.0
"""From this many powers of ten on, curves are drawn over a logarithmic axis."""
CELL, SEEN = 9, 2
"""Pixels of a cell, and the percent from which it is drawn."""


def curves(
    groups: Curves,
    x: Sequence[float],
    what: str,
    chance: float | None = None,
    along: str = "step",
    bounded: bool = False,
) -> str:
    """Every curve of every group over x, steps of training or positions; a bounded axis is never logarithmic."""
    values = [v for group in groups.values() for curve in group for v in curve if v is not None]
    shown = [*values, chance] if chance is not None else values
    positive = [v for v in values if v > 0]
    decades = math.log10(max(positive) / min(positive)) if positive else 0.0
    logarithmic = not bounded and min(values) >= 0 and decades > DECADES
    low, high = (min(positive), max(shown)) if logarithmic else (min(0.0, *shown), max(shown))
    scale = math.log10 if logarithmic else float
    reach = scale(high) - scale(low) or 1.0

    def place(at: float, value: float) -> tuple[float, float]:
        across = (at - x[0]) / (x[-1] - x[0])
        up = (scale(max(value, low)) - scale(low)) / reach
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    drawn = [f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>']
    drawn += [_label(LEFT - 6, y, number(v), "end") for v, y in ((high, TOP + 9), (low, HEIGHT - BOTTOM))]
    drawn += [_label(LEFT, HEIGHT - 7, f"{along} {x[0]}"), _label(WIDTH - RIGHT, HEIGHT - 7, f"{x[-1]}", "end")]
    if chance is not None:
        left, right = place(x[0], chance), place(x[-1], chance)
        drawn.append(f'<path class="chance" d="M{left[0]:.1f} {left[1]:.1f}H{right[0]:.1f}"/>')
    for n, group in enumerate(groups.values()):
        paths = "".join(
            _path([place(at, v) for at, v in zip(x, curve, strict=True) if v is not None]) for curve in group
        )
        drawn.append(f'<path class="curve g{n}" d="{paths}"/>')
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(what, quote=True)}">{"".join(drawn)}</svg>'
    )
    said = [f'<span class="g{n}">{escape(name)}</span>' for n, name in enumerate(groups) if name]
    said += ['<span class="chance">at chance</span>'] if chance is not None else []
    said += ["<span>logarithmic</span>"] if logarithmic else []
    return f'<figure class="measure">{drawing}<figcaption>{"".join(said)}</figcaption></figure>'


def patterns(found: Mapping[str, Sequence[Sequence[int]]], captions: Sequence[str]) -> str:
    """Each pattern, in percent: rows are the tokens that look, columns those that are looked at."""
    drawn = []
    for (head, rows), caption in zip(found.items(), captions, strict=True):
        side = CELL * len(rows)
        cells = "".join(
            f'<rect x="{CELL * k}" y="{CELL * q}" width="{CELL}" height="{CELL}" fill-opacity="{share / 100}"/>'
            for q, row in enumerate(rows) for k, share in enumerate(row) if share >= SEEN
        )  # fmt: skip
        drawing = (
            f'<svg viewBox="0 0 {side} {side}" role="img" aria-label="{escape(f"The pattern of {head}", quote=True)}">'
            f'<path class="ground" d="M0 0V{side}H{side}Z"/><g class="cells">{cells}</g></svg>'
        )
        drawn.append(f"<div>{drawing}<p><b>{escape(head)}</b> {escape(caption)}</p></div>")
    return f'<figure class="patterns">{"".join(drawn)}</figure>'


def number(value: float) -> str:
    """Three digits, as a person writes them: 0.85, 1,300, 2.1e-5."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):g}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
