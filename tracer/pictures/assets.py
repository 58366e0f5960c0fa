"""The scripts and styles of the parts, joined as a host mounts them: there is nothing to build.

A part is a folder with a script of its name: a picture, or in `serving` what serves a page and shows nothing.

A host takes one part as a module of its own (`source`), some of them in one script (`bundle`), or all of them at once
(`all_parts`) and then an element for each (`element`), which says nothing but the name of its part.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracer.pictures import colours

HERE = Path(__file__).parent
SHARED = (
    "streamlit", "topics", "payload", "film", "numbers", "axes", "colours", "elements", "canvas", "matrix", "part",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """What a host mounts: an element, its style, and an ES module whose default export draws into it."""

    html: str
    css: str
    js: str


@functools.cache
def folders() -> dict[str, Path]:
    """The folder of each part, by the part's name."""
    return {path.stem: path.parent for path in sorted(HERE.rglob("*.js")) if path.stem == path.parent.name}


def text(name: str) -> str:
    """A file that parts have in common."""
    return (HERE / "common" / name).read_text("utf-8")


def common() -> str:
    """What every part's script uses, with every ramp: each theme in nine stops, and scripts mix what lies between."""
    palettes = json.dumps({name: colours.palette(name, 9) for name in colours.ANCHORS})
    return f"const PALETTES = {palettes};\n" + "".join(text(f"{name}.js") for name in SHARED)


def script(name: str) -> str:
    """A part's own files, in order of their names."""
    return "".join(path.read_text("utf-8") for path in sorted(folders()[name].glob("*.js")))


def style(name: str) -> str:
    """A part's own style, which may be none."""
    path = folders()[name] / f"{name}.css"
    return path.read_text("utf-8") if path.exists() else ""


def styles(names: Sequence[str]) -> dict[str, str]:
    """Of parts that are each in a root of their own, and what these have in common."""
    return {"shared": text("shared.css"), **{name: style(name) for name in names}}


def html(name: str) -> str:
    """The element that a part draws into."""
    return f'<div class="part {name}"></div>'


def source(name: str) -> Source:
    """A part by its name, with all that it needs."""
    return Source(html(name), text("shared.css") + style(name), common() + script(name))


def bundle(names: Sequence[str]) -> str:
    """Parts in one script, as VIEWS by name: each keeps its own names, and they share `common`."""
    views = ",\n".join(
        f"{json.dumps(name)}: (() => {{ let entry;\n{entry(name)}\nreturn entry; }})()" for name in names
    )
    return f"{common()}\nconst VIEWS = {{\n{views}\n}};\n"


def entry(name: str) -> str:
    """A part's script with its default export as a variable."""
    before, after = re.split(r"^export default ", script(name), flags=re.M)
    return f"{before}entry = {after}"


def all_parts() -> str:
    """Every part in one module, whose default export draws the one whose `element` it is given."""
    names = sorted(folders())
    begin = "VIEWS.saver();\nVIEWS.address();\nexport default drawElement;\n"
    return f"{bundle(names)}const STYLES = {json.dumps(styles(names))};\n{begin}"


def element(name: str) -> Source:
    """A part that waits for all parts, which an `opener` brings: its script goes along with every change of data."""
    return Source(html(name), "", text("wait.js"))


def opener() -> Source:
    """What a page mounts once: its data are the bytes of `all_parts`, deflated."""
    return Source("<i></i>", "", text("open.js"))
