"""One small real run for every page's tests, and a way to open the app on it as a person with a link would."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.components import payload
from dashboard.state import Selection
from tracer.presets import PRESETS
from tracer.store import Run
from tracer.training import train

APP = Path(__file__).parents[2] / "dashboard" / "app.py"


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The toy of repeated tokens, 30 steps, in FOLDER/checkpoints/tiny; `small_run.dir.parents[1]` is FOLDER."""
    directory = tmp_path_factory.mktemp("runs") / "checkpoints" / "tiny"
    toy = PRESETS["induction"].config
    config = replace(
        toy,
        run=str(directory),
        steps=30,
        device="cpu",
        optim=replace(toy.optim, batch_size=8),
        record=replace(
            toy.record, every=5, snapshot_every=10, log_every=10, val_rows=4, text_prompts=1, repeat_prompts=1
        ),
    )
    return train(config, preset="induction", quiet=True)


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
def open_page(workplace: Path) -> Callable[..., AppTest]:
    """open_page("training", run="tiny", step=10): a page, run once without a traceback, with this selection."""

    def opened(page: str, **selection: Any) -> AppTest:
        script = (
            f"import sys; sys.path.insert(0, {str(APP.parents[1])!r})\n"
            f"from dashboard.views import {page}\n{page}.page()\n"
        )
        app = AppTest.from_string(script, default_timeout=30)
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
