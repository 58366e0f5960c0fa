"""Phases: a run with known changes, its order in words, other seeds, few snapshots, and models of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dashboard import jobs
from dashboard.jobs import Started
from dashboard.shared.mount import DRAWN
from dashboard.views.phases import data as loading
from dashboard.views.phases.order import answer, basis, by_unit, dated, no_events, sureness, weak
from dashboard.views.phases.seeds import alike, said, table
from tests.dashboard.test_links import parts, reopened
from tests.dashboard.words import captions, shown, was_drawn
from tracer.analysis.training_curves import Curve, events, strongest
from tracer.measures.change_points import PhaseChange, phase_change
from tracer.measures.change_points import path as principal
from tracer.measures.plateaus import BACK
from tracer.store import Run
from tracer.store.layout import Lock

STEPS = np.arange(0, 400, 10)
ZERO = np.zeros(STEPS.size)


def rises(name: str, start: int, stop: int, *heads: tuple[int, int]) -> Curve:
    values = np.interp(STEPS, [start, stop], [0.0, 1.0])
    return Curve(name, STEPS, values, phase_change(STEPS, values), heads)


def induction(start: int) -> Curve:
    return rises("induction", start, start + 50, (1, 2))


def previous(start: int) -> Curve:
    return rises("previous_token", start, start + 50, (0, 1))


FLAT = Curve("icl_score", STEPS, ZERO, None)


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        ([previous(100), induction(200)], "L0H1 turns to the token before at step 125 (120–130), before L1H2 begins "
         "to copy at step 225 (220–230)."),
        ([previous(200), induction(100)], "L0H1 turns to the token before at step 225 (220–230), after L1H2 begins "
         "to copy at step 125 (120–130)."),
        ([previous(100), induction(110)], "Order not known: L0H1 turns to the token before at step 125 (120–130), L1H2 "
         "begins to copy at step 135 (130–140)."),
        ([previous(100), Curve("induction", STEPS, ZERO, None, ((1, 0),))],
         "Order not known: induction head L1H0 did not change suddenly."),
        ([previous(100), Curve("induction", STEPS, ZERO, None, ((1, 0),), undated="one jump among others")],
         "Order not known: induction head L1H0 has no date (one jump among others)."),
        ([rises("previous_token", 100, 150, (1, 1)), induction(200)],
         "No circuit: L1H2 cannot read L1H1, which is in no earlier layer."),
        ([previous(100), FLAT], "One event: L0H1 turns to the token before at step 125 (120–130)."),
        ([FLAT], "Nothing changed suddenly: 40 recorded steps hold no event."),
        ([Curve("val_loss", STEPS[:5], ZERO[:5], None)],
         "Too few recorded steps (5) to say when anything changed: it takes 9 at least."),
    ],
)  # fmt: skip
def test_what_came_first(curves: list[Curve], expected: str) -> None:
    assert answer(curves, events(curves)) == expected


def test_where_no_head_stands_out_that_is_the_answer() -> None:
    said = "No induction head stands out: no induction score is above its control."
    assert answer([previous(100)], [previous(100)], none_stands_out=True) == said


def test_with_smeared_keys_no_earlier_head_is_needed() -> None:
    found = [rises("previous_token", 100, 150, (1, 1)), rises("induction", 200, 250, (0, 3))]
    assert answer(found, events(found), smeared_keys=True) == (
        "L0H3 needs no earlier head: each key is mixed with that of the token before (smear=keys)."
    )
    earlier = [previous(100), induction(200)]
    assert answer(earlier, events(earlier), smeared_keys=True) == answer(earlier, events(earlier))


def test_the_strongest_head_is_called_weak_where_it_is_below_what_roles_ask_for() -> None:
    values = np.interp(STEPS, [200, 250], [0.0, 0.32])
    faint = Curve("induction", STEPS, values, phase_change(STEPS, values), ((1, 2),))
    assert weak(faint) == "**Weak**: induction head L1H2 ends at 0.32 (such heads score above 0.4)."
    assert weak(induction(200)) == ""


def test_how_sure_each_change_is() -> None:
    changed = events([induction(260), previous(100), rises("val_loss", 90, 150), rises("entropy", 130, 190), FLAT])
    assert [curve.name for curve in changed] == ["val_loss", "previous_token", "entropy", "induction"]
    assert [sureness(changed, i) for i in range(4)] == [
        "Not separated from 2.", "Not separated from 1.", "", "Separate from all others.",
    ]  # fmt: skip
    assert by_unit(changed) == "The order depends on how it is measured: 1–3, 2–3."
    assert by_unit(changed[:2]) == ""
    assert sureness(changed[:2], 0) == "Not separated from any other."
    assert sureness(changed[:1], 0) == ""


def test_a_date_with_its_interval() -> None:
    change = PhaseChange(50, 100, 450, 90, 1200, 6.962, -3.424)
    assert dated(Curve("val_loss", STEPS, ZERO, change)) == "100 <small>(90–1,200)</small>"


def test_what_is_no_event_is_said_with_its_reason() -> None:
    bump = Curve("val_loss", STEPS, ZERO, None, undated=BACK)
    busy = Curve("entropy", STEPS, ZERO, None, undated="its step is 2.3 times its other moves, not 6.0")
    assert no_events([bump, FLAT, busy, previous(100)], 50) == [
        "Warm-up ends: step 50.",
        "Excursion: Held-out loss moved and went back, so it is no event.",
        "Not dated: Mean normalised entropy, its step is 2.3 times its other moves, not 6.0.",
    ]
    assert no_events([FLAT], 0) == []


def test_seeds_that_disagree_are_said_to_disagree() -> None:
    """Two of four: an interval of 6.8 to 93.2 % by Clopper and Pearson's table, and no p below 1 for a coin."""
    runs = [[previous(100), induction(200)], [previous(100), induction(210)], [previous(200), induction(100)],
            [previous(230), induction(120)]]  # fmt: skip
    assert said(runs).splitlines() == [
        "- Previous-token head before induction head: in **2 of 4** runs (95 % interval of the share: 7 to 93 %; "
        "p = 1).",
        "",
        "**4 runs can't show an order**: if all agreed, p would still be 0.5. It takes 8 that agree. p: exact sign "
        "test over runs, times the 4 orders compared.",
    ]


