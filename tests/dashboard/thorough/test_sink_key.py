"""Every page of a model whose attention has a key that is no token (gpt-oss's sinks)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import tracer
from tests.causal_families import gpt_oss


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    gpt_oss().save_pretrained("saved")
    tracer.open_hf("saved", "oss", rows=2)
    return tmp_path


@pytest.mark.parametrize("page", ["heads", "ablate", "circuits", "training", "find"])
def test_a_sink_is_no_token_on_any_page(elsewhere: Path, open_page: Callable[..., AppTest], page: str) -> None:
    app = open_page(page, run="oss", prompt="5 7 9 5 7 2 3", layer=1, head=2)
    assert not app.exception
