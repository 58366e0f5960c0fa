"""A run in which no attention was seen: every page opens, shows what there is, and says why there are no heads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import tracer
from dashboard.shared.export import data as taking
from dashboard.shared.export.drawing import css_name
from dashboard.shared.mount import DRAWN
from dashboard.shared.plots import PLOTLY, TABLE
from tests.dashboard.conftest import APP, opener
from tests.dashboard.words import facts, labels, shown, written
from tests.watching.headless import language, rows, train
from tracer.analysis.training_curves import course
from tracer.measures.gradients import MATRICES
from tracer.pictures.taken import UNSEEN
from tracer.store import open_run

Open = Callable[..., AppTest]
PAGES = ("runs", "training", "heads", "gradients", "phases", "circuits", "find", "ablate", "specimens")
OF_HEADS = ("heads", "circuits", "find", "ablate")
WHY = "No attention was seen in this Language: neither F.scaled_dot_product_attention nor a softmax over keys"


@pytest.fixture(scope="module")
def recorded(others: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `states`, a state-space language model of which each second update was recorded, and `gpt`."""
    folder = tmp_path_factory.mktemp("headless")
    shutil.copytree(others / "checkpoints" / "gpt", folder / "checkpoints" / "gpt")
    held_out = next(rows(1, 4)).flip(0)
    with pytest.warns(RuntimeWarning, match="records states without heads"):
        train(language(), rows(40), folder / "checkpoints" / "states", every=2, held_out=held_out)
    return folder


@pytest.fixture
def elsewhere(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(recorded)
    return recorded


@pytest.fixture
def open_page(request: pytest.FixtureRequest) -> Open:
    """The page with its Share, which app.py draws after it."""
    share = "from dashboard.shared.export.page_file import draw_page_taking\n"
    return opener(request, share + "draw_page_taking({page!r}, {page!r}.title())\n")


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens(
    page: str, live: bool, elsewhere: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if live:
        monkeypatch.setattr(tracer.Run, "live", property(lambda self: True))
    app = open_page(page, run="states")
    said = written(app)
    assert not app.error and (page == "specimens" or not {"None", "nan", "NaN", "[]"} & set(said.split())), said


@pytest.mark.parametrize("page", OF_HEADS)
def test_a_page_of_heads_says_why_there_are_none(page: str, elsewhere: Path, open_page: Open) -> None:
    app = open_page(page, run="states", layer=1, head=1, tour=1)
    assert [one.value for one in app.info] == ["No heads were recorded in this run."]
    (why,) = [one.value for one in app.text if "attention" in one.value]
    assert why.startswith(WHY) and why.endswith("say yourself what its pattern is: tracer.attends(module, function).")
    assert not app.code  # no Share of a page that shows nothing


def test_training_shows_losses_and_pace(elsewhere: Path, open_page: Open, sent: Any) -> None:
    app, run = open_page("training", run="states"), open_run("states")
    assert [one.value for one in app.header] == ["Loss", "Copying", "Learning rate", "Throughput"]
    (told,) = facts(app)
    assert run.updates is not None and told.startswith(f"Training loss {float(run.updates['train_loss'][-1]):.3f} ")
    assert f" · perplexity {np.exp(float(run.trace['val_loss'][-1])):.1f} held out · " in told
    assert sent(app, "loss")[2]["scale"]["chance"] == pytest.approx(np.log(20))
    assert "No heads were recorded: no attention was seen in this Language" in written(app)
    header, arrays, cue = sent(app, "scrubber")
    assert header["measures"] == [] and cue["head"] is None
    np.testing.assert_array_equal(arrays["loss"], run.trace["val_loss"].values)


def test_gradients_shows_every_tensor(elsewhere: Path, open_page: Open) -> None:
    app, run = open_page("gradients", run="states", quantity="grad_norm"), open_run("states")
    assert [one.value for one in app.header] == [
        "Norm of the gradient over training", "Tensor by tensor", "All gradients together",
        "Size of the residual stream",
    ]  # fmt: skip
    table = shown(app, "tensor_table")
    assert len(table["tensor"]) == run.trace.sizes["param"] and not set(MATRICES) & set(run.trace.sizes)
    np.testing.assert_allclose(table["gradient"], run.trace["grad_norm"].sel(step=38).values, rtol=1e-6)


def test_phases_dates_what_needs_no_heads(elsewhere: Path, open_page: Open) -> None:
    app = open_page("phases", run="states")
    curves = [one.label for one in course(open_run("states").trace)]
    assert curves == ["Held-out loss", "Loss on repeated tokens", "Gradient norm"]
    assert shown(app, "timeline") is not None and "No heads were recorded" in written(app)


def test_the_card_and_the_verdict(elsewhere: Path, open_page: Open) -> None:
    said = written(open_page("runs"))
    assert "watched Language" in said and "No heads seen" in said
    app = open_page("training", run="states")
    said = written(app)
    assert "the same batch at every update" in said and "See on Heads" not in labels(app)
    assert any(one.value.startswith("Not measured in this run:") and "dead heads" in one.value for one in app.caption)


def test_open_goes_to_training(elsewhere: Path) -> None:
    app = AppTest.from_file(str(APP), default_timeout=300).run()
    app.button(key="open states").click().run()
    assert [title.value for title in app.title] == ["Training"] and not app.exception


@pytest.mark.parametrize("page", ["training", "gradients", "phases"])
def test_the_lines_and_the_file_of_a_page(page: str, elsewhere: Path, open_page: Open) -> None:
    app, run = open_page(page, run="states"), open_run("states")
    link, code = (box.value for box in app.code)
    assert "layer" not in link and "head=" not in link
    *before, last = code.splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join(before), scope)
    assert last and eval(last, scope) is not None
    given = app.session_state[DRAWN]
    drawn = [key for key, (part, _) in given.items() if part not in (*UNSEEN, PLOTLY, TABLE) and key[-4:] != ":cue"]
    blocks = [{"kind": "part", "key": css_name(key), "at": None} for key in drawn]
    text = taking.page(page.title(), run, 20, blocks, given, code=code, link=link, head=None)
    assert text.startswith("<!DOCTYPE html>") and f"{page.title()} · states" in text


@pytest.mark.parametrize(("run", "other"), [("states", "gpt"), ("gpt", "states")])
@pytest.mark.parametrize("page", ["training", "heads", "ablate", "phases"])
def test_it_can_be_laid_beside_a_run_with_heads(
    page: str, run: str, other: str, elsewhere: Path, open_page: Open
) -> None:
    app = open_page(page, run=run, compare=other)
    assert not app.error and not app.exception
    if (page, run) == ("heads", "gpt"):
        assert "states cannot read this prompt. No attention was seen" in written(app)


def test_a_reason_of_a_stranger_is_never_markup(
    elsewhere: Path, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(elsewhere / "checkpoints" / "states", tmp_path / "checkpoints" / "evil")
    path = tmp_path / "checkpoints" / "evil" / "run.json"
    text = path.read_text()
    monkeypatch.chdir(tmp_path)
    for page in PAGES[:-1]:
        path.write_text(text.replace('"no_heads": "no attention', '"no_heads": "**no** <img src=x> attention'))
        app = open_page(page, run="evil")
        assert "<img" not in "".join(e.value for kind in (app.markdown, app.caption, app.info) for e in kind)
    path.write_text(text.replace('"no_heads": "no attention', f'"no_heads": "{"x" * 2000}'))
    assert "run.json says what cannot be: no_heads=" in written(open_page("heads", run="evil"))