def test_seeds_whose_order_is_not_known_are_said_and_left_out() -> None:
    runs = [[previous(100), induction(200)]] * 9 + [[previous(100), induction(110)], [previous(100), FLAT]]
    lines = said(runs).splitlines()
    assert lines[0] == (
        "- Previous-token head before induction head: in **9 of 9** runs (95 % interval of the share: 66 to 100 %; "
        "p = 0.0156). Not known in 1."
    )
    assert lines[2].startswith("If all 9 runs agreed, p would be 0.0156.")
    (unknown, *_) = said([[previous(100), induction(110)]]).splitlines()
    assert unknown == "- Previous-token head before induction head: not known in the one run that has both."
    assert said([[FLAT]]) == "None of these runs holds two changes of an induction circuit."


def test_runs_whose_heads_are_no_circuit_are_said_to_be_left_out() -> None:
    """As of one layer with smeared keys, whose induction head needs no other."""
    beside = [replace(previous(100), heads=((1, 0),)), replace(induction(200), heads=((1, 2),))]
    (alone, *_) = said([beside]).splitlines()
    assert alone == (
        "- Previous-token head before induction head: not asked, since the two heads are a circuit in no run."
    )
    (line, *_) = said([beside, [previous(100), induction(200)]]).splitlines()
    assert "in **1 of 1** runs" in line and line.endswith(" Left out: 1, whose two heads are no circuit.")


def test_names_of_runs_are_escaped() -> None:
    shown = table({"<b>": [previous(100)], "two": [FLAT]})
    assert "<b>" not in shown and "&lt;b&gt;" in shown
    assert "<small>120 to 130</small><small>L0H1</small>" in shown and "not measured" in shown
    assert "<td>125<small class='words'>1 of 1 dated</small></td>" in shown and ">All 2<" in shown
    assert "All" not in table({"<b>": [previous(100)], "two": [FLAT]}, together=False)
    both = table({"one": [previous(100)], "two": [previous(300)]})
    assert "<td>225<small class='words'>median, 2 of 2 dated</small><small>125 to 325</small></td>" in both


@pytest.mark.parametrize(
    ("steps", "window", "expected"),
    [
        ([0, 50, 100, 150, 200], (60, 130), (50, 150)),
        ([0, 50, 100], (0, 120), (0, 100)),
        ([0, 50, 100], (50, 50), (0, 50)),
        ([70], (60, 80), (70, 70)),
    ],
)
def test_the_snapshots_around_a_window(steps: list[int], window: tuple[int, int], expected: tuple[int, int]) -> None:
    change = PhaseChange(window[0], window[0], window[1], window[0], window[1], 0.0, 1.0)
    assert change.around(steps) == expected


