"""The numbers behind the pictures, and what the Plotly figures hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dashboard import theme
from dashboard.loading import rows
from dashboard.shared.figures import places, plain, scatter
from dashboard.views.ablate import figures as of_ablate
from dashboard.views.circuits import figures as of_circuits
from dashboard.views.find import passages as of_find
from dashboard.views.gradients import norms
from dashboard.views.phases import figures as of_phases


def traces(figure) -> list[Any]:
    return list(figure.data)


def layout(figure) -> Any:
    return figure.layout


NAN = float("nan")
NAMES = ["W_E", "L0 W_Q", "W_U"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [(None, 1), (30, 1), (10, 1), (9, 0), (0, 0), (-1, None)],
)
def test_last_measured_passes_over_rows_without_a_number(step, expected):
    values = [[1.0, NAN], [NAN, 2.0], [NAN, NAN]]
    assert rows.last_measured([0, 10, 20], values, step) == expected


def test_last_measured_of_nothing_is_none():
    assert rows.last_measured([0, 1], [[NAN], [NAN]]) is None


@pytest.mark.parametrize(
    ("loss", "count", "expected"),
    [
        ([4.0, 3.0, 2.0, 1.0, 0.0], 5, [0, 1, 2, 3, 4]),
        ([4.0, 4.0, 0.0, 0.0], 3, [0, 2, 3]),  # half way down is passed at row 2
        ([1.0, 5.0, 9.0], 3, [0, 2]),  # never below its first value: first and last
        ([2.0], 4, [0]),
        ([2.0, NAN, 1.0], 2, [0, 2]),
    ],
)
def test_stages_are_equal_parts_of_the_way_down(loss, count, expected):
    assert rows.stages(loss, count) == expected


def test_merge_keeps_each_lines_own_steps():
    steps, values = rows.merge([([0, 10], [1.0, 2.0]), ([0, 5, 10], [3.0, 4.0, 5.0])])
    assert steps.tolist() == [0, 5, 10]
    np.testing.assert_array_equal(values, [[1.0, NAN, 2.0], [3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("values", "wide"),
    [
        ([1.0, 99.0], False),
        ([1.0, 101.0], True),
        ([0.0, 1e9], False),
        ([-1.0, 1e9], False),
        ([NAN], False),
        ([2.0, NAN, 300.0], True),
    ],
)
def test_wide_range(values, wide):
    assert rows.wide_range(values) is wide


PARAMS = [
    "embed.W_E",
    "pos_embed.W_pos",
    "blocks.0.attn.W_Q",
    "blocks.1.mlp.W_in",
    "blocks.0.ln1.w",
    "ln_final.w",
    "unembed.W_U",
]


def test_short_names_and_families():
    assert rows.short_names(PARAMS) == ["W_E", "W_pos", "L0 W_Q", "L1 mlp.W_in", "L0 ln1.w", "ln_final.w", "W_U"]
    groups, names = rows.families(PARAMS)
    assert names == ["embeddings", "layer 0", "layer 1", "output"]
    assert groups == [0, 0, 1, 2, 1, 3, 3]


def test_short_names_of_the_models_of_others():
    gpt = [
        "transformer.wte.weight",
        "transformer.h.0.ln_1.weight",
        "transformer.h.11.attn.c_attn.bias",
        "transformer.ln_f.bias",
    ]
    assert rows.short_names(gpt) == ["wte", "L0 ln_1", "L11 attn.c_attn.bias", "ln_f.bias"]
    assert rows.families(gpt) == ([0, 1, 2, 3], ["embeddings", "layer 0", "layer 11", "output"])
    both = ["e.weight", "t.encoder.layers.0.norm.weight", "t.decoder.layers.0.norm.weight", "o.weight"]
    assert rows.short_names(both) == ["e", "encoder L0 norm", "decoder L0 norm", "o"]
    assert rows.families(both)[1] == ["embeddings", "encoder layer 0", "decoder layer 0", "output"]
    assert rows.short_names(["weight", "0.weight"]) == ["weight", "L0 weight"]


def test_many_tensors_stay_on_a_page_with_as_many_labels_as_fit():
    names = [f"h.{i}.w" for i in range(300)]
    figure = layout(norms.history([0], np.ones((1, 300)), names, label="weight"))
    assert figure.height == 110 + 4 * 300 and list(figure.yaxis.tickvals) == names[::4]
    few = layout(norms.history([0], np.ones((1, 5)), names[:5], label="weight"))
    assert few.height == 110 + 30 * 5 and list(few.yaxis.tickvals) == names[:5]


def test_short_names_stay_distinct():
    clash = ["blocks.0.attn.b", "blocks.0.b"]
    assert len(set(rows.short_names(clash))) == 2


def test_history_holds_powers_of_ten_with_the_values_for_the_mouse():
    values = np.array([[1e-3, 1e-2, 0.0], [1e-4, NAN, 1.0]])
    figure = norms.history(
        [0, 25], values, NAMES, label="update ratio", band=(1e-4, 1e-2), chosen="L0 W_Q", step=25
    )  # fmt: skip
    cells = traces(figure)[0]
    np.testing.assert_allclose(cells.z, [[-3, -4], [-2, NAN], [NAN, 0]], atol=1e-6)
    np.testing.assert_allclose(cells.customdata[..., 0], values.T, rtol=1e-6)
    np.testing.assert_array_equal(cells.customdata[..., 1], [[0, 25]] * 3)
    assert (list(cells.x), list(cells.y)) == ([0, 25, 50], NAMES)  # the edges: a column is as wide as it lasts
    assert cells.z.dtype == cells.customdata.dtype == np.float32
    assert layout(figure).xaxis.title.text == "step"
    assert layout(figure).title.text == "update ratio"
    axis = layout(figure).coloraxis
    assert (axis.cmin, axis.cmax) == (-5, -1)  # 1e-3, the middle of the band, is neutral
    assert dict(zip(axis.colorbar.tickvals, axis.colorbar.ticktext, strict=True)) == {
        -4: "1e−4", -2: "0.01", -1: "0.1", -4.5: "<br>slow", -3: "<br>usual", -1.5: "<br>fast",
    }  # fmt: skip
    frames = {(s.x0, s.y0, s.x1, s.y1) for s in layout(figure).shapes}
    assert frames == {(0, 0.5, 50, 1.5), (25, -0.5, 50, 2.5)}


def test_history_marks_nothing_that_is_not_there():
    figure = norms.history([0], np.ones((1, 3)), NAMES, label="gradient", chosen="W_V", step=7)
    assert not layout(figure).shapes


def test_history_ends_with_the_last_update_and_so_do_its_frames():
    values = np.array([[NAN] * 3, [1e-3, NAN, 1e-2], [NAN] * 3, [NAN] * 3])
    figure = norms.history([0, 5, 10, 15], values, NAMES, label="update ratio", chosen="L0 W_Q", step=15)
    assert list(traces(figure)[0].x) == [0, 5, 10] and traces(figure)[0].z.shape == (3, 2)
    assert {(s.x0, s.x1) for s in layout(figure).shapes} == {(0, 10)}


@pytest.mark.parametrize("values", [np.full((2, 3), NAN), np.zeros((2, 3)), np.ones((2, 3))])
def test_history_of_degenerate_values_has_finite_colours(values):
    axis = layout(norms.history([0, 1], values, NAMES, label="weight")).coloraxis
    assert np.isfinite([axis.cmin, axis.cmax]).all() and axis.cmin < axis.cmax


@pytest.mark.parametrize(
    ("values", "band", "expected"),
    [
        ([1e-9, 1.0], (1e-4, 1e-2), (-5.0, -1.0)),  # always around the band
        ([1e-9, 1.0], (1e-4, 1e-1), (-5.0, 0.0)),
        ([NAN, 0.0], None, (-1.0, 1.0)),
        ([0.1, 0.1], None, (-1.5, -0.5)),
        ([1e-4] * 50 + [1e-2] * 50, None, (-4.0, -2.0)),
    ],
)
def test_reach_is_where_the_values_are(values, band, expected):
    assert norms.reach(values, band) == pytest.approx(expected)


HOSTILE = "<b>x</b><img src=x onerror=alert(1)> &lt; <a href='javascript:alert(1)'>y</a>"


def test_text_is_never_markup() -> None:
    assert plain("<b>&amp;") == "&lt;b&gt;&amp;amp;"
    figure = of_ablate.next_tokens([HOSTILE, "y"], [0.5, 0.1], [0.25, 0.2], true=0)
    names = layout(figure).yaxis.ticktext
    assert names[0] == f"<b>{plain(HOSTILE)}</b> follows" and "<img" not in names[0]
    lane = [(np.array([0, 1]), np.array([0.0, 1.0]))]
    figure = of_phases.timeline(lane, [HOSTILE], units=[""], windows=[None], numbers=[None])
    sent = str(figure.to_json())
    assert "<img" not in sent and "<a " not in sent


def test_next_tokens_say_by_how_many_points_they_changed() -> None:
    before, after = traces(of_ablate.next_tokens(["a", "b"], [0.5, 0.1], [0.25, 0.2]))
    assert (list(before.x), list(after.x)) == ([0.5, 0.1], [0.25, 0.2])
    assert list(after.text) == ["25.0%  −25.0", "20.0%  +10.0"]
    assert len(traces(of_ablate.next_tokens(["a"], [0.5], [0.5], ablated=False))) == 1


def test_zero_stands_at_the_first_step_of_a_logarithmic_axis() -> None:
    assert places([0, 5, 10], True).tolist() == [5, 5, 10] and places([0, 5], False).tolist() == [0, 5]
    assert places([0], True).tolist() == [0]


def test_lanes_have_their_own_range_and_their_value_at_a_step() -> None:
    series = [(np.array([0, 10, 20]), np.array([1.0, 2.0, 3.0])), (np.array([10, 30]), np.array([-5.0, 5.0]))]
    figure = of_phases.timeline(
        series,
        ["a", "b"],
        units=["nats", ""],
        windows=[(0, 10, 20, 5, 15), None],
        numbers=[1, None],
        step=15,
        bands=[np.array([[0.5, NAN, 2.0], [1.5, NAN, 4.0]]), None],
        beside=[{}, {HOSTILE: (np.array([0, 30]), np.array([0.0, 1.0]))}],
    )
    assert list(layout(figure).yaxis.tickvals) == [1, 3] and list(layout(figure).yaxis2.tickvals) == [-5, 5]
    assert [note.text for note in layout(figure).annotations] == ["<b>1</b>  a (nats)", "<b>2</b>", "b", "<b>−5</b>"]
    window, middle, interval, step = layout(figure).shapes
    assert (window.x0, window.x1, middle.x0, step.x0) == (0, 20, 10, 15)
    assert (interval.x0, interval.x1) == (5, 15)
    band, first, other, second = traces(figure)
    assert (other.yaxis, list(other.y), other.line.dash) == ("y2", [0, 1], "dash") and plain(HOSTILE) in other.name
    assert (list(band.x), list(band.y)) == ([0, 20, 20, 0], [1.5, 4.0, 2.0, 0.5])
    assert (first.name, second.name) == ("a", "b")


def test_marks_near_a_curve_are_lines_with_their_names_apart() -> None:
    """Of 44 pixels: two marks that are nearly one stand twelve apart, one that is far away would leave no room."""
    series = [(np.array([0, 10]), np.array([0.7, 0.5])), (np.array([0, 10]), np.array([1.0, 2.0]))]
    marks = [{"unigram": 0.570, HOSTILE: 0.569, "far": 3.0, "below": 0.45}, {}]
    figure = of_phases.timeline(
        series, ["loss", "b"], units=["nats", ""], windows=[None, None], numbers=[None, None], marks=marks
    )
    lines = layout(figure).shapes
    assert [(line.y0, line.y1, line.yref) for line in lines] == [(y, y, "y") for y in (0.570, 0.569, 0.45)]
    names = [note for note in layout(figure).annotations if note.font.size == 11]
    assert [note.text for note in names] == ["unigram 0.57", f"{plain(HOSTILE)} 0.569", "below 0.45"]
    assert list(layout(figure).xaxis.range) == [0, 10], "as the timeline, from the first step to the last"
    low, high = layout(figure).yaxis.range
    assert low < 0.45 and high > 0.7 and layout(figure).yaxis2.range is None
    at = [(note.y - low) / (high - low) * of_phases.BAND + note.yshift for note in names]
    assert at[0] - at[1] == pytest.approx(12) and at[1] - at[2] >= 12 and min(at) >= 0 and max(at) <= of_phases.BAND


@pytest.mark.parametrize(("margin", "ends"), [(0.2, (0.3, 0.71)), (0.001, (0.5, 0.51)), (NAN, (0.5, 0.51))])
def test_a_curve_that_hardly_moves_in_its_band_has_the_ends_of_the_band(margin: float, ends: object) -> None:
    flat = np.array([0, 10]), np.array([0.50, 0.51])
    figure = of_phases.timeline(
        [flat],
        ["loss"],
        units=[""],
        windows=[None],
        numbers=[None],
        bands=[np.stack([flat[1] - margin, flat[1] + margin])],
    )
    assert layout(figure).yaxis.tickvals == pytest.approx(ends)


def test_a_timeline_of_nothing() -> None:
    figure = of_phases.timeline([], [], units=[], windows=[], numbers=[], step=3)
    assert not traces(figure) and not layout(figure).shapes


def test_a_surface_has_a_column_a_step_and_a_row_a_position() -> None:
    values = np.array([[1.0, 3.0], [NAN, NAN], [2.0, 1.0]])
    cells, picks = traces(of_phases.surface(np.array([0, 5, 9]), values, label="x", limits=(1, 3), signed=False))
    np.testing.assert_array_equal(cells.z, values.T)
    assert list(cells.x) == list(picks.customdata) == [0, 5, 9] and list(cells.y) == [1, 2]


@pytest.mark.parametrize(
    ("values", "signed", "expected"),
    [
        (np.linspace(0, 100, 101), False, (1, 99)),
        (np.linspace(-100, 50, 151), True, (-98.5, 98.5)),
        ([4.0, 4.0], False, (4, 5)),
        ([NAN], True, (-1, 1)),
        ([NAN], False, (0, 1)),
        ([0.0, 0.0], True, (-1, 1)),
    ],
)
def test_limits_of_colours(values, signed: bool, expected: tuple[float, float]) -> None:
    assert of_phases.limits(values, signed=signed) == pytest.approx(expected)


def test_a_path_names_its_ends_its_window_and_the_step() -> None:
    steps, points = np.arange(0, 60, 10), np.random.default_rng(0).normal(size=(6, 2))
    thick, way = traces(of_phases.path(steps, points, np.array([0.75, 0.25]), window=(10, 30), step=42))
    assert [bool(text) for text in way.text] == [True, True, False, True, True, True]
    np.testing.assert_array_equal(np.stack([thick.x, thick.y], -1), points[1:4])
    np.testing.assert_array_equal(np.stack([way.x, way.y], -1), points)


def test_a_spectrum_keeps_small_eigenvalues_on_its_inner_ring() -> None:
    (points,) = traces(of_circuits.spectrum(np.array([10 + 0j, -3j, 1e-6 + 0j, 0j])))
    assert list(points.r) == pytest.approx([10, 3, 0.01]) and list(points.theta) == pytest.approx([0, -90, 0])
    assert points.customdata[1].tolist() == [0, -3, 3]
    assert not len(traces(of_circuits.spectrum(np.zeros(2, complex)))[0].r)


def test_positions_hide_what_comes_later() -> None:
    (cells,) = traces(of_circuits.positions(np.array([[1.0, 0.0], [0.25, 0.75]])))
    np.testing.assert_allclose(cells.z, [[1, NAN], [0.5, 0.75**0.5]], rtol=1e-6)
    assert cells.customdata[1, 0].tolist() == [0.25, 1]


def test_parts_end_in_their_sum() -> None:
    (bars,) = traces(of_circuits.contributions(["a", "b"], [1.5, -2.0], "logits"))
    assert (list(bars.x), list(bars.y), bars.measure[-1]) == ([1.5, -2.0, -0.5], ["a", "b", "sum"], "total")
    assert list(bars.text) == ["+1.50", "−2.00", "−0.50"]


def test_only_heads_with_both_numbers_are_points() -> None:
    x, y = np.array([[0.1, NAN], [0.3, 0.4]]), np.array([[1.0, 2.0], [3.0, NAN]])
    figure = scatter(x, y, x_label="score", y_label="effect", edges=(0.5, 0.2), selected=(1, 0))
    first, second = traces(figure)
    assert (list(first.text), list(second.text)) == (["L0H0"], ["L1H0"])
    assert (list(second.x), list(second.y), list(second.customdata[0])) == ([0.3], [3.0], [1, 0])
    assert second.marker.size[0] > first.marker.size[0]
    shaded = scatter(x, x, x_label="", y_label="", shade=(y, theme.Scale("effect", palette="change")))
    assert [list(layer.marker.color) for layer in traces(shaded)] == [[1], [3]] and not layout(shaded).showlegend
    spread, pile = np.array([[0.0, 1.0, 0.5]]), np.array([[0.5] * 6 + [0.0, 1.0]])
    (apart,) = traces(scatter(spread, spread, x_label="", y_label=""))
    assert apart.text == ("L0H0", "L0H1", "L0H2") and set(apart.textposition) == {"top center"}
    (piled,) = traces(scatter(pile, 0 * pile, x_label="", y_label="", selected=(0, 5)))
    assert piled.text == ("L0H0", "L0H1", "L0H2", "", "", "L0H5", "L0H6", "L0H7")  # four fit around one place
    assert len({piled.textposition[i] for i in (0, 1, 2, 5)}) == 4 and piled.textposition[5] == "top center"
    many = scatter(x := np.ones((9, 2)), x, x_label="", y_label="")
    assert [list(layer.marker.color) for layer in traces(many)] == [[layer] * 2 for layer in range(9)]
    assert layout(many).coloraxis.cmax == 8 and not layout(many).showlegend
    with pytest.raises(ValueError, match=r"\(9, 2\) and y \(2, 1\)"):
        scatter(x, y[:, :1], x_label="", y_label="", edges=(0, 0))


def test_the_spread_covers_its_range() -> None:
    (bars,) = traces(of_find.spread(np.array([3, 0, 1, 2]), 2.0, label="share"))
    assert list(bars.x) == [0.25, 0.75, 1.25, 1.75] and list(bars.y) == [3, 0, 1, 2]
