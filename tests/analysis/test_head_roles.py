"""Roles of heads: by hand on a small trace, with and without an interval, a control, and what is not recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

import tracer
from tracer.analysis.head_roles import (
    NONE,
    ROLES,
    UNKNOWN,
    UNSAID,
    HeadRoles,
    given_roles,
    lost_codes,
    nearest_role,
    role_codes,
    roles_in,
)
from tracer.analysis.timeline import roles_at
from tracer.heads import head_means, stats_from_pattern
from tracer.measures import MEASURES, Setting

STUDENT_3 = 3.182446305
DIMS = ("step", "layer", "head")


def trace(**more: Any) -> xr.Dataset:
    """Two records of two layers of two heads; x is known with a standard error over 4 sequences."""
    x = np.array([[[0.0, 0.0], [0.0, 0.0]], [[0.8, 0.8], [0.49, 0.95]]])
    error = xr.DataArray(np.full((2, 2, 2), 0.05), dims=DIMS, attrs={"sequences": 4})
    bounds = {"valid_min": 0.0, "valid_max": 1.0, "long_name": "The copy"}
    return xr.Dataset(
        {"x": xr.DataArray(x, dims=DIMS, attrs=bounds), "x_se": error, **more},
        coords={"step": [0, 10], "layer": [0, 1], "head": [0, 1]},
    )


def control(*values: float) -> xr.DataArray:
    return xr.DataArray(np.broadcast_to(np.reshape(values, (2, 2)), (2, 2, 2)), dims=DIMS)


def found(trace: xr.Dataset, step: int | None = None, **said: Any) -> HeadRoles:
    all_said: dict[str, Any] = {"at_least": 0.5, **said}
    return roles_in(trace, step, [tracer.role("copier", "x", **all_said)])


def test_a_head_has_a_role_where_its_interval_is_above_the_control() -> None:
    low = 0.8 - STUDENT_3 * 0.05
    got = found(trace(c=control(low - 1e-6, low + 1e-6, 0, 0.5)), control="c")
    assert list(got.heads) == [(0, 0), (1, 1)] and got.step == 10 and got.not_recorded == {}
    (one,), (other,) = got.heads.values()
    assert (one.head, one.role.name, one.role.label) == ((0, 0), "copier", "copier")
    assert (one.value, one.low, one.high) == pytest.approx((0.8, low, 0.8 + STUDENT_3 * 0.05), abs=1e-9)
    assert one.control == pytest.approx(low - 1e-6) and other.high == 1, "no share is above 1"
    assert [role.head for role in got.of("copier")] == [(1, 1), (0, 0)]
    assert str(got) == (
        "step 10\nL0H0  copier: 0.80 [0.64, 0.96], control 0.64 (at least 0.5 of x)\n"
        "L1H1  copier: 0.95 [0.79, 1.00], control 0.50 (at least 0.5 of x)"
    )


def test_without_an_error_or_a_control_the_number_itself_counts() -> None:
    bare = trace(c=control(0.79, 0.81, 0, 0)).drop_vars("x_se")
    assert list(found(bare).heads) == [(0, 0), (0, 1), (1, 1)] and list(found(bare, 0).heads) == []
    got = found(bare, control="c", at_least=0.8)
    assert list(got.heads) == [(0, 0), (1, 1)] and np.isnan(got.of("copier")[0].low)
    assert list(found(trace(), at_least=0.49).heads) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    a_step = xr.DataArray([0.0, 0.7], dims="step")  # one control for all heads
    assert list(found(trace(c=a_step), control="c").heads) == [(1, 1)]
    assert not found(trace(c=control(*[np.nan] * 3, 0.99)), control="c").heads, "not above what is not known"


def test_a_head_is_called_by_its_first_role_or_by_what_it_is_nearest_to() -> None:
    easy, hard = (tracer.role(name, "x", at_least=least, control="c") for name, least in (("easy", 0.7), ("hard", 0.9)))
    gone = tracer.role("gone", "y", at_least=0.1)
    held = trace(c=control(0, 0.9, 0, 0)).drop_vars("x_se")
    for head, name, has in (((0, 0), "easy", True), ((0, 1), "easy", False), ((1, 0), "easy", False)):
        found = nearest_role(held, head, None, [gone, easy, hard])
        assert found is not None and (found[0].role.name, found[1]) == (name, has)
    found = nearest_role(held, (1, 1), None, [hard, easy])
    assert found is not None and (found[0].role.name, found[0].value, found[1]) == ("hard", 0.95, True)
    assert nearest_role(held, (0, 0), None, [gone]) is None


def test_what_is_not_recorded_is_said_by_the_name_of_the_role() -> None:
    loss, nothing = xr.DataArray([3.0, 2.0], dims="step"), xr.full_like(trace().x, np.nan)
    for more, said, what in (
        ({}, {"measure": "y"}, "y"), ({"y": nothing}, {"measure": "y"}, "y"),
        ({"y": loss}, {"measure": "y"}, "y as a number of every head"),
        ({}, {"measure": "x", "control": "y"}, "y, its control"),
        ({"y": loss.rename(step="param")}, {"measure": "x", "control": "y"},
         "y, its control, as a number of every head"),
    ):  # fmt: skip
        got = roles_in(trace(**more), None, [tracer.role("copier", at_least=0.5, **said)])
        assert got.not_recorded == {"copier": what} and not got.heads
        assert f"copier: not recorded here: {what}" in str(got)


def test_ours_are_rows_of_the_same_table(short_toy: Any) -> None:
    run = tracer.open_run(short_toy)
    mine = tracer.role("sharp", measure="entropy", at_least=0.0, label="any head")
    got = tracer.roles(run, 20, roles=[mine])
    assert got.step == 20 and len(got.of("sharp")) == 8 and got.not_recorded == {}
    for row in ROLES:
        values, n = run.trace[row.measure].sel(step=20).values, run.trace[f"{row.measure}_se"].attrs["sequences"]
        low = values - stats.t.ppf(0.975, n - 1) * run.trace[f"{row.measure}_se"].sel(step=20).values
        above = (
            run.trace[row.measure].attrs["chance"] if row.control == "chance" else run.trace[row.control].sel(step=20)
        )
        has = (values >= 0.4) & (low > np.asarray(above))
        assert sorted(one.head for one in got.of(row.name)) == [tuple(x) for x in np.argwhere(has).tolist()]
    assert not tracer.roles(run, 0).heads, "an untrained model has none"


def test_chance_is_a_control() -> None:
    known = trace()
    known.x.attrs["chance"] = 0.8 - STUDENT_3 * 0.05 + 1e-6
    assert list(found(known, control="chance").heads) == [(1, 1)]
    for said in (None, "0.1", float("nan")):
        known.x.attrs["chance"] = said
        assert found(known, control="chance").not_recorded == {"copier": "chance, its control"}
    assert list(found(trace(chance=control(0, 0.7, 0, 0)), control="chance").heads) == [(0, 0), (1, 1)]


def test_a_fixed_distance_is_said() -> None:
    """One head looks 3 back, one evenly; patterns made by hand."""
    looks = np.zeros((1, 2, 40, 40))
    looks[0, 0, range(3, 40), range(37)], looks[0, 0, range(3), 0] = 1, 1
    looks[0, 1] = np.tril(np.ones((40, 40))) / np.arange(1, 41)[:, None]
    means = head_means(stats_from_pattern(torch.from_numpy(looks), causal=True))
    chance = MEASURES["fixed_distance"].attributes(Setting(40, 0, 0))
    told = xr.Dataset(
        {name: xr.DataArray(means[name].numpy()[None, None], dims=DIMS, attrs=chance)
         for name in ("fixed_distance", "fixed_distance_at")},
        coords={"step": [0]},
    )  # fmt: skip
    (one,) = roles_in(told, None).heads[0, 0]
    assert (one.role.name, one.label, one.value) == ("fixed_distance", "fixed distance, 3 back", 1)
    assert str(one).startswith("L0H0  fixed distance, 3 back: 1.00, control 0.07") and one.control < 0.08
    assert role_codes(told).tolist() == [[[6, UNSAID]]], "nothing else was recorded"
    assert roles_in(told.drop_vars("fixed_distance_at"), None).heads[0, 0][0].label == "fixed distance"
    said = roles_at(told, None)
    assert said.details == {"fixed distance": ("fixed_distance_at", "back")}
    assert said.measures == {"fixed distance": "fixed_distance"}, "no other score was recorded"


def test_roles_of_a_run_without_fixed_distances_stay(short_toy: Path) -> None:
    """Heads with a role keep it; of others nothing is said, as of any role that was not recorded."""
    trace = tracer.open_run(short_toy).trace
    old = trace.drop_vars([name for name in trace if str(name).startswith("fixed_distance")])
    now, then, named = role_codes(trace), role_codes(old), len(ROLES) - 1
    assert np.array_equal(then, np.where((now > 0) & (now <= named), now, UNSAID))
    assert roles_in(old, None).not_recorded == {"fixed_distance": "fixed_distance"}


def test_by_what_a_head_is_called_at_each_record() -> None:
    """The first of several roles; where none: whether that is known."""
    y = xr.DataArray([[[0, 0], [0, 0]], [[1, 0], [1, np.nan]]], dims=DIMS)
    table = [tracer.role("copier", "x", at_least=0.5), tracer.role("sharp", "y", at_least=0.5)]
    got = role_codes(trace(y=y), table)
    assert got.dtype == np.uint8 and got.tolist() == [[[0, 0], [0, 0]], [[1, 1], [2, 1]]] and NONE == 0
    assert role_codes(trace(y=y), table[1:]).tolist()[1] == [[1, NONE], [1, UNSAID]]
    assert (role_codes(trace(), table[1:]) == UNSAID).all(), "y was not recorded"
    beside = [tracer.role("copier", "x", at_least=0.5, control="y"), *table[1:]]
    assert role_codes(trace(), beside[:1]).tolist() == [[[NONE] * 2] * 2, [[UNKNOWN, UNKNOWN], [NONE, UNKNOWN]]]
    assert role_codes(trace(y=y), beside).tolist()[1] == [[2, 1], [2, UNKNOWN]]
    run = role_codes(trace(y=y), table)
    for step, codes in zip((0, 10), run, strict=True):  # as one record says it
        said = roles_in(trace(y=y), step, table).heads
        first = {head: 1 + [row.name for row in table].index(of[0].role.name) for head, of in said.items()}
        assert {tuple(at): int(codes[tuple(at)]) for at in np.argwhere(codes).tolist()} == first


@pytest.mark.parametrize(
    ("scores", "controls", "lost"),
    [
        ({"x": "0110"}, "0000", "0001"), ({"x": "1010"}, "0000", "0101"),  # no more, and again
        ({"x": "11?0"}, "0000", "0001"), ({"x": "1?11"}, "0000", "0000"),  # not known is not lost
        ({"x": "1111"}, "0220", "0110"), ({"x": "1111"}, "0?00", "0000"),  # by its control alone
        ({"x": "1000", "y": "0010"}, "0000", "0112"),  # the last of several
        ({"x": "1000", "y": "1000"}, "0000", "0111"),  # of two at once the first of the table
        ({"x": "1100", "y": "0111"}, "0000", "0011"),  # called by the other, which it has
        ({"y": "0100"}, "0000", "0022"),
    ],
)  # fmt: skip
def test_what_a_head_was_called_and_is_no_more(scores: dict[str, str], controls: str, lost: str) -> None:
    """One head over four records: a digit is 0 or 1 (the control's, 2 is above any score), ? was not recorded."""

    def variable(digits: str) -> xr.DataArray:
        return xr.DataArray(np.reshape([np.nan if x == "?" else float(x) for x in digits], (-1, 1, 1)), dims=DIMS)

    told = xr.Dataset({name: variable(x) for name, x in scores.items()} | {"c": variable(controls) - 0.5})
    table = [tracer.role("first", "x", at_least=0.5, control="c"), tracer.role("second", "y", at_least=0.5)]
    whole = told.assign_coords(step=range(4), layer=[0], head=[0])
    got = lost_codes(whole, table)
    assert got.dtype == np.uint8 and "".join(map(str, got.ravel())) == lost
    now = roles_at(whole, 2, table)
    assert np.array_equal(now.lost, got[2]) and np.array_equal(now.codes, role_codes(whole, table)[2])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"name": " "}, "name=' ' names nothing"), ({"measure": ""}, "measure='' names nothing"),
        ({"control": "a\nb"}, "control=.* names nothing"), ({"name": "induction"}, "taken by one of ours"),
        ({"at_least": float("nan")}, "at_least=nan is no number that x could reach"),
        ({"control": "x"}, "x is its own control"), ({"measure": "x_se"}, "x_se is the standard error of a number"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_role_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"^role .*{why}"):
        tracer.role(**dict[str, Any](name="mine", measure="x", at_least=0.5) | said)


COPIER = tracer.role("copier", measure="x", at_least=0.5)


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ("math:pi", "roles=math:pi: make it with tracer.role"), (["math:nothing"], "math has no nothing"),
        ([COPIER, COPIER], "two are called 'copier'"),
        (5, "roles=5: make each with tracer.role, or name it as module:name"),
    ],
)  # fmt: skip
def test_what_is_no_role_is_refused(roles: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        given_roles(roles)
    assert given_roles(f"{__name__}:COPIER") == given_roles([COPIER]) == (COPIER,)