def rewrite(run: Run, **changes: Callable[[np.ndarray], np.ndarray]) -> None:
    """Put other values into variables of the trace of a copied run."""
    import zarr

    group = zarr.open_group(run.dir / "trace.zarr", mode="r+")
    for name, change in changes.items():
        array = group[name]
        assert isinstance(array, zarr.Array)
        array[:] = change(np.asarray(array[:]))


@pytest.fixture
def turning(copy_run) -> Run:
    """The short run again: L0H0 changes to the previous token in its 4th row, L1H1 to copying in its 7th."""
    run = copy_run("turning")

    def turns(layer: int, head: int, row: int) -> Callable[[np.ndarray], np.ndarray]:
        def changed(values: np.ndarray) -> np.ndarray:
            values[:], values[row:, layer, head] = 0.0, 0.9
            return values

        return changed

    rewrite(run, previous_token=turns(0, 0, 3), induction=turns(1, 1, 6))
    return run


@pytest.fixture
def open_page(open_page):
    """With what looks closer unfolded."""

    def opened(*page, **selection):
        app = open_page(*page, **selection)
        app.session_state["closer"] = True
        return app.run()

    return opened


def words(app) -> str:
    return " ".join(e.value for kind in (app.markdown, app.caption, app.info, app.header) for e in kind)


def page_html(app) -> str:
    return " ".join(e.proto.body for e in app.get("html"))


def lanes(app) -> dict[str, Any]:
    """The curves of the timeline by name."""
    return {trace.name: trace for trace in shown(app, "timeline").data}


def verticals(figure) -> list[float]:
    """Where lines stand that cross the whole height: the ends of a window, then the step."""
    return [shape.x0 for shape in figure.layout.shapes if shape.yref == "paper"]


def way(app) -> Any:
    """The points of the path of the losses."""
    return shown(app, "loss_path").data[-1]


def test_the_page_of_a_short_run(open_page, small_run) -> None:
    app = open_page("phases", run="tiny", step=10)
    found = lanes(app)
    assert list(found["Held-out loss"].customdata) == small_run.trace.step.values.tolist()
    np.testing.assert_allclose(found["Held-out loss"].y, small_run.trace.val_loss.values, rtol=1e-6)
    assert verticals(shown(app, "timeline")) == verticals(shown(app, "surface_loss"))[-1:] == [10]
    assert {"Held-out loss", "Mean normalised entropy", "Gradient norm"} <= set(found)
    reader = strongest(small_run.trace)
    in_layer_0 = reader is None or reader[0] == 0  # before which no head writes what it could read
    assert sum(label.startswith("K-composition") for label in found) == (not in_layer_0)


def test_what_looks_closer_costs_nothing_while_it_is_folded(open_page) -> None:
    app = open_page("phases", run="tiny")
    assert {"surface_loss", "loss_path"} <= was_drawn(app)
    app.session_state["closer"], app.session_state[DRAWN] = False, {}
    assert not {"surface_loss", "loss_path"} & was_drawn(app.run())


def test_log_steps(open_page) -> None:
    app = open_page("phases", run="tiny")
    assert shown(app, "timeline").layout.xaxis.type == "linear"
    app.segmented_control(key="axis_box").set_value("log").run()
    assert shown(app, "timeline").layout.xaxis.type == shown(app, "surface_loss").layout.xaxis.type == "log"
    assert list(shown(app, "timeline").layout.xaxis.range) == pytest.approx([0, np.log10(30)]), "0 stands at step 1"


def test_pictures_hold_the_losses(open_page, small_run) -> None:
    app = open_page("phases", run="tiny")
    losses = small_run.trace.loss_by_position.values
    np.testing.assert_allclose(shown(app, "surface_loss").data[0].z, losses.T, rtol=1e-6)
    points, centred = np.stack([way(app).x, way(app).y]), losses - losses.mean(0)
    np.testing.assert_allclose((points**2).sum(), (np.linalg.svd(centred)[1][:2] ** 2).sum(), rtol=1e-4)


def test_few_rows_are_said_to_be_few(open_page, small_run, workplace, copy_run) -> None:
    copy = copy_run("brief")
    rewrite(copy, step=lambda steps: np.where(np.arange(len(steps)) < 5, steps, -1))
    app = open_page("phases", run="brief")
    assert "Too few recorded steps (5)" in words(app)
    assert "Does the order repeat?" not in words(app)


