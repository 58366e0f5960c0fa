"""A run on data of somebody's own, where their code is not: every page works, none runs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from dashboard.loading import ablation
from tests.dashboard.words import strip, written
from tests.own_data import Addition
from tests.training.test_own_corpus import small
from tracer.named_code import NAMED
from tracer.store import Run
from tracer.training import loop

Open = Callable[..., AppTest]


@pytest.fixture
def sums(workplace: Path) -> Iterator[Run]:
    run = loop.train(small(workplace / "checkpoints" / "sums"), quiet=True, corpus=Addition)
    NAMED.clear()
    yield run
    shutil.rmtree(run.dir)


def test_every_page_reads_what_the_run_kept(sums: Run, open_page: Open, sent: Any) -> None:
    for page in ("heads", "ablate", "find", "phases", "circuits", "gradients", "runs"):
        app = open_page(page, **({} if page == "runs" else {"run": "sums"}))
        assert not app.exception, page
        if page == "ablate":
            loss = float(sums.trace["val_loss"].values[-1])
            assert "Held-out rows" in strip(app)
            assert ablation.clean(sums, 8) == {"text": pytest.approx(loss, rel=1e-4)}
        if page == "find":
            assert "Searched 8 held-out rows" in written(app)
    app = open_page("training", run="sums")
    scale = sent(app, "loss")[2]["scale"]
    assert scale["chance"] == pytest.approx(Addition.references["uniform"]) and scale["marks"][0][0] == "unigram"
    assert "counts one position alone" in written(app)
    assert not NAMED


def test_going_on_is_for_a_shell(sums: Run) -> None:
    for start in (lambda: jobs.resume(sums), lambda: jobs.fork(sums, 4, "next", 12)):
        with pytest.raises(ValueError, match="is code, which is never taken from a run directory: name it"):
            start()
    with pytest.raises(ValueError, match="is not set from here"):
        jobs.train("induction", "new", 0, 10, "--data.corpus=tests.own_data:Addition")
    assert jobs.started() == []
