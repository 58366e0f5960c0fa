"""The numbers behind the pictures, and what the Plotly figures hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dashboard.pages.gradients import norms
from dashboard.shared import rows


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
    figure = layout(norms.history([0], np.ones((1, 300)), names, label="weight w"))
    assert figure.height == 96 + 4 * 300 and list(figure.yaxis.tickvals) == names[::4]
    few = layout(norms.history([0], np.ones((1, 5)), names[:5], label="weight w"))
    assert few.height == 96 + 30 * 5 and list(few.yaxis.tickvals) == names[:5]


def test_short_names_stay_distinct():
    clash = ["blocks.0.attn.b", "blocks.0.b"]
    assert len(set(rows.short_names(clash))) == 2


def test_history_holds_powers_of_ten_with_the_values_for_the_mouse():
    values = np.array([[1e-3, 1e-2, 0.0], [1e-4, NAN, 1.0]])
    figure = norms.history([0, 25], values, NAMES, label="update ratio u", ratio=True, chosen="L0 W_Q", step=25)
    cells = traces(figure)[0]
    np.testing.assert_allclose(cells.z, [[-3, -4], [-2, NAN], [NAN, 0]], atol=1e-6)
    np.testing.assert_allclose(cells.customdata, values.T, rtol=1e-6)
    assert (list(cells.x), list(cells.y)) == (["0", "25"], NAMES)
    assert cells.z.dtype == cells.customdata.dtype == np.float32
    assert layout(figure).xaxis.title.text == "recorded step"
    assert layout(figure).title.text == "update ratio u"
    assert (layout(figure).coloraxis.cmin + layout(figure).coloraxis.cmax) / 2 == norms.RULE_OF_THUMB
    frames = {(s.x0, s.y0, s.x1, s.y1) for s in layout(figure).shapes}
    assert frames == {(-0.5, 0.5, 1.5, 1.5), (0.5, -0.5, 1.5, 2.5)}


def test_history_marks_nothing_that_is_not_there():
    figure = norms.history([0], np.ones((1, 3)), NAMES, label="gradient g", chosen="W_V", step=7)
    assert not layout(figure).shapes


def test_history_ends_with_the_last_update_and_so_do_its_frames():
    values = np.array([[NAN] * 3, [1e-3, NAN, 1e-2], [NAN] * 3, [NAN] * 3])
    figure = norms.history([0, 5, 10, 15], values, NAMES, label="update ratio u", chosen="L0 W_Q", step=15)
    assert list(traces(figure)[0].x) == ["0", "5"] and traces(figure)[0].z.shape == (3, 2)
    assert {(s.x0, s.x1) for s in layout(figure).shapes} == {(-0.5, 1.5)}


@pytest.mark.parametrize("values", [np.full((2, 3), NAN), np.zeros((2, 3)), np.ones((2, 3))])
def test_history_of_degenerate_values_has_finite_colours(values):
    axis = layout(norms.history([0, 1], values, NAMES, label="weight w")).coloraxis
    assert np.isfinite([axis.cmin, axis.cmax]).all() and axis.cmin < axis.cmax


@pytest.mark.parametrize(
    ("values", "ratio", "expected"),
    [
        ([1e-9, 1.0], True, (-5.0, -1.0)),  # always around the rule of thumb
        ([NAN, 0.0], False, (-1.0, 1.0)),
        ([0.1, 0.1], False, (-1.5, -0.5)),
        ([1e-4] * 50 + [1e-2] * 50, False, (-4.0, -2.0)),
    ],
)
def test_reach_is_where_the_values_are(values, ratio, expected):
    assert norms.reach(values, ratio) == pytest.approx(expected)
