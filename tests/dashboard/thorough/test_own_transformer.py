"""A `tracer.Transformer` that somebody trained in a loop of their own: pages run it as they run ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from streamlit.testing.v1 import AppTest

import tracer
from dashboard.navigation import TITLES
from tests.dashboard.words import written
from tracer.config import ModelConfig

SHAPES = {
    "plain": ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=32, d_vocab=40),
    "post": ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=32, d_vocab=40, norm_position="post"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for each shape, of four updates."""
    folder = tmp_path_factory.mktemp("own")
    for name, config in SHAPES.items():
        model, draw = tracer.Transformer(config, seed=1), torch.Generator().manual_seed(2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        with tracer.watch(model, run=folder / "checkpoints" / name, every=1) as recorder:
            for _ in range(4):
                ids = torch.randint(40, (8, 32), generator=draw)
                loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
    return folder


@pytest.mark.parametrize("page", TITLES)
@pytest.mark.parametrize("name", SHAPES)
def test_every_page_opens(
    name: str, page: str, folder: Path, open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    app = open_page(page, run=name, prompt="5 6 7 5 6", off=((1, 0),))
    assert not app.exception and not app.error, written(app)
    assert "code of this model" not in written(app)


def test_a_prompt_of_ones_own_is_run(
    folder: Path, open_page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    app = open_page("heads", run="plain", prompt="5 6 7 5 6", layer=1, head=1)
    assert "All heads on this prompt" in written(app)
