"""Docstrings of the house, which are plain text with `code` and indented examples, as the reStructuredText of autodoc.

1. Lines that are indented below a paragraph are an example: a literal block.
2. `name` is code. What else reStructuredText would read as markup (*args, W_, |x|) is said as it stands.
3. A line that ends before its time, so that the next word would have fitted, ends a paragraph; "Source:" begins one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

ITEM = re.compile(r"(\d+\.|-) ")
CODE = re.compile(r"`([^`]+)`")
FULL = 105
"""Columns that a line is filled to at least, as docstrings of methods are indented by 8 of 120."""
MARKUP = re.compile(r"[\\*|]|_(?!\w)")


def restructured(lines: list[str]) -> list[str]:
    """The lines of a docstring, for Sphinx."""
    return [said for paragraph in _paragraphs(lines) for said in [*_paragraph(paragraph), ""]]


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Lines that belong together; an example below a paragraph, and each item of a list, is one of its own."""
    for blank, group in groupby(lines, lambda line: not line.strip()):
        found: list[str] = []
        for line in () if blank else group:
            begins = ITEM.match(line) or line.startswith("Source:")
            if found and (begins or (not ITEM.match(found[0]) and _parted(found[-1], line))):
                yield found
                found = []
            found.append(line)
        if found:
            yield found


def _parted(one: str, other: str) -> bool:
    """Is there an example on one side only, or did a line of text end early?"""
    short = len(f"{one} {other.split()[0]}") <= FULL
    return _example(one) != _example(other) or (short and not _example(one))


def _example(line: str) -> bool:
    return line.startswith("    ")


def _paragraph(lines: list[str]) -> list[str]:
    if _example(lines[0]):
        return ["::", "", *lines]
    if item := ITEM.match(lines[0]):
        first, *rest = (line.strip() for line in lines)
        said = _escaped("\n".join([first.removeprefix(item[0]), *rest])).split("\n")
        indent = " " * len(item[0])
        return [item[0] + said[0], *(indent + line for line in said[1:])]
    return _escaped("\n".join(lines)).split("\n")


def _escaped(text: str) -> str:
    """The pieces between backticks are code, and odd ones: `re.split` gives them at every second place."""
    pieces = CODE.split(text)
    pieces[::2] = [MARKUP.sub(lambda found: "\\" + found[0], piece) for piece in pieces[::2]]
    pieces[1::2] = [f"\\ ``{' '.join(piece.split())}``\\ " for piece in pieces[1::2]]
    return "".join(pieces)