def test_nothing_found_is_said_with_how_many_points(open_page, copy_run) -> None:
    """Every curve level, in 10 rows and 4 snapshots: there is no event, and no curve is called too short."""
    still = copy_run("still")
    measured = ["val_loss", "repeat_loss", "icl_score", "previous_token", "entropy_normalised", "grad_norm"]
    rewrite(still, **{name: lambda values: np.full_like(values, 0.5) for name in measured if name in still.trace})
    rewrite(still, induction=lambda values: np.zeros_like(values) + [[0.0], [0.5]])  # the reader is in layer 1
    app = open_page("phases", run="still")
    n = still.trace.sizes["step"]
    assert f"Nothing changed suddenly: {n} recorded steps hold no event." in words(app)
    assert (
        f"No date is finer than the recording interval, 1 to 5 steps; {n} records (K-composition: {len(still.steps)})."
        in words(app)
    )
    shown = page_html(app)
    assert "No sudden step: Held-out loss" in shown
    assert "Too few values for a change: K-composition" in shown


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (range(0, 400, 10), "No date is finer than the recording interval, 10 steps; 40 records."),
        ([0, 1, 2, 4, 8, 9, 25], "No date is finer than the recording interval, 1 to 16 steps; 7 records."),
        ([0], "Read from 1 recorded step."),
    ],
)  # fmt: skip
def test_with_how_many_points(steps: Sequence[int], expected: str) -> None:
    assert basis([Curve("val_loss", np.array(steps), np.zeros(len(steps)), None)]) == expected


def test_a_link_reopens_the_same_view(open_page, turning, copy_run) -> None:
    copy_run("seed1", seed=1)
    copy_run("seed2", seed=2)
    app = open_page("phases", run="turning")
    assert sorted(app.multiselect[0].value) == ["seed1", "seed2"]
    assert "Shaded: while it changes. Line: halfway. Bar: 95 % interval." in captions(app)
    app.multiselect[0].set_value(["seed2"]).run()
    app.segmented_control(key="axis_box").set_value("log").run()
    app.selectbox(key="phase_box").set_value("previous_token").run()
    app.segmented_control(key="surface_box").set_value("since").run()
    again = reopened(open_page, "phases", app)
    assert parts(again) == parts(app)
    for key in ("timeline", "surface_loss", "surface_slope", "loss_path"):
        assert shown(again, key) == shown(app, key)
    assert shown(again, "timeline").layout.xaxis.type == "log"
    assert "less step" in shown(again, "surface_loss").layout.title.text
    assert again.multiselect[0].value == ["seed2"] and again.selectbox(key="phase_box").value == "previous_token"
    again.multiselect[0].set_value([]).run()
    assert reopened(open_page, "phases", again).multiselect[0].value == []


def test_a_live_run_says_that_its_windows_move(open_page, copy_run) -> None:
    copy = copy_run("moving", status="training")
    lock = Lock(copy.dir)
    try:
        app = open_page("phases", run="moving")
    finally:
        lock.release()
    assert "The run goes on: more records may move these dates." in words(app)


def test_other_seeds_of_the_preset_are_laid_beside(open_page, small_run, copy_run) -> None:
    copy_run("seed1", seed=1)
    copy_run("seed1again", seed=1)
    copy_run("same", seed=small_run.meta["seed"])
    copy_run("other", seed=2, preset="demo")
    app = open_page("phases", run="tiny")
    assert app.multiselect[0].value == ["seed1"]
    assert 'scope="col">seed1</th>' in page_html(app)
    assert "Dashed: seed1, each with its own heads." in words(app)
    drawn = json.loads(app.get("plotly_chart")[0].proto.spec)["data"]
    assert [one["name"] for one in drawn if one.get("line", {}).get("dash") == "dash"][0].endswith(" of seed1")
    app.multiselect[0].set_value([]).run()
    assert "seed1" not in page_html(app) and "Dashed" not in words(app) and app.session_state["selection"].alone
    app.multiselect[0].set_value(["other", "seed1"]).run()
    chosen = app.session_state["selection"]
    assert (chosen.compare, chosen.over, chosen.alone) == ("other", ("seed1",), False), "as on every page"
    again = open_page("training", run="tiny", compare=chosen.compare, over=chosen.over)
    assert again.multiselect[0].value == ["other", "seed1"]


def test_runs_beside_are_one_a_seed(small_run, copy_run) -> None:
    others = {name: copy_run(name, seed=seed) for name, seed in (("b", 5), ("a", 5), ("c", 6), ("d", 0))}
    assert alike(small_run, others) == ["a", "c"]


def test_runs_that_differ_in_more_than_the_seed_are_not_beside(small_run, copy_run) -> None:
    config = small_run.meta["config"]
    other = copy_run("other", seed=1, config=config | {"seed": 1})
    clamped = copy_run("clamped", seed=1, config=config | {"seed": 1, "clamp": ["L0 no-previous"]})
    forked = copy_run("forked", seed=1, config=config | {"seed": 1}, parent={"run": "other", "step": 0})
    assert alike(small_run, {run.name: run for run in (clamped, forked, other)}) == ["other"]


