"""Circuits and activation patching of a model that others wrote: nothing is left out that its weights can say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

import tracer
from tests.dashboard.words import written
from tracer.store import open_run

Open = Callable[..., AppTest]
CLEAN, CORRUPTED = "5 7 9 5\n8 3 2 8", "6 4 1 2\n9 9 4 4"


def cue(app: AppTest, key: str) -> Any:
    parts = {e.proto.id.rpartition("-")[2]: e.proto for e in app.get("bidi_component")}
    return json.loads(parts[f"{key}:cue"].json)


def test_circuits_reads_its_weights_positions_and_logits(elsewhere: Path, open_page: Open) -> None:
    app = open_page("circuits", run="gpt", prompt="5 7 9 5 7", layer=1, head=0)
    said = written(app)
    assert not app.exception and not app.error
    for words in ("cannot be told apart", "told apart only", "is known only", "norms are left out", "is not known"):
        assert words not in said
    model = open_run("gpt").model()
    found = tracer.logit_attribution(model, torch.tensor([[5, 7, 9, 5, 7]]))
    # the token before the last is chosen
    np.testing.assert_allclose(cue(app, "logit_heads")["values"], found.heads.values[:, :, 0, 3], atol=2e-5)
    assert "each norm divides by its mean scale" in said.lower() and "by positions" in said


@pytest.mark.parametrize("at", ["z", "resid_pre"])
def test_patching_is_tracers(at: str, elsewhere: Path, open_page: Open) -> None:
    app = open_page("ablate", run="gpt", off=((1, 0),), section="patch")
    app.text_area(key="patch_clean").set_value(CLEAN)
    app.text_area(key="patch_corrupted").set_value(CORRUPTED)
    app.selectbox(key="patch_at").set_value(at)
    next(b for b in app.button if b.label == "Patch").click().run()
    assert not app.exception
    model = open_run("gpt").model()
    clean, corrupted = (torch.tensor([[int(i) for i in line.split()] for line in text.splitlines()])
                        for text in (CLEAN, CORRUPTED))  # fmt: skip
    with torch.no_grad():
        right, wrong = model(clean)[:, -1].argmax(-1), model(corrupted)[:, -1].argmax(-1)
    found = tracer.patch(model, clean, corrupted, at, tracer.ablate.LogitDifference(right, wrong))
    share = (found - found.corrupted) / (found.clean - found.corrupted)
    if at == "z":
        np.testing.assert_allclose(cue(app, "patched_heads")["values"], share.values, atol=2e-4)
    assert f"{found.clean:.2f} in the clean runs, {found.corrupted:.2f} in the corrupted ones" in written(app)


def test_prompts_that_are_no_pairs_are_answered(elsewhere: Path, open_page: Open) -> None:
    app = open_page("ablate", run="gpt", section="patch")
    app.text_area(key="patch_clean").set_value("5 7 9\n1 2 3")
    app.text_area(key="patch_corrupted").set_value("5 7 9\n1 2")
    next(b for b in app.button if b.label == "Patch").click().run()
    assert any("line 2 has 3 and 2 tokens" in one.value for one in app.text) and not app.exception
