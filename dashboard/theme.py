"""How the dashboard writes and looks: numbers, Plotly's template; palettes and scales belong to pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tracer.pictures.colours import ANCHORS, LINES, layer_colours, palette
from tracer.pictures.scales import Scale, head_label, parse_head

__all__ = [
    "Scale", "digits", "fmt", "head_label", "interval", "is_dark", "layer_colours", "palette", "parse_head",
    "plotly_template", "sentence", "signed", "unmarked",
]  # fmt: skip

STYLES = Path(__file__).parent / "styles.css"
"""What the theme's settings cannot say; first_response.py puts it into the page."""
_SHARES = ("normalised", "token", "induction", "share", "prob", "pattern", "attention")
_LOGS = ("ratio", "norm", "lr")


def fmt(value: float | None, measure: Any = "") -> str:
    """A number as the dashboard prints it: shares to 2 decimals, losses to 3 (from 100 on to 1), norms to 3
    digits, NaN as a dash."""
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else ("∞" if value > 0 else "−∞")
    name, unit = getattr(measure, "name", measure), getattr(measure, "unit", "")
    if float(value).is_integer() and (unit in ("step", "tokens") or name in ("step", "tokens_seen")):
        return f"{int(value):,}"
    if any(word in name for word in _SHARES) or unit == "share":
        text = f"{value:.2f}"
    elif unit == "nats" or "loss" in name or "entropy" in name:
        text = f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"
    elif any(word in name for word in _LOGS) or (value and not 1e-3 <= abs(value) < 1e5):
        text = f"{value:.2e}" if value and not 1e-3 <= abs(value) < 1e4 else f"{value:.3g}"
    else:
        text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−") if text.strip("-0.") else text.lstrip("-")


def signed(value: float, digits: int = 3) -> str:
    """A change as the dashboard prints it: with its sign, unless it rounds to nothing."""
    if not math.isfinite(value):
        return f"+{fmt(value)}" if value > 0 else fmt(value)
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text.lstrip("+−")


def digits(values: Iterable[float], least: int = 2) -> int:
    """Digits behind the point with which the largest of some numbers has two that count, and at least so many."""
    most = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return max(least, 1 - math.floor(math.log10(most))) if most else least


def interval(low: float, high: float) -> str:
    """Both ends of a change."""
    return f"{signed(low)} to {signed(high)}" if math.isfinite(low) else "no interval"


def sentence(text: str) -> str:
    """A message as a sentence: with a capital in front and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def unmarked(text: str) -> str:
    """A text of which Markdown shall read nothing but the words, such as the name of a run."""
    marked = re.sub(r"[\\`*_~|$\[\]&:]", r"\\\g<0>", text)
    return re.sub(r"^(\d*)([-+#>.)])", r"\1\\\2", marked)  # else a heading, a list or a quotation where it begins


def is_dark() -> bool:
    """Whether this reader's page is dark now (False outside a page)."""
    import streamlit as st

    return st.context.theme.type == "dark"


@dataclass(frozen=True)
class Ink:
    """Colours of what a chart draws besides its data."""

    text: str
    """And what was chosen: blue is attention alone."""
    muted: str
    grid: str
    page: str
    mark: str
    """A window or an event."""
    beside: str
    """A line that stands beside the point: far from the text's colour, and still legible as its own name."""


INKS = {
    "light": Ink("#111622", "#565f6e", "#dfe3ea", "#ffffff", "#b5730f", "#6e7786"),
    "dark": Ink("#e8ecf4", "#a9b4c4", "#2a303c", "#0f1218", "#cd9526", "#7d8797"),
}

SPLITS = ("beside", "text")
"""The inks of two variables of one chart: what stands beside the point, and the point."""


def inks(count: int = 1) -> dict[str, list[str]]:
    """Of so many variables of one chart, two at most, by mode: no hue, for hues are layers."""
    return {mode: [getattr(ink, name) for name in SPLITS[-count:]] for mode, ink in INKS.items()}


VERDICT_INKS = {
    "green": {"light": "#0d6b3f", "dark": "#7fd8a6"}, "orange": {"light": "#7a4d00", "dark": "#f2c56b"},
    "red": {"light": "#a3201a", "dark": "#ff9d94"},
}  # fmt: skip
"""Of verdicts in HTML of ours, as of the static site; what is neither good nor bad is as the text."""


def mode() -> Literal["light", "dark"]:
    return "dark" if is_dark() else "light"


def ink() -> Ink:
    return INKS[mode()]


def plotly_template() -> Any:
    """Plotly layout in the page's colours and fonts, on the page's background: a saved picture keeps it."""
    import plotly.graph_objects as go

    colours, grid = ink(), ink().grid
    axis = {"gridcolor": grid, "linecolor": grid, "zerolinecolor": grid, "tickcolor": grid}
    axis |= {"ticks": "outside", "automargin": True}
    stops = {name: [[i / 16, c] for i, c in enumerate(palette(name)[mode()])] for name in ANCHORS}
    return go.layout.Template(
        layout={
            "font": {"family": "Inter, sans-serif", "size": 13, "color": colours.text},
            "paper_bgcolor": colours.page,
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": LINES[mode()],
            "colorscale": {"sequential": stops["score"], "diverging": stops["change"]},
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 48, "r": 16, "t": 24, "b": 40},
            "hoverlabel": {"font": {"family": "JetBrains Mono, monospace", "size": 12}},
        }
    )