def test_undoing_is_the_dot_product_of_mean_losses(small_run, workplace) -> None:
    from tracer.ablate import losses
    from tracer.analysis.eval_sequences import batches

    found = loading.undone(small_run, 0, 30, ((0, 0), (1, 1)))
    text = batches(small_run).text
    assert text is not None
    start, end = (losses(small_run.model(step), text, [()])[0].mean(0).double().numpy() for step in (0, 30))
    off = losses(small_run.model(30), text, [((1, 1),)])[0].mean(0).double().numpy()
    d = (end - start) / np.linalg.norm(end - start)
    assert found.dots[1] == pytest.approx((off - end) @ d, abs=1e-5)
    np.testing.assert_allclose(found.moved, small_run.trace.loss_by_position.values[[0, -1]].T @ [-1, 1], atol=1e-5)


def test_a_change_is_trained_again_with_every_step(open_page, turning, copy_run, monkeypatch) -> None:
    asked: list[tuple[object, ...]] = []

    def replay(run: Run, *rest: object) -> Any:
        asked.append((run.name, *rest))
        return Started(str(rest[-1]), run.dir, run.dir, None)  # pyrefly: ignore[bad-argument-type]

    monkeypatch.setattr(jobs, "replay", replay)
    app = open_page("phases", run="turning")
    first, last = turning.trace.step.values[[5, 6]].tolist()
    cost = next(e.value for e in app.caption if e.value.startswith(f"turning, steps {first} to {last}\\: "))
    assert "updates from the kept state of step 0, about" in cost
    app.button(key="replay").click().run()
    assert asked == [("turning", first, last, f"turning-{first}-{last}")]
    assert "is being trained." in words(app)

    def fails(*_: object) -> None:
        raise ValueError("no room *here*")

    monkeypatch.setattr(jobs, "replay", fails)
    app.button(key="replay").click().run()
    assert "no room \\*here\\*" in words(app)


def test_what_a_phase_did_is_shown_by_head(open_page, turning, sent) -> None:
    steps = turning.trace.step.values
    app = open_page("phases", run="turning", layer=0, head=0)
    dates = [round((steps[i - 1] + steps[i]) / 2) for i in (3, 6)]
    assert all(f'"when">{date} <small>(' in page_html(app) for date in dates)
    assert app.session_state["phase_box"] == "induction"
    head, _, _ = sent(app, "undoing_lines")
    assert head["labels"] == ["the phase", "L0H0 off"]
    assert verticals(shown(app, "surface_loss")) == [steps[5], steps[6]]
    assert len(shown(app, "loss_path").data[0].x) == 2  # of the whole way, the points around the change
    said = {name: trace.hovertemplate for name, trace in lanes(app).items()}
    assert f"changed: step {dates[0]}, 95 % interval {steps[2]} to {steps[3]}" in said["Previous-token head L0H0"]
    assert f"changed: step {dates[1]}, 95 % interval {steps[5]} to {steps[6]}" in said["Induction head L1H1"]
    app.selectbox(key="phase_box").set_value("previous_token").run()
    assert verticals(shown(app, "surface_loss")) == [steps[2], steps[3]]


def test_the_share_of_the_path_that_a_phase_takes(small_run) -> None:
    steps, across = small_run.trace.step.values, principal(small_run.trace.loss_by_position.values)[0][:, 0]
    assert loading.breadth(small_run, (steps[2], steps[3])) == pytest.approx(
        abs(across[3] - across[2]) / np.ptp(across)
    )
    assert loading.breadth(small_run, (steps[2], steps[2])) == 0.0
    assert loading.breadth(small_run, (int(steps[0]), int(steps[-1]))) == 1.0


def test_less_a_step_takes_that_step_off(open_page, turning) -> None:
    app = open_page("phases", run="turning")
    app.segmented_control(key="surface_box").set_value("since").run()
    cells = shown(app, "surface_loss").data[0]
    np.testing.assert_array_equal(cells.z[:, 5], 0)  # the last step before it
    assert cells.zmin == -cells.zmax


@pytest.mark.parametrize("name", ["patches", "gpt", "opened"])
def test_models_of_others(open_page, elsewhere, name: str) -> None:
    app = open_page("phases", run=name)
    assert not app.exception
    assert "K-composition" not in " ".join(e.label for e in app.button)
