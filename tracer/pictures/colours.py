"""The colours of the pictures: palettes by meaning for light and dark, even ramps in OKLab, contrast.

Blue is attention (where a head looks), amber is a score of a head, blue-grey-orange is a signed change, olive to
magenta is a layer. Orange and blue
stay apart for every common kind of colour blindness, and lightness moves evenly along each ramp (tested).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    "pace": {
        "light": ["#123b8a", "#3f72cd", *["#e2e5ea"] * 5, "#cc6a1d", "#853f06"],
        "dark": ["#b5d0ff", "#5f97ee", *["#2b313d"] * 5, "#e18a3c", "#ffdcb8"],
    },
}
"""Ramp anchors: attention and score run from nothing to all, change from negative through zero to positive; pace is a
change whose middle half is as usual, and grey."""

SURFACES = {
    "light": {
        "background-color": "#ffffff",
        "secondary-background-color": "#f4f6f9",
        "text-color": "#111622",
        "primary-color": "#111622",
        "link-color": "#1d56c4",
    },
    "dark": {
        "background-color": "#0f1218",
        "secondary-background-color": "#181c25",
        "text-color": "#e8ecf4",
        "primary-color": "#66738a",
        "link-color": "#8db4ff",
    },
}
"""What a part reads as --st-<name> from the page around it; the dashboard's own theme says the same (tested)."""
FONTS = {"font": "Inter, system-ui, sans-serif", "code-font": "JetBrains Mono, ui-monospace, monospace"}

LINES = {
    "light": ["#0072b2", "#c2570c", "#00805c", "#a8478a", "#8a6d00", "#4b5bd1", "#b3261e", "#5b6472"],
    "dark": ["#56b4e9", "#f0954a", "#2fc79b", "#e08cc4", "#e6cf4a", "#9aa5ff", "#ff8a80", "#a9b4c4"],
}
"""Okabe and Ito's hues, darkened on light and lightened on dark until each line stands 3:1 from the page."""

LAYERS = {"light": ["#55701c", "#0b7a6f", "#6a4fc0", "#b0306f"], "dark": ["#b7cf6a", "#4fc9b5", "#b39cff", "#ff8fbf"]}
"""Anchors from the first layer to the last: olive, teal, violet, magenta."""


def palette(meaning: str, n: int = 17) -> dict[str, list[str]]:
    """n colours of a ramp in each theme, evenly spaced in OKLab between its anchors."""
    if meaning not in ANCHORS:
        raise ValueError(f"unknown palette {meaning!r}; known: {', '.join(ANCHORS)}")
    return {theme: ramp(anchors, n) for theme, anchors in ANCHORS[meaning].items()}


def layer_colours(n_layers: int) -> dict[str, list[str]]:
    """A colour per layer, from early to late: hues that no other meaning has."""
    few = {1: slice(1, 2), 2: slice(1, None, 2), 3: slice(1, None)}.get(n_layers)
    return {theme: ramp(hues, n_layers) if few is None else hues[few] for theme, hues in LAYERS.items()}


def group_colours(n_groups: int) -> dict[str, list[str]]:
    """A colour per group of lines that are no layers: distinct hues up to eight, beyond that one ordered ramp."""
    if n_groups <= len(LINES["light"]):
        return {theme: colours[:n_groups] for theme, colours in LINES.items()}
    light, dark = ["#0072b2", "#7a4fb5", "#b5306f", "#a84a00"], ["#56b4e9", "#b79cff", "#ff8fbf", "#ffb057"]
    return {"light": ramp(light, n_groups), "dark": ramp(dark, n_groups)}


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
