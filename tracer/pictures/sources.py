"""The scripts and styles of the parts, joined as a host mounts them: there is nothing to build."""

from __future__ import annotations

import json
import re
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


def common() -> str:
    """What stands in front of every part's script."""
    files = ("shared/hub.js", "shared/topics.js", "shared/shared.js")
    return f"const PALETTES = {palettes()};\n" + "".join(map(text, files))


def script(name: str) -> str:
    """A part's own files, in order of their names."""
    return "".join(text(f"{name}/{path.name}") for path in sorted((PARTS / name).glob("*.js")))


def source(name: str, shared: bool = True) -> Source:
    """A part by its name; `shared`: with what every picture needs, which the cue does not."""
    style, html = text(f"{name}/{name}.css"), f'<div class="part {name}"></div>'
    if not shared:  # it travels with every rerun: without comments
        return Source(html, style, re.sub(r"(?m)^//.*\n", "", text("shared/hub.js") + script(name)))
    return Source(html, text("shared/shared.css") + style, common() + script(name))
