"""The first answer of a real server: Streamlit's page, and in it our styles and fonts."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest

from dashboard import warming
from dashboard.first_response import index
from dashboard.navigation import TITLES
from dashboard.theme import STYLES
from tests.browsing import served, server_of
from tests.dashboard.test_access import APP, get
from tests.waiting import wait


def test_every_page_brings_its_styles_and_fonts(tmp_path: Path) -> None:
    with served(APP, tmp_path) as url:
        pages = [get(url, f"/{name}") for name in ("", *TITLES)]
        text = pages[0].body.decode()
        assert {page.body for page in pages} == {pages[0].body} and {page.status for page in pages} == {200}
        assert f"<body><style>{STYLES.read_text('utf-8')}</style>" in text
        assert re.findall("<script.*?>", text) == re.findall("<script.*?>", index())
        fonts = re.findall(r'rel="preload" href="\./(app/static/[^"]+)" as="font"', text)
        assert len(fonts) == text.count('rel="preload"') == 2
        assert {get(url, f"/{font}").headers["Content-Type"] for font in fonts} == {"font/woff2"}


def test_the_server_imports_while_nobody_is_there(tmp_path: Path) -> None:
    with served(APP, tmp_path) as url:
        loaded = Path(f"/proc/{server_of(url).pid}/maps")
        wait(lambda: "numcodecs" in loaded.read_text())  # zarr's, which reading a trace takes
        assert "libtorch" not in loaded.read_text()


def test_what_is_imported_is_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is once something was imported is not looked through again; what comes later is."""
    monkeypatch.setattr(warming, "_kept", 0)
    before, first = gc.get_freeze_count(), [[] for _ in range(1000)]
    warming.keep()
    kept, later = gc.get_freeze_count(), [[] for _ in range(1000)]
    warming.keep()
    assert kept >= before + len(first) and gc.get_freeze_count() < kept + len(later)
