"""From a finding in Health to a run that has every step around it: the real command, pressed on a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.dashboard.test_health_panel import elsewhere, sick  # noqa: F401
from tests.waiting import wait
from tracer.store import open_run


@pytest.mark.usefixtures("elsewhere", "none_left")
def test_a_finding_is_trained_again_with_every_step(open_page: Callable[..., AppTest]) -> None:
    app = open_page("training", run="sick")
    app.button(key="health_closer 1").click().run()
    assert "sick-5-15 is being trained." in [caption.value.replace("\\", "") for caption in app.caption]
    wait(lambda: Path("checkpoints/sick-5-15/run.json").exists() and open_run("sick-5-15").meta.get("replay"))
    again = open_run("sick-5-15")
    assert again.trace["step"].values.tolist() == [0, *range(5, 21)]  # it begins at the kept state
    assert again.meta["replay"]["compared"] == [10, 20] and again.meta["replay"]["parts"] is None
