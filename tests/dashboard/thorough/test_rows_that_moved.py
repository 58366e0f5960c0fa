"""Which rows moved a head, asked of a process beside the page."""

from __future__ import annotations

import numpy as np
import pytest

from dashboard import jobs
from tests.dashboard.test_rows_that_moved import Open, begins
from tracer.store import Run
from tracer.training.which_rows import which_rows

pytestmark = pytest.mark.slow


def test_the_rows_are_those_that_python_finds(open_page: Open, small_run: Run, none_left: None) -> None:
    step = int(small_run.trace["step"][-2])
    app = open_page("gradients", run="tiny", step=step, layer=1, head=2)
    assert f"Which rows moved L1H2 at step {step:,}?" in [one.value for one in app.subheader]
    app.button(key="rows_begin").click().run()
    going = jobs.looking_at_rows(small_run)
    assert going is not None and going.about == f"{step} L1H2 induction" and not begins(app)
    assert going.process.wait(300) == 0
    app.run()
    assert not app.exception and not begins(app)
    told = which_rows(small_run, step, (1, 2))
    shown = next(one.value for one in app.dataframe if "effect" in one.value)
    order = np.argsort(-told["effect"].values, kind="stable")
    np.testing.assert_array_equal(shown["effect"], told["effect"].values[order])
    np.testing.assert_allclose(shown["loss"], told["loss"].values[order])
    assert shown["W_Q"].tolist() == [f"{x:.0%}" for x in told["share"].values[order, 0]]
    first = str(told["text"].values[order[0]]).removeprefix("<bos>").split()
    assert str(shown["row"].tolist()[0]).split() == first
    said = next(one.value for one in app.caption if one.value.startswith("The update on these"))
    assert told.attrs["same"] in said and f"to {told.attrs['after']:.3g}." in said

    app.selectbox(key="rows_measure").select("entropy").run()  # of another score nothing is known yet
    assert begins(app) and not any("effect" in one.value for one in app.dataframe)
    app.selectbox(key="rows_measure").select("induction").run()
    assert not begins(app)
