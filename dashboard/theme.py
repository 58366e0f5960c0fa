"""How the dashboard looks: palettes by meaning for light and dark, number formats, head labels, status words.

Blue is attention (where a head looks), amber is a score of a head, blue-grey-orange is a signed change. Orange and blue
stay apart for every common kind of colour blindness, and lightness moves evenly along each ramp (tested).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ANCHORS: dict[str, dict[str, list[str]]] = {
    "attention": {
        "light": ["#eef1f7", "#c3d3f6", "#8dacf0", "#5480e4", "#2b55c4", "#183286", "#0d1a4a"],
        "dark": ["#1a202c", "#223763", "#2d539e", "#3f77d6", "#6c9ff5", "#a9c8fd", "#eaf2ff"],
    },
    "score": {
        "light": ["#f6f2ea", "#f5dfb4", "#efc06a", "#dd9a27", "#b5730f", "#93590c", "#6f420b"],
        "dark": ["#211e19", "#43331c", "#6b4d1a", "#9a6c18", "#cd9526", "#f0b94e", "#ffdf9e"],
    },
    "change": {
        "light": ["#123b8a", "#3f72cd", "#9dbcf0", "#eeeff2", "#f0b98d", "#cc6a1d", "#853f06"],
        "dark": ["#b5d0ff", "#5f97ee", "#2b5296", "#232833", "#8a4a17", "#e18a3c", "#ffdcb8"],
    },
}
"""Ramp anchors: attention and score run from nothing to all, change from negative through zero to positive."""

LINES = {
    "light": ["#0072b2", "#c2570c", "#00805c", "#a8478a", "#8a6d00", "#4b5bd1", "#b3261e", "#5b6472"],
    "dark": ["#56b4e9", "#f0954a", "#2fc79b", "#e08cc4", "#e6cf4a", "#9aa5ff", "#ff8a80", "#a9b4c4"],
}
"""Okabe and Ito's hues, darkened on light and lightened on dark until each line stands 3:1 from the page."""

_STATUS = {
    "training": ("◐", "#1d56c4", "#8db4ff"),
    "finished": ("✓", "#0a6b4e", "#4fd1a5"),
    "stopped": ("■", "#565f6e", "#a9b4c4"),
    "interrupted": ("◌", "#8a5200", "#f2b45c"),
    "diverged": ("✕", "#b3261e", "#ff8a80"),
    "healthy": ("✓", "#0a6b4e", "#4fd1a5"),
    "watch": ("△", "#8a5200", "#f2b45c"),
    "bad": ("✕", "#b3261e", "#ff8a80"),
}


@dataclass(frozen=True)
class Status:
    """A state as icon, word and colour: never colour alone."""

    icon: str
    text: str
    light: str
    dark: str


@dataclass(frozen=True)
class Scale:
    """How the values of one measure are coloured and printed."""

    label: str
    unit: str = ""
    lo: float = 0.0
    hi: float = 1.0
    palette: str = "score"
    digits: int = 2
    chance: float | None = None
    mark: str = "chance"
    """What the dashed line at `chance` is called."""

    def payload(self) -> dict[str, Any]:
        """The scale as the components' scripts read it; they know the palettes by name."""
        return asdict(self)


def status(name: str) -> Status:
    """The icon and colours of a run's status or of a health verdict."""
    if name not in _STATUS:
        raise ValueError(f"unknown status {name!r}; known: {', '.join(_STATUS)}")
    icon, light, dark = _STATUS[name]
    return Status(icon, name, light, dark)


def head_label(layer: int, head: int) -> str:
    """L1H4: zero-based layer and head."""
    return f"L{layer}H{head}"


