"""Streamlit's own page with our styles and fonts in it: what comes with the first answer moves nothing later."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route
from streamlit import config, file_util

from dashboard.navigation import TITLES
from dashboard.theme import STYLES
from tracer.cli.own_pages import asked

FONTS = ("inter-latin.woff2", "jetbrains-mono-latin.woff2")
"""Of dashboard/static: those that every page shows. Streamlit asks for its own font instead, which no page shows."""
_ITS_FONT = re.compile(r'<link\s+rel="preload"[^>]*\sas="font"[^>]*>')


@functools.cache
def index() -> str:
    """Streamlit's page, as it comes."""
    return (Path(file_util.get_static_dir()) / "index.html").read_text(encoding="utf-8")


@functools.cache
def first_page() -> str:
    """The same with ours; its styles stand in the body, since those of Streamlit's parts are added to the head."""
    fonts = "".join(
        f'<link rel="preload" href="./app/static/{name}" as="font" type="font/woff2" crossorigin>' for name in FONTS
    )
    head, body, rest = _ITS_FONT.sub(fonts, index(), count=1).partition("<body>")
    return f"{head}{body}<style>{STYLES.read_text('utf-8')}</style>{rest}"


def routes() -> list[Route]:
    """Every page by its name, and the one without."""
    base = config.get_option("server.baseUrlPath").strip("/")
    base = f"/{base}" if base else ""
    return [Route(f"{base}/{name}", _answer) for name in ("", "landing", *TITLES, *asked())]


async def _answer(_request: Request) -> HTMLResponse:
    return HTMLResponse(first_page(), headers={"Cache-Control": "no-cache"})
