"""A page of the dashboard as one file: what stood on it, in its order, with its pictures alive.

1. A block is what stands at one place: a heading, a text, a number, a picture. Its `at` is the row of columns it stands
   in, and which of them; None is the whole width.
2. A picture goes in as its own bytes and its own cue; a chart that is not ours goes in as it stood.
3. What a picture asks of the model only the page can answer: there it says so.
4. Markdown and markup go in as the plain tags of text: no attribute, no link, no style, no script. A drawing goes in
   as an image that holds all of itself: an image runs nothing and loads nothing.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

from markdown_it import MarkdownIt

from tracer.pictures.page import Mount, Note, document, notes_html
from tracer.pictures.picture import Picture

Block = dict[str, Any]
UNSEEN = ("address", "all_parts", "cue", "film", "keys", "landing", "pulse", "reel", "rule", "saver", "scheme", "taker")
"""Parts that serve a page and show nothing."""
ASKING = {
    "overview": "The window is the one of the page. Another one takes the model: follow the link below.",
}
"""Parts that are of no use alone, and what is said below them."""
SHOWING = ("part", "table", "still", "fact")
LONG = 9
"""Letters of a number that nobody reads to its end."""
END: Block = {"kind": "heading"}
STILL = "A still picture: on the page it can be zoomed, read point by point, and saved by the camera in its corner."
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
DIRECTIVE = re.compile(r":material/\w+:|:[a-z]+(?:-[a-z]+)*\[([^\]]*)\]")
"""Streamlit's own in Markdown: an icon, or coloured words."""
TAGS = {"p", "b", "strong", "i", "em", "small", "br", "code", "pre", "ul", "ol", "li", "h3", "h4"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
DRAWING = re.compile(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+")
ONLY_THERE = "A chart that only the page can draw: the camera in its corner there saves it."


def taken(
    title: str,
    line: str,
    blocks: Iterable[Block],
    drawn: Mapping[str, Picture],
    notes: Sequence[Note] = (),
    *,
    about: Mapping[str, Any],
    foot: str,
) -> str:
    """The file. `drawn` holds the parts of the page by key; `about` as in `pictures.page`."""
    seen = [block for block in blocks if block["kind"] != "part" or drawn[block["key"]].part not in UNSEEN]
    # isolated: a name that is written from right to left turns nothing else around
    chosen = [f"{block['label']}: \u2068{block['value']}\u2069" for block in seen if block["kind"] == "choice"]
    shown = list(_without_tools(block for block in seen if block["kind"] not in ("choice", "prompt")))
    keys = dict.fromkeys(block["key"] for block in shown if block["kind"] == "part")
    reels = [key for key, one in drawn.items() if one.part == "reel" and any(drawn[k].part == "scrubber" for k in keys)]
    mounts = [Mount(key, drawn[key]) for key in (*keys, *reels)]
    films = "".join(f"<div hidden>{_part(key, drawn)}</div>" for key in reels)
    body = f'<div class="taken wide">{_rows(shown, drawn)}</div>{films}{notes_html(notes)}'
    return document(
        title, " · ".join([line, *chosen]), body, mounts, about={**about, "taken": True}, foot=foot, apart=True
    )


def _without_tools(blocks: Iterable[Block]) -> Iterator[Block]:
    """Buttons work on the page only: one is named where a section has nothing else to show."""
    held: list[Block] = []
    for block in [*blocks, END]:
        if block["kind"] == "heading":
            shows = any(one["kind"] in SHOWING for one in held)
            yield from (one for one in held if one["kind"] != "button" or not shows)
            held = []
        held.append(block)


def _rows(blocks: list[Block], drawn: Mapping[str, Picture]) -> str:
    """Blocks that stand side by side, side by side."""
    rows = []
    for _, row in groupby(blocks, key=lambda block: block["at"] and block["at"][0]):
        columns: dict[int, list[Block]] = {}
        for block in row:
            columns.setdefault(block["at"][1] if block["at"] else 0, []).append(block)
        inner = "".join(f'<div class="column">{_column(column, drawn)}</div>' for column in columns.values())
        rows.append(f'<div class="row of{min(len(columns), 3)}">{inner}</div>')
    return "\n".join(rows)


def _column(blocks: list[Block], drawn: Mapping[str, Picture]) -> str:
    parts = []
    for kind, group in groupby(blocks, key=lambda block: block["kind"]):
        if kind == "place":
            parts.append(f'<p class="place">{" · ".join(_inline(block["text"]) for block in group)}</p>')
        else:
            told = "".join(_block(block, drawn) for block in group)
            parts.append(f'<dl class="facts">{told}</dl>' if kind == "fact" else told)
    return "".join(parts)


def _block(block: Block, drawn: Mapping[str, Picture]) -> str:
    match block["kind"]:
        case "part":
            return _part(block["key"], drawn)
        case "heading":
            level = min(max(int(block["level"]), 2), 4)
            return f"<h{level}>{_inline(block['text'])}</h{level}>"
        case "markdown":
            return plain(_markdown(block["text"]))
        case "note":
            return f'<div class="note">{plain(_markdown(block["text"]))}</div>'
        case "markup":
            return plain(block["text"])
        case "text":
            return f'<p class="text">{html.escape(block["text"])}</p>'
        case "code":
            return f'<pre tabindex="0">\n<code>{html.escape(block["text"])}</code></pre>'
        case "fact":
            note = f'<dd class="note">{_inline(block["note"])}</dd>' if block["note"] else ""
            return f"<div><dt>{_inline(block['label'])}</dt><dd>{html.escape(block['text'])}</dd>{note}</div>"
        case "button":
            return f'<p class="left">Not asked for. On the page: “{_inline(block["text"])}”.</p>'
        case "table":
            return _table(block["rows"], int(block["more"]))
        case "still":
            return _still(block.get("svg"), block["alt"])
    return ""


def _markdown(text: str) -> str:
    return MARKDOWN.render(DIRECTIVE.sub(r"\1", text))


def _inline(text: str) -> str:
    return plain(MARKDOWN.renderInline(DIRECTIVE.sub(r"\1", text))).strip()


def plain(markup: str) -> str:
    """Its text, with the tags of text and no other."""
    reader = _Plain()
    reader.feed(markup)
    reader.close()
    return "".join(reader.out)


class _Plain(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.out: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in ("style", "script")
        if tag == "img" and DRAWING.fullmatch(source := dict(attrs).get("src") or ""):
            self.out.append(f'<img class="drawing" alt="" src="{source}">')
        open_table = '<div class="scroll" tabindex="0" role="region" aria-label="Table">' if tag == "table" else ""
        self.out.append(f"{open_table}<{tag}>" if tag in TAGS else " ")

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("style", "script")
        self.out.append((f"</{tag}>" if tag in TAGS else " ") * (tag != "br") + ("</div>" if tag == "table" else ""))

    def handle_data(self, data: str) -> None:
        self.out.append("" if self.silent else html.escape(data))


def _part(key: str, drawn: Mapping[str, Picture]) -> str:
    part = drawn[key].part
    held = f'<div class="mount st-key-{html.escape(key)}"{" inert" if part in ASKING else ""}>'
    left = f'<p class="left">{ASKING[part]}</p>' if part in ASKING else ""
    return f'{held}<div class="part {part}"></div></div>{left}'


def _table(rows: Sequence[Sequence[str]], more: int) -> str:
    top, *body = rows
    columns = list(zip(*body, strict=True)) or [("",)] * len(top)
    look = [' class="number"' if all(map(_is_number, column)) else "" for column in columns]
    head = "".join(f'<th scope="col"{of}>{html.escape(cell)}</th>' for cell, of in zip(top, look, strict=True))
    cells = [[f"<td{of}>{html.escape(_short(cell))}</td>" for cell, of in zip(row, look, strict=True)] for row in body]
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    left = f'<p class="left">And {more:,} more rows, which the bar of the table on the page saves as CSV.</p>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{table}</div>{left if more else ""}'


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True


def _short(cell: str) -> str:
    """Four digits of a number that came with all of its own."""
    return f"{float(cell):.4g}" if len(cell) > LONG and "," not in cell and _is_number(cell) else cell


def _still(svg: str | None, alt: str) -> str:
    if svg is None:
        return f'<p class="left">{ONLY_THERE}</p>'
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
    return f'<img class="still" src="{source}" alt="{html.escape(alt)}"><p class="left">{STILL}</p>'
