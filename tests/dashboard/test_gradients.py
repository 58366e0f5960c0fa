"""Gradients: the table with its bands, the pictures, the followed tensor, the focused head."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import zarr

from dashboard.loading.rows import short_names
from dashboard.views.gradients.health import answer, verdict
from tracer.config import OptimConfig
from tracer.measures import UPDATE_BANDS

MUON, SGD = OptimConfig("muon", qk_lr_factor=20 / 3), OptimConfig("sgd")


def cue(app, key):
    """What a part without bytes was given."""
    (found,) = [e.proto.json for e in app.get("bidi_component") if e.proto.id.endswith(f"-{key}:cue")]
    return json.loads(found)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (0.0, "▽ slow"),
        (9.9e-5, "▽ slow"),
        (1e-3, "usual"),
        (2e-2, "△ fast"),
        (0.5, "✕ very fast"),
        (math.inf, "✕ not finite"),
        (math.nan, "– unknown"),
    ],
)
def test_verdict_is_a_word_with_a_mark_where_it_is_not_expected(ratio, word):
    assert verdict(ratio, SGD) == word
    assert verdict(ratio, MUON) == ("fast" if word == "△ fast" else word)


@pytest.mark.parametrize(
    ("ratios", "optimiser", "said"),
    [
        ({"W_E": 1e-3, "L0 W_Q": 5e-3}, SGD, "**In band**: every update ratio is between 0.0001 and 0.01."),
        ({"W_E": 1e-3, "L0 W_Q": 2e-2, "L1 W_Q": 2e-2, "L1 W_K": 2e-2}, MUON,
         "**As expected**: `W_Q` and `W_K` learn fast, at 6.67 times the learning rate of the rest."),
        ({"W_E": 2e-2, "L0 W_V": 1e-3}, OptimConfig("adamw"), "**As expected**: `W_E` learns fast, usual with Adamw."),
        ({"W_E": 2e-2, "L0 W_V": 1e-3}, SGD, "**Worth a look**: `W_E` learns fast."),
        ({"W_E": 2e-2, "L0 W_V": 1e-5, "L1 W_V": 1e-5}, None,
         "**Worth a look**: `W_V` learns slowly, `W_E` learns fast."),
        ({"W_E": 1e-6, "L0 W_V": 1e-6}, MUON,
         "**Slow**: every tensor changes by less than 0.0001 of its norm at a step."),
        ({"W_E": 0.5, "L0 W_V": math.nan, "W_U": 1e-3}, MUON,
         "**Out of band**: `W_E` changes by a tenth or more at each step (0.5, usual up to 0.01)."),
        ({"W_E": math.inf}, SGD, "**Out of band**: the updates of `W_E` are not finite."),
        ({"W_E": math.nan}, SGD, "No update was measured at this step."),
    ],
)  # fmt: skip
def test_the_page_answers_first(ratios, optimiser, said):
    assert answer(list(ratios), list(ratios.values()), optimiser) == said


def test_table_is_the_last_row_that_has_an_update(open_page, small_run):
    app = open_page("gradients", run="tiny")
    table, row = app.dataframe[0].value, small_run.trace.sel(step=25)
    paces = [verdict(float(u), small_run.config.optim) for u in row.update_ratio.values]
    assert f"{len(paces)} tensors at step 25: " in next(one.label for one in app.expander if "tensors" in one.label)
    assert "Last update: step 25." in " ".join(c.value for c in app.caption)
    assert table["tensor"].tolist() == short_names([str(name) for name in row.param.values])
    for column, name in (("gradient", "grad_norm"), ("weight", "weight_norm"), ("update ratio", "update_ratio")):
        np.testing.assert_allclose(table[column].to_numpy(), row[name].values)
    assert table["pace"].tolist() == paces


def test_table_follows_the_chosen_step(open_page, small_run):
    table = open_page("gradients", run="tiny", step=10).dataframe[0].value
    np.testing.assert_allclose(table["gradient"].to_numpy(), small_run.trace.grad_norm.sel(step=10).values)


def test_bands_say_what_is_healthy_and_whose_rule_it_is(open_page):
    app = open_page("gradients", run="tiny")
    said = " ".join(element.value for element in (*app.markdown, *app.caption))
    for band in UPDATE_BANDS:
        assert band.text in said
    assert "CS231n" in said and "A guide" in said


@pytest.mark.parametrize(
    ("shown", "variable"),
    [("update_ratio", "update_ratio"), ("grad_norm", "grad_norm"), ("weight_norm", "weight_norm")],
)
def test_each_quantity_is_drawn_everywhere(open_page, small_run, sent, shown, variable):
    before = "grad_norm" if shown == "weight_norm" else "weight_norm"
    app = open_page("gradients", run="tiny", quantity=before)
    app.segmented_control(key="quantity_box").set_value(shown).run()
    assert not app.exception and app.session_state["selection"].quantity == shown
    head, arrays, _ = sent(app, "tensor_curves")
    values = np.log10(small_run.trace[variable].values.T)
    decoded = np.where(
        arrays["lines"] == 65535, np.nan, arrays["lines"] / 65534 * (head["hi"] - head["lo"]) + head["lo"]
    )
    np.testing.assert_allclose(decoded, values, atol=1e-3)
    (tensors,) = (json.loads(chart.proto.spec) for chart in app.get("plotly_chart"))
    assert tensors["data"][0]["y"][0] == "W_E"
    each = small_run.trace[f"head_{variable}"].sel(step=25).values  # the last that an update followed
    for i, matrix in enumerate("QKVO"):
        grid = cue(app, f"heads_W_{matrix}")
        np.testing.assert_allclose(grid["values"], each[..., i])
        assert grid["log"] and grid["bare"] == (matrix != "O")
        assert grid["scale"]["palette"] == ("pace" if shown == "update_ratio" else "score")


def test_heads_over_time_come_first(open_page, small_run, sent):
    """Of each pair of matrices the larger number, its power of ten; a click takes a head into focus."""
    app = open_page("gradients", run="tiny", layer=0, head=1)
    values = small_run.trace.head_update_ratio.values.reshape(-1, 8, 4)
    for pair, columns in (("QK", [0, 1]), ("VO", [2, 3])):
        head, arrays, told = sent(app, f"over_time_{pair}")
        kept = np.isfinite(values).all(axis=(1, 2))
        lo, hi = head["lo"], head["hi"]
        expected = np.log10(values[kept][..., columns].max(-1)).T
        np.testing.assert_allclose(arrays["cells"] / 65534 * (hi - lo) + lo, expected, atol=1e-3)
        assert told["value"] == "L0H1" and told["scale"]["palette"] == "pace" and set(told["notes"]) >= {"L1H3"}
    app.session_state["over_time_VO"] = {"pick": "L1H2"}
    assert app.run().session_state["selection"].focus == (1, 2)


def test_a_click_on_a_head_takes_it_into_focus(open_page):
    app = open_page("gradients", run="tiny", layer=0, head=1)
    assert cue(app, "heads_W_K")["value"] == [0, 1]
    app.session_state["heads_W_K"] = {"pick": {"value": [1, 3], "time": 1}}
    app.run()
    assert app.session_state["selection"].focus == (1, 3)
    assert [cue(app, f"heads_W_{matrix}")["value"] for matrix in "QKVO"] == [[1, 3]] * 4


def test_a_matrix_that_a_model_does_not_have_is_said(open_page, copy_run):
    run = copy_run("bare")
    values = zarr.open_array(str(run.dir / "trace.zarr" / "head_update_ratio"), mode="r+")
    values[..., 3] = np.nan
    app = open_page("gradients", run="bare")
    grid = cue(app, "heads_W_O")
    assert (grid["title"], grid["value"]) == ("W_O: this model has none", None)
    assert {value for row in grid["values"] for value in row} == {None}
    assert cue(app, "heads_W_V")["title"] == "W_V"


def test_a_row_of_the_table_is_followed_in_picture_and_curves(open_page, sent, small_run):
    app = open_page("gradients", run="tiny", tensor="blocks.0.attn.W_V")
    assert sent(app, "tensor_curves")[2]["value"] == "L0 W_V"
    names = [str(name) for name in small_run.trace["param"].values]
    assert app.session_state["tensor_table"]["selection"]["rows"] == [names.index("blocks.0.attn.W_V")]
    picture = json.loads(app.get("plotly_chart")[0].proto.spec)
    row = picture["data"][0]["y"].index("L0 W_V")
    assert any(shape["y0"] == row - 0.5 and shape["y1"] == row + 0.5 for shape in picture["layout"]["shapes"])


def test_a_click_on_a_line_follows_its_tensor(open_page, sent):
    app = open_page("gradients", run="tiny")
    app.session_state["tensor_curves"] = {"pick": "L1 W_Q"}
    app.run()
    assert app.session_state["selection"].tensor == "blocks.1.attn.W_Q"
    assert sent(app, "tensor_curves")[2]["value"] == "L1 W_Q"


def test_the_whole_gradient_where_nothing_was_clipped(open_page, small_run, sent):
    app = open_page("gradients", run="tiny")
    head, arrays, cue = sent(app, "total_curve")
    total = np.sqrt((small_run.trace.grad_norm.values.astype(float) ** 2).sum(1))
    decoded = 10 ** (arrays["lines"][0] / 65534 * (head["hi"] - head["lo"]) + head["lo"])
    np.testing.assert_allclose(decoded, total, rtol=1e-3)
    assert cue["scale"]["chance"] == 1.0 and cue["scale"]["mark"] == "clipped to"
    assert (small_run.trace.clip_factor.dropna("step") == 1).all()
    assert any("no record had to be clipped" in c.value for c in app.caption)
    assert not any(e.proto.id.endswith("-clip_curve") for e in app.get("bidi_component"))  # it would be a flat line


def test_the_whole_gradient_and_its_clipping(open_page, copy_run, sent):
    run = copy_run("clipped")
    zarr.open_array(str(run.dir / "trace.zarr" / "clip_factor"), mode="r+")[1] = 0.25
    app = open_page("gradients", run="clipped", step=int(run.trace.step[1]))
    head, arrays, _ = sent(app, "clip_curve")
    assert head["labels"] == ["clip factor"] and head["lo"] == 0.25 and head["hi"] == 1.0
    assert any("clipping leaves 0.25 of it." in c.value for c in app.caption)
    assert sent(app, "total_curve")[0]["labels"] == ["before clipping", "after clipping"]


def test_a_run_that_does_not_clip_says_so(open_page, copy_run):
    run = copy_run("free")
    meta = json.loads((run.dir / "run.json").read_text())
    meta["config"]["optim"]["clip"] = None
    (run.dir / "run.json").write_text(json.dumps(meta))
    app = open_page("gradients", run="free")
    assert any("does not clip" in c.value for c in app.caption)
    assert not any(e.proto.id.endswith("-clip_curve") for e in app.get("bidi_component"))


def test_the_focused_head_has_a_line_for_each_matrix(open_page, small_run, sent):
    app = open_page("gradients", run="tiny", layer=1, head=2)
    head, arrays, _ = sent(app, "matrix_curves")
    assert head["labels"] == ["W_Q", "W_K", "W_V", "W_O"]
    values = np.log10(small_run.trace.head_update_ratio.values[:, 1, 2].T)
    decoded = np.where(
        arrays["lines"] == 65535, np.nan, arrays["lines"] / 65534 * (head["hi"] - head["lo"]) + head["lo"]
    )
    np.testing.assert_allclose(decoded, values, atol=1e-3)
    app.selectbox(key="head_box").set_value("L0H3").run()
    assert app.session_state["selection"].focus == (0, 3)


def test_the_choices_reopen_from_their_link(open_page):
    from dashboard import state

    chosen = {"run": "tiny", "quantity": "weight_norm", "tensor": "blocks.1.attn.W_K"}
    query = state.to_query(state.Selection("tiny", quantity="weight_norm", tensor="blocks.1.attn.W_K"))
    assert query == chosen
    app = open_page("gradients", **vars(state.from_query(query)))
    assert app.segmented_control(key="quantity_box").value == "weight_norm"
    assert any("`blocks.1.attn.W_K`" in c.value for c in app.caption)


@pytest.mark.parametrize("damaged", [{"quantity": "<b>"}, {"tensor": "blocks.9.attn.W_Q"}])
def test_a_damaged_link_opens_at_the_default(open_page, damaged):
    from dashboard import state

    app = open_page("gradients", run="tiny", **{k: getattr(state.from_query(damaged), k) for k in damaged})
    assert app.segmented_control(key="quantity_box").value == "update_ratio"
    assert any("`blocks.0.attn.W_Q`" in c.value for c in app.caption)
