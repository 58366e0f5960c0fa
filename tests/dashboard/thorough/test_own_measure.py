"""A run that was recorded with somebody's own measure and number, on a machine that never had their code."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from streamlit.testing.v1 import AppTest
from zarr.errors import ZarrUserWarning

from dashboard.shared.export import data as taking
from tests.dashboard.words import explained, shown, written
from tracer.analysis.notebook import show
from tracer.analysis.training_curves import course
from tracer.store import Run, Variable
from tracer.store.check import check
from tracer.store.trace import TraceWriter

Open = Callable[..., AppTest]
NOTHING = {
    "long_name": "Attention *on* nothing", "short_name": "none", "units": "share", "formula": "1 - sum_k A_qk",
    "source": "Miller 2023", "probe": "my own rows", "valid_min": 0.0, "valid_max": 1.0, "chance": 0.25,
    "chance_text": "a head that cannot decide", "palette": "sequential", "note": "High where the softmax has one more.",
}  # fmt: skip
BY_LAYER = {"long_name": "Rank", "formula": "directions that hold 90 %", "source": "ours"}
FOURIER = {"long_name": "Restricted loss", "units": "nats", "formula": "loss by five frequencies", "source": "ours"}


@pytest.fixture
def own(copy_run: Callable[..., Run]) -> Run:
    """The short run with three more variables: a measure of heads that jumps in L1H2, a number that falls, and one of
    each layer."""
    run = copy_run("own")
    for name, like, said in (("on_nothing", "previous_token", NOTHING), ("restricted", "val_loss", FOURIER)):
        shutil.copytree(run.dir / "trace.zarr" / like, run.dir / "trace.zarr" / name)
        path = run.dir / "trace.zarr" / name / "zarr.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"attributes": said}))
    writer = TraceWriter(run.dir / "trace.zarr")
    layers = writer.heads[0] if writer.heads else 0
    writer.add({"rank": Variable(("layer",), (layers,), attrs=BY_LAYER)})
    trace: Any = zarr.open_group(run.dir / "trace.zarr", mode="r+", use_consolidated=False)
    rows = trace["step"].shape[0]
    values = np.full(trace["on_nothing"].shape, 0.125, np.float32)
    values[rows // 2 :, 1, 2] = 0.875
    trace["on_nothing"][:] = values
    trace["restricted"][:] = np.where(np.arange(rows) < rows // 3, 5.0, 1.5)
    trace["rank"][:] = np.tile(np.arange(layers) + 1.0, (rows, 1))
    with warnings.catch_warnings(action="ignore", category=ZarrUserWarning):  # strings are not in the specification yet
        zarr.consolidate_metadata(trace.store)
    return run


def test_it_is_whole_and_reads_as_any_other(own: Run) -> None:
    assert not [part for part in check(own.dir).damaged if "on_nothing" in part or "restricted" in part]
    assert float(own.trace["on_nothing"].values[-1, 1, 2]) == 0.875


def test_heads_are_coloured_by_it(own: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="own", measure="on_nothing")
    box = app.selectbox(key="measure_box")
    assert box.value == "on_nothing" and "Attention *on* nothing" in box.options
    assert all(said in box.help for said in (
        r"**Attention \*on\* nothing**: High where", r"1 - sum\_k A\_qk", "Measured on my own rows",
        "Range 0 to 1 share", r"At chance 0.25 (a head that cannot decide)", "Source: Miller 2023",
    ))  # fmt: skip
    scale = sent(app, "atlas")[2]["scales"]["on_nothing"]
    assert (scale["label"], scale["lo"], scale["hi"], scale["chance"]) == ("Attention *on* nothing", 0, 1, 0.25)
    assert r"The colour is its attention \*on\* nothing, the number the score of its role." in explained(app)


def test_the_finder_knows_its_name(own: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="own", find="on nothing > 0.5")
    assert sent(app, "atlas")[2]["lit"] == [[1, 2]]
    assert sent(open_page("heads", run="own", find="top 1 none"), "atlas")[2]["lit"] == [[1, 2]]


def test_heads_are_ranked_by_it(own: Run, open_page: Open) -> None:
    app = open_page("find", run="own", measure="on_nothing")
    ranking = shown(app, "ranking")
    assert ranking["Head"][0] == "L1H2" and ranking["Attention *on* nothing"][0] == 0.875
    assert "(chance 0.25)" in written(app)


def test_training_draws_all(own: Run, open_page: Open, sent: Any) -> None:
    app = open_page("training", run="own", measure="on_nothing")
    assert app.selectbox(key="training_measure_box").value == "on_nothing"
    assert "Restricted loss" in [one.value for one in app.header]
    assert r"loss by five frequencies. Source\: ours." in written(app)
    assert sent(app, "own restricted")[2]["scale"]["unit"] == "nats"
    assert sent(app, "own rank")[0]["labels"] == ["L0", "L1"] and "directions that hold 90 %" in written(app)


def test_numbers_of_one_unit_are_lines_of_one_chart(
    own: Run, copy_run: Callable[..., Run], open_page: Open, sent: Any
) -> None:
    writer = TraceWriter(own.dir / "trace.zarr")
    labels = {"excluded": "Excluded loss", "half": "Half", "bare": "Bare"}
    writer.add({
        name: Variable((), (), "float64", {"long_name": label, "units": "" if name == "bare" else "nats"})
        for name, label in labels.items()
    })  # fmt: skip
    trace: Any = zarr.open_group(own.dir / "trace.zarr", mode="r+", use_consolidated=False)
    for name in labels:
        trace[name][:] = np.linspace(1, 2, trace["step"].shape[0])
    app = open_page("training", run="own")
    header, arrays, cue = sent(app, "own excluded")
    assert header["labels"] == ["Excluded loss", "Half", "Restricted loss"] and arrays["lines"].shape[0] == 3
    assert (cue["scale"]["label"], cue["scale"]["unit"]) == ("Value", "nats")
    assert "Excluded loss, Half, Restricted loss" in [one.value for one in app.header]
    assert sent(app, "own bare")[0]["labels"] == ["Bare"]
    assert r"Half\: not written in the run. Source\: not" in written(app)
    copy_run("other")
    app = open_page("training", run="own", compare="other")  # a colour a run
    assert sent(app, "own excluded")[0]["labels"] == ["Excluded loss · own"]


def test_phases_dates_them(own: Run, open_page: Open) -> None:
    steps = own.trace["step"].values
    found = {curve.name: curve for curve in course(own.trace)}
    assert found["on_nothing"].label == "Attention *on* nothing L1H2" and found["on_nothing"].unit == "share"
    for name, row in (("on_nothing", len(steps) // 2), ("restricted", len(steps) // 3)):
        change = found[name].change
        assert change is not None and change.low <= steps[row] and change.high >= steps[row - 1], name
    assert found["rank"].label == "Rank" and set(found["rank"].values) == {1.5}  # the mean of its layers
    app = open_page("phases", run="own", phase="on_nothing", path="all")
    assert "Restricted loss" in "\n".join(e.proto.body for e in app.get("html"))
    assert app.selectbox(key="phase_box").value == "on_nothing"


def test_it_goes_into_files(own: Run, open_page: Open) -> None:
    text = show(own, [0, 5, 6, 5], measure="on_nothing", film=False)._repr_html_()
    assert "Attention *on* nothing" in text and "1 - sum_k A_qk" in text and "Miller 2023" in text
    known = {one.name: one for one in taking._known(own)}
    assert known["on_nothing"].formula == "1 - sum_k A_qk" and "entropy" in known


def test_nothing_that_a_stranger_writes_is_html(own: Run, open_page: Open) -> None:
    path = own.dir / "trace.zarr" / "on_nothing" / "zarr.json"
    evil = "<img src=x onerror=alert(1)>"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"attributes": dict.fromkeys(("long_name", "formula", "note", "probe"), evil)}))
    with warnings.catch_warnings(action="ignore", category=ZarrUserWarning):
        zarr.consolidate_metadata(zarr.open_group(own.dir / "trace.zarr", mode="r+").store)
    for page in ("heads", "training", "find", "phases"):
        app = open_page(page, run="own", measure="on_nothing")
        bodies = "\n".join(e.proto.body for e in app.get("html"))
        assert not re.search(r"<img[^>]*onerror", bodies), page
