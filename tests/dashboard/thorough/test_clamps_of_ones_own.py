"""A run that somebody's function clamped: every page works without the code, none runs it unless a person names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from tests.dashboard.words import written
from tests.interventions.test_clamps import tiny
from tests.interventions.test_own_clamps import HERE
from tracer.named_code import CLAMPS, NAMED
from tracer.store import Run
from tracer.training import loop

Open = Callable[..., AppTest]
OWN = f"L0H2 = {HERE}:previous"


@pytest.fixture
def held(workplace: Path) -> Iterator[Run]:
    run = loop.train(tiny(workplace / "checkpoints" / "held"), quiet=True, clamp=[OWN, "L1H3 off"])
    NAMED.clear()
    yield run
    shutil.rmtree(run.dir)
    NAMED.clear()


def test_every_page_works_without_the_code(held: Run, open_page: Open) -> None:
    for page in ("heads", "ablate", "find", "phases", "circuits", "gradients", "runs"):
        app = open_page(page, **({} if page == "runs" else {"run": "held"}))
        assert not app.exception, page
        if page == "ablate":
            assert f'(where you trust it: `manyeyes --clamp "{OWN}"`)' in written(app)
        if page == "runs":
            assert f"Clamped: {OWN}, L1H3 off" in written(app)
    assert not NAMED


def test_a_person_names_it(held: Run, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLAMPS, f"{HERE}:previous")
    app = open_page("ablate", run="held")
    assert not app.exception and f"This run is clamped at this step: {OWN}, L1H3 off." in written(app)


def test_going_on_is_for_a_shell(held: Run) -> None:
    starts: dict[str, Callable[[], Any]] = {
        f'tracer resume held --clamp "{OWN}" "L1H3 off"': lambda: jobs.resume(held),
        f'tracer fork held --step 4 --clamp "{OWN}" "L1H3 off"': lambda: jobs.fork(
            held, 4, "next", 12, f"{OWN}, L1H3 off"
        ),
        'tracer fork held --step 4 --clamp "L0 = x:y"': lambda: jobs.fork(held, 4, "next", 12, "L0 = x:y"),
    }
    for command, start in starts.items():
        with pytest.raises(ValueError, match=rf"code of somebody's own, which no page runs: in a shell, `{command}`"):
            start()
    assert jobs.started() == []
