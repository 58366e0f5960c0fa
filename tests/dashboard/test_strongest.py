"""A run whose heads look at places: every score has a control that is as high, and no page names an induction head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import zarr
from streamlit.testing.v1 import AppTest

from dashboard.loading import head_scores
from dashboard.loading.run_summaries import summary
from dashboard.views.runs.many import _read
from tests.dashboard.words import captions, shown, written
from tracer.store import Run

Open = Callable[..., AppTest]
HIGHEST = (0, 3)


def controlled(run: Run, stands_out: tuple[int, int] | None = None) -> Run:
    """L0H3 gets the highest score of all, and every head a control just above its score, but for one of 0.2 less."""
    store = zarr.open_group(str(run.dir / "trace.zarr"), mode="r+")
    scores = np.array(store["induction"])
    scores[:, *HIGHEST] = 0.9
    control = scores + 0.01
    if stands_out is not None:
        control[:, *stands_out] = scores[:, *stands_out] - 0.2
    store["induction"][:], store["induction_control"][:] = scores, control  # pyrefly: ignore[unsupported-operation]
    return run


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("phases", "No induction head stands out: no induction score is above its control."),
        ("find", "No head is an induction head: L"),
        ("heads", "None stands out: no head's induction score is above its control."),
        ("runs", "No induction head"),
    ],
)
def test_no_page_names_one(open_page: Open, copy_run: Callable[..., Run], page: str, words: str) -> None:
    controlled(copy_run("places"))
    app = open_page(page, run="places", find="top 1 induction", measure="induction")
    assert words in written(app) and "Strongest induction head" not in written(app)
    assert "Induction head **" not in written(app)


def test_training_names_none_and_the_nearest(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = controlled(copy_run("places"))
    assert " · nearest to induction L" in captions(open_page("training", run="places"))
    assert not summary(run).stands_out and _read(run)[1:] == (None, None)


def test_all_name_the_one_that_stands_out(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = controlled(copy_run("places"), stands_out=(1, 2))
    assert head_scores.default_head(run.trace) == head_scores.induction_head(run.trace) == (1, 2)
    assert summary(run).best == (1, 2) and summary(run).stands_out and _read(run)[1] == "L1H2"
    assert head_scores.named("top 3 induction", run.trace).heads == ((1, 2),)
    assert "induction L1H2 " in captions(open_page("training", run="places")), "below the threshold it is the nearest"
    table = shown(open_page("find", run="places", measure="induction"), "ranking")
    assert table["Head"][0] == "L1H2" and table["Induction score"][0] < max(table["Induction score"])