def parse_head(label: str) -> tuple[int, int]:
    """(1, 4) from 'L1H4' (any case, spaces or a dot between)."""
    match = re.fullmatch(r"\s*L?(\d+)\s*[H.]\s*(\d+)\s*", label, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{label!r} is not a head; write it like L1H4")
    return int(match[1]), int(match[2])


_SHARES = ("normalised", "token", "induction", "share", "prob", "pattern", "attention")
_LOGS = ("ratio", "norm", "lr")


def fmt(value: float | None, measure: Any = "") -> str:
    """A number as the dashboard prints it: shares and losses to 3 decimals, norms to 3 digits, NaN as a dash."""
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else ("∞" if value > 0 else "−∞")
    name, unit = getattr(measure, "name", measure), getattr(measure, "unit", "")
    if float(value).is_integer() and (unit in ("step", "tokens") or name in ("step", "tokens_seen")):
        return f"{int(value):,}"
    if any(word in name for word in _SHARES) or unit in ("share", "nats") or "loss" in name or "entropy" in name:
        text = f"{value:.3f}"
    elif any(word in name for word in _LOGS) or (value and not 1e-3 <= abs(value) < 1e5):
        text = f"{value:.2e}" if value and not 1e-3 <= abs(value) < 1e4 else f"{value:.3g}"
    else:
        text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−") if text.strip("-0.") else text.lstrip("-")


def scale(measure: Any, values: Any = None) -> Scale:
    """The Scale of a registry measure (or of a bare name); an open end of its range is taken from the values."""
    name = getattr(measure, "name", str(measure))
    lo, hi = getattr(measure, "range", None) or (None, None)
    unit = getattr(measure, "unit", "")
    chance = getattr(measure, "chance", None)
    finite = [float(v) for v in getattr(values, "ravel", lambda: values or [])() if math.isfinite(v)]
    if lo is None or not math.isfinite(lo):
        lo = min([0.0, *finite])
    if hi is None or not math.isfinite(hi):
        hi = max(finite, default=lo + 1.0)
    kind = getattr(measure, "palette", "")
    meaning = {"diverging": "change", "change": "change", "attention": "attention"}.get(kind, "score")
    if meaning == "change":
        hi = max(abs(lo), abs(hi))
        lo = -hi
    return Scale(
        label=getattr(measure, "label", name.replace("_", " ").capitalize()),
        unit="" if unit in ("share", "1", "-") else unit,
        lo=lo,
        hi=hi if hi > lo else lo + 1.0,
        palette=meaning,
        chance=chance if isinstance(chance, int | float) else None,
    )


def palette(meaning: str, n: int = 17) -> dict[str, list[str]]:
    """n colours of a ramp in each theme, evenly spaced in OKLab between its anchors."""
    if meaning not in ANCHORS:
        raise ValueError(f"unknown palette {meaning!r}; known: {', '.join(ANCHORS)}")
    return {theme: ramp(anchors, n) for theme, anchors in ANCHORS[meaning].items()}


def layer_colours(n_layers: int) -> dict[str, list[str]]:
    """A colour per layer: distinct hues up to eight layers, beyond that one ordered ramp (early to late)."""
    if n_layers <= len(LINES["light"]):
        return {theme: colours[:n_layers] for theme, colours in LINES.items()}
    light, dark = ["#0072b2", "#7a4fb5", "#b5306f", "#a84a00"], ["#56b4e9", "#b79cff", "#ff8fbf", "#ffb057"]
    return {"light": ramp(light, n_layers), "dark": ramp(dark, n_layers)}


def ramp(anchors: Sequence[str], n: int) -> list[str]:
    """n colours through the anchors, interpolated in OKLab (Ottosson 2020), where equal distances look equal."""
    labs = [_oklab(c) for c in anchors]
    out = []
    for i in range(n):
        at = i / max(n - 1, 1) * (len(labs) - 1)
        k = min(int(at), len(labs) - 2)
        out.append(_hex([a + (b - a) * (at - k) for a, b in zip(labs[k], labs[k + 1], strict=True)]))
    return out


def contrast(one: str, other: str) -> float:
    """WCAG 2.2 contrast ratio of two opaque colours, 1 to 21; text needs 4.5, lines and large text 3."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def lightness(colour: str) -> float:
    """OKLab lightness, 0 black to 1 white."""
    return _oklab(colour)[0]


def is_dark() -> bool:
    """Whether this reader's page is dark now (False outside a page)."""
    import streamlit as st

    return st.context.theme.type == "dark"


def apply() -> None:
    """The chosen segment of a control in the text colour: Streamlit's accent on a tint of itself is too faint."""
    import streamlit as st

    chosen = '[data-testid="stButtonGroup"] [data-selected="true"]'
    st.html(f"<style>{chosen} {{ color: inherit !important; font-weight: 550; }}</style>")


def plotly_template(dark: bool) -> Any:
    """Plotly layout in the page's colours and fonts, on a transparent background."""
    import plotly.graph_objects as go

    mode = "dark" if dark else "light"
    ink, grid = ("#e8ecf4", "#2a303c") if dark else ("#111622", "#dfe3ea")
    axis = {
        "gridcolor": grid,
        "linecolor": grid,
        "zerolinecolor": grid,
        "ticks": "outside",
        "tickcolor": grid,
        "automargin": True,
    }
    stops = {name: [[i / 16, c] for i, c in enumerate(palette(name)[mode])] for name in ANCHORS}
    return go.layout.Template(
        layout={
            "font": {"family": "Inter, sans-serif", "size": 13, "color": ink},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": LINES[mode],
            "colorscale": {"sequential": stops["score"], "diverging": stops["change"]},
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 48, "r": 16, "t": 24, "b": 40},
            "hoverlabel": {"font": {"family": "JetBrains Mono, monospace", "size": 12}},
        }
    )


def _channels(colour: str) -> list[float]:
    """Linear-light red, green, blue of '#rrggbb'."""
    srgb = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in srgb]


def _luminance(colour: str) -> float:
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), _channels(colour), strict=True))


def _oklab(colour: str) -> list[float]:
    r, g, b = _channels(colour)
    lms = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    l_, m_, s_ = (c ** (1 / 3) for c in lms)
    return [
        0.2104542553 * l_ + 0.7936177850 * m_ - 0.0040720468 * s_,
        1.9779984951 * l_ - 2.4285922050 * m_ + 0.4505937099 * s_,
        0.0259040371 * l_ + 0.7827717662 * m_ - 0.8086757660 * s_,
    ]


def _hex(lab: Sequence[float]) -> str:
    light, a, b = lab
    l_, m_, s_ = (
        (light + 0.3963377774 * a + 0.2158037573 * b) ** 3,
        (light - 0.1055613458 * a - 0.0638541728 * b) ** 3,
        (light - 0.0894841775 * a - 1.2914855480 * b) ** 3,
    )
    linear = (
        4.0767416621 * l_ - 3.3077115913 * m_ + 0.2309699292 * s_,
        -1.2684380046 * l_ + 2.6097574011 * m_ - 0.3413193965 * s_,
        -0.0041960863 * l_ - 0.7034186147 * m_ + 1.7076147010 * s_,
    )
    srgb = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in (max(0.0, c) for c in linear))
    return "#" + "".join(f"{min(255, round(c * 255)):02x}" for c in srgb)
