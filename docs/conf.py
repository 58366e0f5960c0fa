"""The documentation site, for Sphinx: `make docs` writes it to build/docs. Nothing is fetched, then or later."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from building import docstrings, measures  # noqa: E402  the paths come first

from tracer.pictures.colours import LINES, SURFACES  # noqa: E402

project = "manyeyes"
html_title = "manyeyes"
copyright = "the authors of manyeyes, MIT licence"
extensions = ["sphinx.ext.autodoc", "myst_parser"]
exclude_patterns = ["building"]
nitpicky = False  # annotations name types of torch and xarray, whose pages are not at hand offline

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 3
MOVED = {"../SECURITY.md": "security.md", "../checkpoints/README.md": "run-format.md"}
"""Pages of the repository as they are linked from docs/, and where the site has them."""
MENU = re.compile(r"^<!-- toctree\n(.*?)-->", re.M | re.S)
"""Of the site; the repository has links in its place."""
DRAWING = re.compile(r"^!\[[^\]]*\]\((\w+\.svg)\)$", re.M)
"""A file of docs/ that the site shows in its own colours."""
FUNCTION = re.compile(r"`(tracer(?:\.\w+)+)`(?= |,)")
FORGE = re.compile(r"^\*On a forge: .*\n+", re.M)
"""Says, where pages are read in the repository, where to find what only the site shows in their place."""

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False  # those of Lightning and torch are not ours
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_theme_options = {
    f"{theme}_css_variables": {
        "color-brand-primary": colours["link-color"], "color-brand-content": colours["link-color"],
        "color-api-name": colours["link-color"], "color-code-background": colours["secondary-background-color"],
        "color-background-primary": colours["background-color"],
        "color-background-secondary": colours["secondary-background-color"],
        "color-foreground-primary": colours["text-color"],
        **{f"line-{n}": line for n, line in enumerate(LINES[theme])},
    }
    for theme, colours in SURFACES.items()
}  # fmt: skip
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "github-dark"
highlight_language = "none"


def read(app: Any, name: str, source: list[str]) -> None:
    """A page before it is parsed: links to what lies elsewhere in the repository, and what is made from the code."""
    source[0] = FORGE.sub("", source[0])
    for path, page in MOVED.items():
        source[0] = source[0].replace(f"]({path}", f"]({page}")
    source[0] = DRAWING.sub(r"```{raw} html\n:file: \1\n```", MENU.sub(r"```{toctree}\n\1```", source[0]))
    if name == "measures":
        source[0] = FUNCTION.sub(r"{func}`\1`", source[0])
    kept = HERE / "measures.json"
    source[0] = measures.drawn(measures.written(source[0], kept), kept)


def docstring(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    said = lines.index("Attributes:") if what == "class" and "Attributes:" in lines else len(lines)
    lines[:] = docstrings.restructured(lines[:said])  # fields stand below it as members, with their types


def setup(app: Any) -> None:
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", docstring)
