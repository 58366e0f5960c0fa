"""Health's button that trains a run again from before a finding: a real process, and what came of it on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.shared import what_helps
from tests.trainings import diverging
from tracer.cli.remedy_command import line
from tracer.diagnosis.futures import judged, made_for
from tracer.store import Run
from tracer.training.loop import train


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    train(diverging(folder / "checkpoints" / "broken"), quiet=True)
    return folder


@pytest.fixture
def elsewhere(place: Path, none_left: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


def offered(app: AppTest) -> list[str]:
    return [one.key or "" for one in app.button if one.label == "What would have helped?"]


def test_what_helps_is_tried_by_a_process_and_told(
    open_page: Callable[..., AppTest], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, run = open_page("training", run="broken"), Run(elsewhere / "checkpoints" / "broken")
    many = offered(app)
    assert len(many) > 1 and not app.dataframe
    app.button(key="remedy_0").click().run()
    going = jobs.remedying(run)
    assert going is not None and going.command == "remedy" and going.about == "divergence"
    assert not app.exception and offered(app) == []  # one at a time
    assert going.process.wait(300) == 0
    app.run()
    assert not app.exception and offered(app) == many[1:]
    found = [judged(one) for one in made_for(run, "divergence")]
    assert [one.name for one in found][:2] == ["as it was", "rate"] and len(found) == 9
    assert len(what_helps.DONE.findall(going.log.read_text())) == len(found)
    assert line(found[0]).split()[:5] == ["as", "it", "was", "diverged", "since"] and "e+" in line(found[0])
    table = app.dataframe[0].value
    assert table["This finding"].tolist() == [what_helps.said(one) for one in found]
    assert table["Change"].tolist()[:2] == ["as it was", "rate (advised)"]
    helped = [one.name for one in found if one.helped]
    assert "rate" in helped and f"Gone with: {', '.join(helped)}" in [one.value for one in app.text]

    turned = []
    monkeypatch.setattr(what_helps.st, "switch_page", lambda page: turned.append(page.url_path))
    app.button(key="futures_0").click().run()
    chosen = app.session_state["selection"]
    assert turned == ["training"] and chosen.compare == "broken-divergence-rate" and len(chosen.over) == 6


def test_what_is_not_one_of_ours_is_not_offered_it(open_page: Callable[..., AppTest], workplace: Path) -> None:
    assert offered(open_page("training", run="tiny")) == []


def test_why_it_cannot_begin_is_said(
    open_page: Callable[..., AppTest], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: Run, kind: str) -> None:
        raise ValueError(f"{run.name} cannot be had again")

    app = open_page("training", run="broken")
    monkeypatch.setattr(jobs, "remedy", refuse)
    app.button(key=offered(app)[0]).click().run()
    assert "broken cannot be had again" in [one.value for one in app.text]
