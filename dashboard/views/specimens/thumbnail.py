"""A paper's chart in small, for its card on the wall: the curves and what they are compared with, no numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, MARGIN = 220, 80, 3


def thumbnail(chart: Mapping[str, Any], hues: Sequence[str], muted: str) -> bytes:
    """An SVG of the curves of a paper's results, in these colours; levels are dashed. ValueError without a point."""
    scale = {axis: math.log10 if axis in chart["log"] else float for axis in "xy"}
    curves = [[[scale[axis](at) for at in one] for axis, one in zip("xy", curve, strict=True)]
              for curve in chart["curves"].values()]  # fmt: skip
    levels = [scale["y"](level) for level in chart["levels"].values() if level > 0 or "y" not in chart["log"]]
    x0, x1 = _ends([at for x, _ in curves for at in x])
    y0, y1 = _ends([*levels, *(at for _, y in curves for at in y)])

    def path(x: Sequence[float], y: Sequence[float], style: str) -> str:
        places = (
            f"{MARGIN + (WIDTH - 2 * MARGIN) * (a - x0) / (x1 - x0):.1f} "
            f"{HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (b - y0) / (y1 - y0):.1f}"
            for a, b in zip(x, y, strict=True)
        )
        return f"<path d='M{'L'.join(places)}' style='fill:none;stroke-linejoin:round;{style}'/>"

    drawn = [path([x0, x1], [level] * 2, f"stroke:{muted};stroke-dasharray:4 4") for level in levels]
    for i, (x, y) in enumerate(curves):
        drawn.append(path(x, y, f"stroke:{hues[i % len(hues)]};stroke-width:2"))
    box = f"viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {box}>{''.join(drawn)}</svg>".encode()


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The least and the largest; apart, where they are one."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
