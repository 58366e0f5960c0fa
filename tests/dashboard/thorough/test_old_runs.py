"""Runs of before there was one format, on every page."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.store.test_earlier_formats import KEPT, NAMES

PAGES = ("ablate", "circuits", "find", "gradients", "heads", "phases", "runs", "training")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place, before = tmp_path_factory.mktemp("old"), Path.cwd()
    with tarfile.open(KEPT) as kept:
        kept.extractall(place / "checkpoints", filter="data")
    os.chdir(place)
    yield place
    os.chdir(before)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", NAMES)
def test_they_open(elsewhere: Path, open_page: Callable[..., AppTest], name: str, page: str) -> None:
    app = open_page(page, run=name, layer=0, head=1)
    said = " ".join(one.value for kind in (app.markdown, app.caption, app.info) for one in kind)
    assert len(said) > 100 and not app.error and "cannot be read" not in said
