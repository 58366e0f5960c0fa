"""Health on what would have helped: the button where nobody tried, and what came of it where somebody did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.shared import what_helps
from tests.trainings import diverging
from tracer.cli.remedy_command import line
from tracer.store import Run
from tracer.training.loop import train
from tracer.training.remedy import remedy


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


def test_what_became_of_a_finding_is_told(
    open_page: Callable[..., AppTest], elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = offered(open_page("training", run="broken"))
    found = remedy(Run(elsewhere / "checkpoints" / "broken"), "divergence", tries=("rate", "no-decay"), quiet=True)
    app = open_page("training", run="broken")
    assert len(before) > 1 and offered(app) == before[1:]
    table = app.dataframe[0].value
    assert table["Change"].tolist() == ["as it was", "rate (advised)", "no-decay"]
    assert table["This finding"].tolist() == [what_helps.said(one) for one in found]
    assert found[1].helped and not found[2].helped and "Gone with: rate" in [one.value for one in app.text]
    assert line(found[0]).split()[:5] == ["as", "it", "was", "diverged", "since"] and "e+" in line(found[0])

    turned = []
    monkeypatch.setattr(what_helps.st, "switch_page", lambda page: turned.append(page.url_path))
    app.button(key="futures_0").click().run()
    chosen = app.session_state["selection"]
    assert turned == ["training"] and chosen.compare == "broken-divergence-rate"
    assert chosen.over == ("broken-divergence-no-decay",)


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
