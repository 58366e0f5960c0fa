"""Courses whose changes are known: curves built by hand, and a trained run against dense algebra."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tests.tiers import quick
from tracer.analysis import training_curves
from tracer.analysis.training_curves import HAPPENS, NAMES, Curve, Reads, best, events, order
from tracer.measures import change_points, described
from tracer.measures.change_points import PhaseChange, phase_change
from tracer.measures.intervals import NORMAL
from tracer.model import Transformer
from tracer.store import Run

STEPS = np.arange(0, 1000, 10)


def rises(start: int, stop: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return np.interp(STEPS, [start, stop], [low, high])


def curve(name: str, start: int, stop: int) -> Curve:
    values = rises(start, stop)
    return Curve(name, STEPS, values, phase_change(STEPS, values))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((100, 200), (300, 400), "before"),
        ((300, 400), (100, 200), "after"),
        ((100, 300), (200, 400), "before"),  # they run side by side, and the middle of one is surely the earlier
        ((200, 400), (100, 300), "after"),
        ((100, 200), (100, 200), "overlap"),
        ((100, 200), (108, 208), "overlap"),  # less apart than two records
    ],
)
def test_an_order_is_known_where_the_intervals_of_the_dates_share_no_step(one, other, expected) -> None:
    assert order(curve("induction", *one), curve("previous_token", *other)) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [((100, 200), (300, 400), "before"), ((300, 400), (100, 200), "after"), ((100, 300), (200, 400), "units"),
     ((100, 200), (100, 200), "overlap")],
)  # fmt: skip
def test_curves_of_two_units_are_in_order_where_one_ends_before_the_other_begins(one, other, expected) -> None:
    assert order(curve("induction", *one), curve("entropy", *other)) == expected


@pytest.mark.parametrize(("onset", "expected"), [(219, "units"), (220, "units"), (221, "before")])
def test_one_has_gone_most_of_its_way_before_the_other_has_gone_a_little_of_its_own(onset: int, expected: str) -> None:
    """At their latest and earliest: the first ends at 220 if it was halfway at 170, the other begins at its onset."""
    first = Curve("induction", STEPS, STEPS.astype(float), PhaseChange(100, 150, 200, 130, 170, 0.0, 1.0))
    other = Curve("entropy", STEPS, STEPS.astype(float), PhaseChange(onset + 20, 300, 350, 280, 320, 0.0, 1.0))
    assert order(first, other) == expected
    assert order(other, first) == {"before": "after"}.get(expected, expected)


@pytest.mark.parametrize("width", quick([20, 40], (20,)))
@pytest.mark.parametrize("low", quick([0.02, 0.05], (0.02,)))
def test_one_event_seen_twice_is_one_event(low: float, width: int) -> None:
    """A score p and a loss of -ln p, each with a little noise of its own: their own middles are far apart."""
    rng, orders, apart = np.random.default_rng(3), [], []
    for middle in rng.uniform(300, 600, 20):
        p = low + (0.9 - low) / (1 + np.exp(-(STEPS - middle) / width))
        scores = np.repeat(p[:, None, None], 2, axis=1) + 0.004 * rng.normal(size=(100, 2, 1))
        trace = scalars(repeat_loss=-np.log(p) + 0.01 * rng.normal(size=100), learning_rate=np.ones(100))
        trace["induction"] = ("step", "layer", "head"), scores
        found = {one.name: one for one in training_curves.course(trace)}
        score, loss = found["induction"], found["repeat_loss"]
        if score.change and loss.change:
            orders.append(order(score, loss))
            apart.append(not score.change.overlaps(loss.change))
    assert len(orders) >= 15 and np.mean(apart) > 0.9
    assert not {"before", "after"} & {*orders}


def test_two_events_in_two_units_are_in_order() -> None:
    rise = 0.02 + 0.88 / (1 + np.exp(-(STEPS - 300) / 10))
    later = 0.02 + 0.88 / (1 + np.exp(-(STEPS - 420) / 30))
    trace = scalars(repeat_loss=-np.log(later), learning_rate=np.ones(100))
    trace["induction"] = ("step", "layer", "head"), rise[:, None, None] * np.ones((1, 2, 1))
    found = {one.name: one for one in training_curves.course(trace)}
    assert order(found["induction"], found["repeat_loss"]) == "before"
    assert order(found["repeat_loss"], found["induction"]) == "after"


def test_the_end_of_the_warm_up_is_read_from_the_learning_rate() -> None:
    warming = np.minimum((STEPS + 1) / 200, 1.0)
    assert training_curves.warmed_up(scalars(learning_rate=warming)) == 200
    assert training_curves.warmed_up(scalars(learning_rate=warming * np.exp(-np.maximum(STEPS - 300, 0) / 500))) == 200
    assert training_curves.warmed_up(scalars(learning_rate=np.linspace(1, 0, 100))) == 0
    assert training_curves.warmed_up(scalars(learning_rate=np.arange(100.0))) is None  # it still rises
    assert training_curves.warmed_up(scalars(val_loss=np.zeros(100))) is None


def test_what_changes_as_the_learning_rate_warms_up_is_not_dated() -> None:
    rate = np.minimum((STEPS + 1) / 200, 1.0)
    early, late = rises(120, 260, 5.0, 3.0), rises(500, 600, 5.0, 3.0)
    (warming,) = training_curves.course(scalars(val_loss=early, learning_rate=rate))
    assert warming.change is None and "warms up" in warming.undated
    for loss, lr in ((early, np.ones(100)), (late, rate)):
        (found,) = training_curves.course(scalars(val_loss=loss, learning_rate=lr))
        assert found.change is not None and not found.undated


def test_the_head_that_ends_highest_of_many_must_stand_out_more() -> None:
    """A step of 7 times what the curve does on the way to it."""
    step = np.where(STEPS >= 500, 0.6, 0.0) + np.interp(STEPS, [0, 490], [0.1, 0.2])
    few, many = (np.zeros((100, 1, heads)) for heads in (1, 144))
    for scores in (few, many):
        scores[:, 0, 0] = step
    one, best_of = (
        training_curves.course(xr.Dataset({"induction": (("step", "layer", "head"), scores)}, {"step": STEPS}))[0]
        for scores in (few, many)
    )
    assert one.change is not None and best_of.heads == ((0, 0),) and best_of.change is None and best_of.undated


def test_a_curve_that_never_changed_has_no_order() -> None:
    flat = Curve("entropy", STEPS, np.zeros(STEPS.size), None)
    assert order(flat, curve("induction", 100, 200)) == order(curve("induction", 100, 200), flat) == ""


def test_events_come_by_midpoint() -> None:
    late, early, wide = curve("induction", 600, 700), curve("previous_token", 100, 200), curve("entropy", 600, 800)
    flat = Curve("icl_score", STEPS, np.zeros(STEPS.size), None)
    slope = curve("gradient", 100, 900)
    found = [c.name for c in events([late, flat, slope, wide, early])]
    assert found == ["previous_token", "induction", "entropy"] and slope.change is None


def test_an_event_is_told_in_a_few_words() -> None:
    found = curve("previous_token", 100, 200)
    assert replace(found, heads=((0, 1),)).happens == "L0H1 turns to the token before"
    assert replace(found, heads=((0, 1),)).mark == "L0H1: previous token"
    reads = replace(curve("composition", 100, 200), heads=((0, 1), (1, 2)))
    assert reads.happens == "L1H2 reads L0H1"
    fall = rises(100, 200, 1.0, 0.0)
    assert Curve("repeat_loss", STEPS, fall, phase_change(STEPS, fall)).happens == "Loss on repeats falls"
    own = described("grip", ("step",), {"long_name": "Grip"})
    assert replace(found, name="grip", own=own).happens == "Grip rises"
    assert Curve("entropy", STEPS, np.zeros(STEPS.size), None).happens == ""
    assert HAPPENS.keys() == NAMES.keys()


def scalars(**variables: np.ndarray) -> xr.Dataset:
    return xr.Dataset({name: ("step", values) for name, values in variables.items()}, coords={"step": STEPS})


@pytest.mark.parametrize(("move", "changed"), [(0.04, False), (0.06, True)])
def test_a_move_must_be_large_enough_to_tell(move: float, changed: bool) -> None:
    (found,) = training_curves.course(scalars(val_loss=rises(400, 500, 2.0, 2.0 + move)))
    assert (found.change is not None) == changed and found.margins is None


@pytest.mark.parametrize(("se", "changed"), [(0.34, True), (0.38, False)])
def test_a_move_within_the_interval_of_its_rows_is_none(se: float, changed: bool) -> None:
    """The difference of two means has an interval of 1.96 sqrt(2) standard errors: 1 nat is that of 0.361."""
    loss = scalars(val_loss=rises(400, 500, 3.0, 2.0), val_loss_se=np.full(100, se))
    (found,) = training_curves.course(loss)
    assert (found.change is not None) == changed
    assert found.margins is not None and found.margins[0] == pytest.approx(NORMAL * se)


@pytest.mark.parametrize(("name", "low", "high"), [("val_loss", 0, 11), ("icl_score", -10, 11), ("entropy", 0, 1)])
def test_a_band_of_few_rows_ends_where_its_quantity_can(name: str, low: float, high: float) -> None:
    found = Curve(name, STEPS[:2], np.array([1.0, 0.0]), None, margins=np.full(2, 10.0))
    assert found.band is not None and (found.band.min(), found.band.max()) == (low, high)


def test_a_context_score_of_one_token_is_not_dated() -> None:
    score = rises(400, 500, 0.0, -1.0)
    (old,) = training_curves.course(scalars(icl_score=score))
    assert old.change is None and "one token" in old.undated
    (new,) = training_curves.course(scalars(icl_score=score, icl_score_se=np.full(100, 0.05)))
    assert new.change is not None and new.change.midpoint == pytest.approx(450, abs=10) and not new.undated


def test_the_head_of_a_curve_is_the_one_that_ends_highest() -> None:
    scores = np.zeros((100, 2, 2))
    scores[:, 0, 0] = rises(100, 200) * (STEPS < 800)  # higher on the way, gone at the end
    scores[:, 1, 1] = rises(300, 400, 0, 0.6)
    scores[-1, 0, 1] = 1.0  # one outlier does not make it the highest
    assert best(scores) == (1, 1)
    scores[-2, 1] = math.nan  # one record without that layer changes nothing
    assert best(scores) == (1, 1)
    scores[:, 1, 1] = math.nan  # a head that does not exist
    assert best(scores) == (0, 1) or best(scores) == (0, 0)
    assert best(np.full((9, 2, 2), math.nan)) is None


def a_trace() -> xr.Dataset:
    heads = np.zeros((100, 2, 2))
    induction, previous, entropy = heads.copy(), heads.copy(), np.ones((100, 2, 2))
    induction[:, 1, 0], previous[:, 0, 1] = rises(600, 700), rises(200, 300)
    entropy[:, 1, 1] = math.nan
    entropy[:, 0, 0] = rises(100, 150, 1.0, 0.1)
    grads = np.stack([rises(400, 450, 3.0, 6.0), rises(400, 450, 4.0, 8.0)], axis=1)
    dims = ("step", "layer", "head")
    return xr.Dataset(
        {
            "val_loss": ("step", rises(100, 200, 5.0, 3.0)),
            "repeat_loss": ("step", np.full(100, math.nan)),
            "induction": (dims, induction),
            "previous_token": (dims, previous),
            "entropy_normalised": (dims, entropy),
            "grad_norm": (("step", "param"), grads),
        },
        coords={"step": STEPS},
    )


def test_a_course_by_hand() -> None:
    snapshots = list(range(0, 1000, 20))
    scores = np.full((50, 2, 2, 2, 2), 9.0, np.float32)
    scores[:, 0, 1, 1, 0] = np.interp(snapshots, [400, 500], [0.25, 0.75])
    found = {c.name: c for c in training_curves.course(a_trace(), Reads(snapshots, scores, 0.25))}
    assert list(found) == ["val_loss", "induction", "previous_token", "composition", "entropy", "gradient"]
    assert found["induction"].heads == ((1, 0),) and found["previous_token"].heads == ((0, 1),)
    assert found["composition"].label == "K-composition L0H1 → L1H0"
    assert found["composition"].values[0] == 0.0 and found["composition"].values[-1] == 0.5
    assert found["composition"].steps.tolist() == snapshots
    assert all(one.margins is None for one in found.values())
    np.testing.assert_allclose(found["entropy"].values[[0, -1]], [1.0, 0.7])  # of the three heads that exist
    np.testing.assert_allclose(found["gradient"].values[[0, -1]], [5.0, 10.0])
    assert [c.name for c in events(found.values())] == [
        "entropy", "val_loss", "previous_token", "gradient", "composition", "induction",
    ]  # fmt: skip


def test_only_heads_of_earlier_layers_are_read() -> None:
    trace = a_trace()
    trace["previous_token"][:, 0, 1] *= 0.9
    trace["previous_token"][:, 1, 1] = 1.0  # the best of all, beside the induction head
    reads = Reads([0, 990], np.random.default_rng(0).random((2, 2, 2, 2, 2)).astype(np.float32), 0.0)
    found = {c.name: c for c in training_curves.course(trace, reads)}
    assert found["previous_token"].heads == ((0, 1),)
    assert found["composition"].heads == ((0, 1), (1, 0))


def a_place(trace: xr.Dataset) -> xr.Dataset:
    """L0H0 has the highest score of all, and its control is as high: it looks at a place."""
    trace["induction"][:, 0, 0] = rises(300, 400, 0.0, 1.1)
    trace["induction_control"] = trace["induction"] * 0
    trace["induction_control"][:, 0, 0] = rises(300, 400, 0.0, 1.12)
    return trace


def test_the_induction_head_is_the_one_that_ends_farthest_above_its_control() -> None:
    found = {c.name: c for c in training_curves.course(a_place(a_trace()))}
    assert found["induction"].heads == ((1, 0),) and found["previous_token"].heads == ((0, 1),)


def test_where_no_head_is_above_its_control_none_is_the_induction_head() -> None:
    trace = a_place(a_trace())
    trace["induction_control"][:, 1, 0] = trace["induction"][:, 1, 0]
    reads = Reads([0, 990], np.ones((2, 2, 2, 2, 2), np.float32), 0.0)
    names = [curve.name for curve in training_curves.course(trace, reads)]
    assert training_curves.strongest(trace) is None and "previous_token" in names
    assert "induction" not in names and "composition" not in names


def test_a_head_is_never_both_parts_of_a_circuit() -> None:
    """Of one layer: the head that does both is the induction head, and the previous-token head is another."""
    trace = a_trace().isel(layer=[1])
    trace["previous_token"][:, 0, 0], trace["previous_token"][:, 0, 1] = rises(200, 300), 0.1
    found = {c.name: c for c in training_curves.course(trace)}
    assert found["induction"].heads == ((0, 0),) and found["previous_token"].heads == ((0, 1),)
    assert not training_curves.may_feed(found["previous_token"], found["induction"])


def test_without_weights_there_is_no_composition() -> None:
    assert "composition" not in [c.name for c in training_curves.course(a_trace())]


def test_composition_over_snapshots_is_that_of_dense_matrices(short_toy: Path) -> None:
    run = Run(short_toy)
    assert training_curves.readable(run)
    found = dict(training_curves.compositions(run, run.steps))
    assert list(found) == run.steps == [0, 10, 20, 30]
    for step, scores in found.items():
        model = run.model(step)
        assert isinstance(model, Transformer)
        one, two = (block.attn for block in model.blocks)
        assert one.W_O is not None
        writes = (one.W_V[1] @ one.W_O[1]).double().numpy()
        reads = (two.W_Q[0] @ two.W_K[0].T).double().numpy()
        dense = np.linalg.norm(writes @ reads.T) / np.linalg.norm(writes) / np.linalg.norm(reads)
        assert scores[0, 1, 1, 0] == pytest.approx(dense, rel=1e-4)
    assert training_curves.by_chance(run) == pytest.approx(1 / math.sqrt(run.config.model.d_model), rel=0.05)


def test_slope_of_a_logarithm_is_its_factor() -> None:
    x = np.log(np.arange(1, 65))
    loss = np.stack([5 - 0.7 * x, 3 + 0.0 * x, 2 * x])
    np.testing.assert_allclose(
        change_points.slope(loss), np.array([[-0.7], [0.0], [2.0]]) * np.ones((1, 64)), atol=1e-12
    )


def test_slope_is_the_least_squares_line_of_an_octave_either_side() -> None:
    row = np.random.default_rng(0).normal(size=40)
    x = np.log(np.arange(1, 41))
    j = 19  # position 20: those between 10 and 40, both left out
    near = (np.arange(1, 41) > 10) & (np.arange(1, 41) < 40)
    assert change_points.slope(row[None])[0, j] == pytest.approx(np.polyfit(x[near], row[near], 1)[0])
    assert change_points.slope(row[None])[0, 0] == pytest.approx((row[1] - row[0]) / math.log(2))


def test_a_straight_path_has_one_component() -> None:
    way = np.array([3.0, 4.0, 0.0])
    points, shares = change_points.path(np.outer([0, 1, 2, 5], way) + 7)
    np.testing.assert_allclose(points[:, 0], [-10, -5, 0, 15], atol=1e-12)
    np.testing.assert_allclose(shares, [1, 0], atol=1e-12)


def test_path_keeps_distances_of_a_plane_and_points_right_and_up() -> None:
    corners = np.array([[0, 0], [9, 0], [9, 2], [18, 2]], float)
    turned = corners @ np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0][:2]
    points, shares = change_points.path(turned)
    apart = lambda p: np.linalg.norm(p[:, None] - p[None], axis=-1)  # noqa: E731
    np.testing.assert_allclose(apart(points), apart(corners), atol=1e-10)
    assert shares.sum() == pytest.approx(1) and points[-1, 0] > points[0, 0]
    for number in range(8):  # whose own signs are some of both
        turned = corners @ np.linalg.qr(np.random.default_rng(number).normal(size=(5, 5)))[0][:2]
        points, _ = change_points.path(turned / 10)
        assert points[-1, 0] > points[0, 0] and points[np.abs(points[:, 1]).argmax(), 1] > 0


def test_a_path_that_does_not_move_has_no_components() -> None:
    assert change_points.path(np.ones((3, 4)))[1].tolist() == [0, 0]


def test_breadth_is_a_share_of_the_first_component() -> None:
    on_a_line = np.outer([0, 1, 2, 5], [3.0, 4.0])
    assert change_points.breadth(on_a_line, np.array([False, True, True, False])) == pytest.approx(0.2)
    assert change_points.breadth(on_a_line, np.zeros(4, bool)) == 0


def test_before_and_after() -> None:
    d = change_points.before_and_after([1, 1, 1], [1, 4, 5])
    np.testing.assert_allclose(d, [0, 0.6, 0.8])
    assert np.array([9, -3, -4]) @ d == pytest.approx(-5)  # taking the change back undoes it
    assert change_points.before_and_after([2, 2], [2, 2]).tolist() == [0, 0]


@pytest.mark.parametrize("call", [lambda: change_points.slope([1.0, 2.0]), lambda: change_points.path([[1.0, 2.0]])])
def test_shapes_are_refused(call) -> None:
    with pytest.raises(ValueError, match="got shape"):
        call()


def test_perplexity_of_an_exploded_loss_is_infinite_without_a_warning():
    assert training_curves.perplexity(0.0) == 1
    np.testing.assert_allclose(training_curves.perplexity([0.0, np.log(65), 1e8]), [1.0, 65.0, np.inf])


def test_total_norm_is_the_norm_of_all_tensors_beyond_float32():
    assert training_curves.total_norm(np.array([[3.0, 4.0], [3e30, 4e30]], np.float32)) == pytest.approx([5.0, 5e30])


def test_a_value_that_is_not_finite_hides_no_other_of_its_part() -> None:
    values = np.arange(100.0)
    values[[3, 55]] = np.inf, -np.inf
    assert training_curves.extremes(values, 4).tolist() == [0, 24, 25, 49, 50, 74, 75, 99]


def test_a_long_curve_is_drawn_by_its_extremes() -> None:
    values = np.random.default_rng(0).normal(size=100_003)
    values[777] = 50.0
    values[4_000:6_500] = np.nan
    places = training_curves.extremes(values, 50)
    assert places.size <= 100 and (np.diff(places) > 0).all() and 777 in places
    for i in range(50):
        part = values[round(i * 100_003 / 50) : round((i + 1) * 100_003 / 50)]
        kept = values[places[(places >= round(i * 100_003 / 50)) & (places < round((i + 1) * 100_003 / 50))]]
        if np.isfinite(part).any():
            assert (kept.min(), kept.max()) == (np.nanmin(part), np.nanmax(part))
        else:
            assert kept.size == 0
    assert training_curves.extremes(values[:100], 50).tolist() == list(range(100))
    assert training_curves.extremes([1.0, 1.0, 2.0, 2.0], 2).tolist() == [0, 1, 2, 3]
