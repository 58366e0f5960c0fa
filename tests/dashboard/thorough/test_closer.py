"""From a finding in Health to a run that has every step around it: the real command, pressed on a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs
from tests.dashboard.test_health_panel import elsewhere, sick  # noqa: F401
from tests.dashboard.test_phases_page import turning  # noqa: F401
from tests.waiting import wait
from tracer.store import Run, open_run
from tracer.store.row_effects import rows_there
from tracer.training.stretch_rows import answer


@pytest.mark.usefixtures("none_left")
def test_the_rows_behind_a_change_are_found_by_a_process(open_page: Callable[..., AppTest], turning: Run) -> None:  # noqa: F811
    app = open_page("phases", run="turning", phase="induction")
    app.button(key="rows_behind_begin").click().run()
    going = jobs.looking_at_rows(turning)
    assert going is not None and not app.exception
    assert not any(one.key == "rows_behind_begin" for one in app.button)
    assert going.process.wait(300) == 0
    app.run()
    assert not app.exception and len(rows_there(turning.dir)) == 1
    told: Any = answer(turning, rows_there(turning.dir)[0])
    shown = next(one.value for one in app.dataframe if "effect" in one.value)
    assert shown["effect"].tolist()[0] == float(told["effect"].max())
    assert told.attrs["without"] == [1, 5, 20] and told["date"].shape == (13,)


@pytest.mark.usefixtures("elsewhere", "none_left")
def test_a_finding_is_trained_again_with_every_step(open_page: Callable[..., AppTest]) -> None:
    app = open_page("training", run="sick")
    app.button(key="health_closer 1").click().run()
    assert "sick-5-15 is being trained." in [caption.value.replace("\\", "") for caption in app.caption]
    wait(lambda: Path("checkpoints/sick-5-15/run.json").exists() and open_run("sick-5-15").meta.get("replay"))
    again = open_run("sick-5-15")
    assert again.trace["step"].values.tolist() == [0, *range(5, 21)]  # it begins at the kept state
    assert again.meta["replay"]["compared"] == [10, 20] and again.meta["replay"]["parts"] is None
