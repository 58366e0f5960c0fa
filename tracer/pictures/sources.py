"""The scripts and styles of the parts, joined as a host mounts them: there is nothing to build."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tracer.pictures import colours

PARTS = Path(__file__).parent / "parts"


@dataclass(frozen=True)
class Source:
    """What a host mounts: an element, its style, and an ES module whose default export draws into it."""

    html: str
    css: str
    js: str


def text(path: str) -> str:
    """A file of the parts."""
    return (PARTS / path).read_text("utf-8")


def palettes() -> str:
    """Every ramp as JSON, each theme in nine stops; scripts mix what lies between."""
    return json.dumps({name: colours.palette(name, 9) for name in colours.ANCHORS})


def source(name: str, shared: bool = True) -> Source:
    """A part by its name; `shared`: with what every picture needs, which the cue does not."""
    hub, script, style = text("shared/hub.js"), text(f"{name}/{name}.js"), text(f"{name}/{name}.css")
    html = f'<div class="part {name}"></div>'
    if not shared:
        return Source(html, style, hub + script)
    joined = f"const PALETTES = {palettes()};\n{hub}{text('shared/shared.js')}{script}"
    return Source(html, text("shared/shared.css") + style, joined)
