"""Pictures as one HTML file that needs nothing else: no server, no network, no other file.

1. A mount is a picture as the dashboard mounts it; common/host.js joins what they pick.
2. The script and the style are allowed by their hashes and nothing else is (Content-Security-Policy), so that neither a
   token nor a name can run or load anything; what they say is JSON without a "<", or escaped text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tracer.pictures.assets import bundle, style, styles, text
from tracer.pictures.colours import FONTS, SURFACES
from tracer.pictures.picture import Picture

LOCAL = {"localhost", "127.0.0.1", "::1"}
HEAD = '<span class="head-label">{}</span>'
"""The head in focus inside a title; the script keeps it up to date."""


@dataclass(frozen=True)
class Mount:
    """A picture on the page."""

    key: str
    picture: Picture
    title: str = ""
    """A heading; "{head}" in it is the head in focus."""
    caption: str = ""
    template: Mapping[str, Any] | None = None
    """Of atlas and pattern instead of bytes: a header, which the script completes from the cells of the token view."""
    wide: bool = False


@dataclass(frozen=True)
class Note:
    """Something to read below the pictures: code, terms with what they mean, or a link."""

    title: str
    code: str = ""
    terms: Sequence[tuple[str, str]] = ()
    link: str = ""
    copies: bool = False
    wide: bool = False


def page(
    title: str, line: str, mounts: Sequence[Mount], notes: Sequence[Note] = (), *, about: Mapping[str, Any], foot: str
) -> str:
    """The whole file. `about`: run, step and head in focus, for names of saved files and for the first pattern."""
    sections = "\n".join([*(_section(mount, about) for mount in mounts), notes_html(notes)])
    return document(title, line, sections, mounts, about=about, foot=foot)


def is_local(link: str) -> bool:
    """Does it lead to the computer that it is opened on?"""
    return urlsplit(link).hostname in LOCAL


def document(
    title: str,
    line: str,
    body: str,
    mounts: Sequence[Mount],
    *,
    about: Mapping[str, Any],
    foot: str,
    apart: bool = False,
    look: str = "",
) -> str:
    """A file around a body that has a place for each mount. `apart`: the style of a part reaches no other one.

    `look`: a style of its own, besides."""
    look, code = _style(() if apart else _parts(mounts)) + look, _script(_parts(mounts), apart)
    held = {"about": dict(about), "mounts": [_held(mount) for mount in mounts]}
    data = json.dumps(held, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    policy = (
        f"default-src 'none'; script-src '{_digest(code)}'; style-src '{_digest(look)}'; img-src data: blob:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(title)}</title>\n<style>{look}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{html.escape(title)}</h1><p>{html.escape(line)}</p></header>\n{body}\n"
        f"<footer>{html.escape(foot)}</footer>\n</main>\n"
        f'<script type="application/json" id="view">{data}</script>\n<script>{code}</script>\n</body>\n</html>\n'
    )


def _held(mount: Mount) -> dict[str, Any]:
    picture = mount.picture
    blob = base64.b64encode(picture.blob).decode() if picture.blob is not None else None
    cue = {"value": picture.value, "seen": 0, **picture.cue}
    return {"part": picture.part, "key": mount.key, "blob": blob, "cue": cue, "template": mount.template}


def _section(mount: Mount, about: Mapping[str, Any]) -> str:
    head = HEAD.format("L{}H{}".format(*about["head"]))
    title = html.escape(mount.title).replace("{head}", head)
    caption = f"<p>{html.escape(mount.caption)}</p>" if mount.caption else ""
    wide = ' class="wide"' if mount.wide else ""
    heading = f"<h2>{title}</h2>" if title else ""
    return (
        f'<section{wide}>{heading}{caption}<div class="mount st-key-{mount.key}">'
        f'<div class="part {mount.picture.part}"></div></div></section>'
    )


def notes_html(notes: Sequence[Note]) -> str:
    """What is to be read below the pictures."""
    return f'<div class="notes wide">{"".join(map(_note, notes))}</div>' if notes else ""


def _note(note: Note) -> str:
    copy = '<button class="copy" type="button">Copy</button>' if note.copies else ""
    # a leading newline of a <pre> would be dropped
    code = f'<div class="code">{copy}<pre tabindex="0">\n<code>{html.escape(note.code)}</code></pre></div>'
    terms = "".join(f"<dt>{html.escape(term)}</dt><dd>{html.escape(means)}</dd>" for term, means in note.terms)
    link = html.escape(note.link)
    if note.link.startswith(("http://", "https://")):
        link = f'<a href="{link}" rel="noreferrer">{link}</a>'
    here = " (of the computer that made this file, and only there)" if is_local(note.link) else ""
    link = f"<p>In the dashboard{here}: {link}</p>" if link else ""
    wide = ' class="wide"' if note.wide else ""
    return (
        f"<section{wide}><h2>{html.escape(note.title)}</h2>{code if note.code else ''}{link}"
        f"{f'<dl>{terms}</dl>' if terms else ''}</section>"
    )


def _parts(mounts: Sequence[Mount]) -> list[str]:
    return list(dict.fromkeys([*(mount.picture.part for mount in mounts), "saver"]))


def _style(parts: Sequence[str]) -> str:
    def variables(mode: str) -> str:
        return ";".join(f"--st-{name}:{value}" for name, value in {**SURFACES[mode], **FONTS}.items())

    theme = f":root{{{variables('light')}}}@media (prefers-color-scheme: dark){{:root{{{variables('dark')}}}}}\n"
    return theme + text("host.css") + text("shared.css") + "".join(map(style, parts))


def _script(parts: Sequence[str], apart: bool) -> str:
    own = json.dumps(styles(parts) if apart else None)
    return f'"use strict"; (() => {{\nconst STYLES = {own};\n{bundle(parts)}{text("host.js")}\n}})();'


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
