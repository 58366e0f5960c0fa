"""Curves over training and patterns as small SVGs: in the colours of a page around them, or as files of their own.

Groups (layers, matrices, depths) have the colours .g0, .g1, ... of static/site.css; the dashed line is chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tracer.pictures.colours import LINES, SURFACES

Curves = Mapping[str, Sequence[Sequence[float | None]]]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 190, 76, 8, 10, 24
DECADES = 2.0
"""From this many powers of ten on, curves are drawn over a logarithmic axis."""
CELL, SEEN = 9, 2
"""Pixels of a cell, and the percent from which it is drawn."""
LEGEND, GAP, LETTER = 26, 28, 7
"""Of a file: the height of its legend, pixels between two drawings or two entries, and about those of a letter."""


@dataclass(frozen=True)
class Drawing:
    """One SVG without its outermost element; `caption` in HTML is set as text below it."""

    width: int
    height: int
    label: str
    inner: str
    caption: str = ""

    def svg(self, place: str = "") -> str:
        said = escape(self.label, quote=True)
        return f'<svg {place}viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{said}">{self.inner}</svg>'


@dataclass(frozen=True)
class Figure:
    """Drawings side by side, and a legend of (class, words)."""

    kind: str
    drawings: Sequence[Drawing]
    legend: Sequence[tuple[str, str]] = ()

    def html(self) -> str:
        """For a page, whose style it wears."""
        if self.kind == "measure":
            said = [f'<span class="{name}">{escape(words)}</span>' if name else f"<span>{escape(words)}</span>"
                    for name, words in self.legend]  # fmt: skip
            inner = f"{self.drawings[0].svg()}<figcaption>{''.join(said)}</figcaption>"
        else:
            inner = "".join(f"<div>{one.svg()}<p>{one.caption}</p></div>" for one in self.drawings)
        return f'<figure class="{self.kind}">{inner}</figure>'

    def file(self) -> str:
        """An SVG that is looked at by itself, in light and dark."""
        wide = sum(one.width for one in self.drawings) + GAP * (len(self.drawings) - 1)
        high = max(one.height for one in self.drawings)
        drawn, x = [], 0
        for one in self.drawings:
            drawn.append(one.svg(f'x="{x}" width="{one.width}" height="{one.height}" '))
            drawn.append(_label(x, high + 17, one.label) if one.caption else "")
            x += one.width + GAP
        x = LEFT
        for name, words in self.legend:
            if name:
                drawn.append(f'<path class="curve {name}" d="M{x} {high + 13}h18"/>')
                x += 24
            drawn.append(_label(x, high + 17, words))
            x += LETTER * len(words) + GAP
        said = escape(self.drawings[0].label, quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {wide + 16} {high + LEGEND + 16}" '
            f'width="{wide + 16}" role="img" aria-label="{said}">\n<style>{STYLE}</style>\n'
            f'<rect class="ground" x="-8" y="-8" width="100%" height="100%"/>\n'
            + "\n".join(filter(None, drawn))
            + "\n</svg>\n"
        )


def _style(theme: str) -> str:
    surface, lines = SURFACES[theme], LINES[theme]
    groups = "".join(f".g{n}{{stroke:{line}}}" for n, line in enumerate(lines[:4]))
    return (
        f"rect.ground{{fill:{surface['background-color']}}}text{{fill:{lines[-1]}}}.axis,.chance{{stroke:{lines[-1]}}}"
        f"path.ground{{fill:{surface['secondary-background-color']}}}.cells{{fill:{surface['link-color']}}}{groups}"
    )


STYLE = (
    "text{font:12px Inter,system-ui,sans-serif}path{fill:none}.curve{stroke-width:1.6;stroke-linejoin:round}"
    f".chance{{stroke-dasharray:5 4}}{_style('light')}@media (prefers-color-scheme:dark){{{_style('dark')}}}"
)
"""Of a file, which no page gives one."""


def curves(
    groups: Curves,
    x: Sequence[float],
    what: str,
    chance: float | None = None,
    along: str = "step",
    bounded: bool = False,
) -> Figure:
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
    legend = [(f"g{n}", name) for n, name in enumerate(groups) if name]
    legend += [("chance", "at chance")] if chance is not None else []
    legend += [("", "logarithmic")] if logarithmic else []
    return Figure("measure", [Drawing(WIDTH, HEIGHT, what, "".join(drawn))], legend)


def patterns(found: Mapping[str, Sequence[Sequence[int]]], captions: Sequence[str]) -> Figure:
    """Each pattern, in percent: rows are the tokens that look, columns those that are looked at."""
    drawn = []
    for (head, rows), caption in zip(found.items(), captions, strict=True):
        side = CELL * len(rows)
        cells = "".join(
            f'<rect x="{CELL * k}" y="{CELL * q}" width="{CELL}" height="{CELL}" fill-opacity="{share / 100}"/>'
            for q, row in enumerate(rows) for k, share in enumerate(row) if share >= SEEN
        )  # fmt: skip
        inner = f'<path class="ground" d="M0 0V{side}H{side}Z"/><g class="cells">{cells}</g>'
        drawn.append(Drawing(side, side, f"The pattern of {head}", inner, f"<b>{escape(head)}</b> {escape(caption)}"))
    return Figure("patterns", drawn)


def number(value: float) -> str:
    """Three digits, as a person writes them: 0.85, 1,300, 2.1e-5."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):g}"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def _label(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
