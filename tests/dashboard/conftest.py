"""One small real run for every page's tests, and a way to open the app on it as a person with a link would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from torch import nn

import tracer
from dashboard import jobs
from dashboard.state import Selection
from tracer.data.tokenizer import BOS, train_bpe
from tracer.pictures import payload
from tracer.store import Run

APP = Path(__file__).parents[2] / "dashboard" / "app.py"


@pytest.fixture(scope="session")
def small_run(short_toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The short toy in FOLDER/checkpoints/tiny, this worker's own; `small_run.dir.parents[1]` is FOLDER."""
    return Run(shutil.copytree(short_toy, tmp_path_factory.mktemp("runs") / "checkpoints" / "tiny"))


@pytest.fixture(scope="module")
def long_run(long_toy: Path, small_run: Run) -> Iterator[Run]:
    """Beside `tiny`, `long` with room for 600 tokens."""
    directory = shutil.copytree(long_toy, small_run.dir.with_name("long"))
    yield Run(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="session", autouse=True)
def packages_read_once() -> Iterator[None]:
    """A server reads the metadata of all installed packages once; an AppTest does at each run: half of all its work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture
def none_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that has started nothing yet, and no process of its left behind."""
    monkeypatch.setattr(jobs, "_STARTED", {})
    monkeypatch.setattr(jobs, "_BESIDE", {})
    monkeypatch.setattr(jobs, "_SERIES", [])
    yield
    for one in [*jobs._STARTED.values(), *jobs._BESIDE.values(), *jobs._SERIES]:
        if one.alive:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def workplace(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder the dashboard is started in: its checkpoints/ holds the run `tiny`."""
    folder = small_run.dir.parents[1]
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def copy_run(small_run: Run, workplace: Path) -> Iterator[Callable[..., Run]]:
    """copy_run("other", status="diverged", ...): the run again under another name, with changes to its run.json."""
    made = []

    def copy(name: str, **changes: Any) -> Run:
        directory = workplace / "checkpoints" / name
        shutil.copytree(small_run.dir, directory)
        made.append(directory)
        meta = directory / "run.json"
        meta.write_text(json.dumps({**json.loads(meta.read_text()), "name": name, **changes}))
        return Run(directory)

    yield copy
    for directory in made:
        shutil.rmtree(directory)


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Callable[..., AppTest]:
    """open_page("training", run="tiny", step=10): a page, run once without a traceback, with this selection."""
    return opener(request)


def opener(request: pytest.FixtureRequest, after: str = "") -> Callable[..., AppTest]:
    """`open_page`; `after` follows the page in the script, with its name for {page!r}."""
    if "elsewhere" not in request.fixturenames:
        request.getfixturevalue("workplace")

    def opened(page: str, **selection: Any) -> AppTest:
        script = (
            f"import sys; sys.path.insert(0, {str(APP.parents[1])!r})\n"
            f"from dashboard.views.{page}.page import page\npage()\n" + after.format(page=page)
        )
        app = AppTest.from_string(script, default_timeout=300)
        app.session_state["selection"] = Selection(**selection)
        app.run()
        assert not app.exception, app.exception[0].message
        return app

    return opened


@pytest.fixture
def sent() -> Callable[[AppTest, str], tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]]:
    """sent(app, "loss"): header and arrays of the payload that this component got, and its cue."""

    def unpacked(app: AppTest, key: str) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
        parts = {e.proto.id.rpartition("-")[2]: e.proto for e in app.get("bidi_component")}
        return *payload.unpack(parts[key].bytes), json.loads(parts[f"{key}:cue"].json)

    return unpacked


class Patches(nn.Module):
    """A transformer over 9 vectors: no tokens, no mask, a wide layer and a narrow one."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(16, n, 32, 0.0, batch_first=True) for n in (4, 2)])
        self.out = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean(1))


def gpt(d_vocab: int = 60) -> Any:
    """A Hugging Face model of 2 layers and 2 heads, random."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": d_vocab, "n_positions": 48}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, initializer_range=0.4))


def watched(model: nn.Module, directory: Path, loss: Callable[[int], torch.Tensor], steps: int = 6) -> Run:
    """A few updates in a loop of one's own, recorded at every second of them."""
    recorder = tracer.watch(model, run=directory, every=2)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(steps):
        value = loss(step)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        recorder.step(value)
    recorder.close()
    assert recorder.off is None, recorder.off
    return Run(directory)


@pytest.fixture(scope="session")
def patches() -> Patches:
    torch.manual_seed(1)
    return Patches()


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory, patches: Patches) -> Path:
    """A folder with runs of models that other people wrote: `patches` and `gpt` watched, `opened` from checkpoints."""
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("others")
    draw = torch.Generator().manual_seed(2)
    inputs = torch.randn(32, 9, 16, generator=draw)
    answers = torch.randint(3, (32,), generator=draw)
    watched(
        patches, folder / "checkpoints" / "patches", lambda _: nn.functional.cross_entropy(patches(inputs), answers)
    )
    model, ids = gpt(), torch.randint(60, (32, 24), generator=draw)
    watched(model, folder / "checkpoints" / "gpt", lambda _: model(input_ids=ids, labels=ids).loss)
    words = PreTrainedTokenizerFast(tokenizer_object=train_bpe(["def f(x):\n    return x\n"] * 9, 257), bos_token=BOS)
    for step in (10, 20):
        gpt(257).save_pretrained(folder / "saved" / f"checkpoint-{step}")
        words.save_pretrained(folder / "saved" / f"checkpoint-{step}")
    tracer.open_hf(folder / "saved", str(folder / "checkpoints" / "opened"), rows=2)
    return folder


@pytest.fixture
def elsewhere(others: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The dashboard started where only runs of other people's models are."""
    monkeypatch.chdir(others)
    yield others
    left = {one.parent.name for one in (others / "checkpoints").glob("*/run.json")}
    assert {"patches", "gpt", "opened"} <= left, "this test removed a run that all tests share"
