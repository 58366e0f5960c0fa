"""The Find page: heads ranked by a measure, passages of one of them, and what is said where there is no text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
import zarr
from streamlit.testing.v1 import AppTest

from dashboard import state
from dashboard.loading import prompt_tokens
from dashboard.shared import plots, prompts
from dashboard.views.find import data as finding_passages
from dashboard.views.find import passages as section
from dashboard.views.find.page import BEYOND, ranked
from tests.dashboard.conftest import opener
from tests.dashboard.words import captions, shown, written
from tracer import data
from tracer.interventions.edits import recording
from tracer.measures import MEASURES
from tracer.store import Run, open_run
from tracer.store.trace import UNCOMMITTED

Open = Callable[..., AppTest]


def best_look(run: Run, step: int, layer: int, head: int) -> tuple[int, int, int, float]:
    """(sequence, query, key, share): the largest share beside the diagonal and the first token, of all rows."""
    config = run.config
    tokens = data.build(config.data, config.model.n_ctx, config.seed).val(64)[:, : config.model.n_ctx]
    with torch.no_grad(), recording(f"blocks.{layer}.attn.hook_pattern") as seen:
        run.model(step)(tokens)
    pattern = seen[f"blocks.{layer}.attn.hook_pattern"][:, head].numpy().copy()
    pattern[:, :, 0] = 0
    np.einsum("sqq->sq", pattern)[:] = 0
    sequence, query, key = (int(i) for i in np.unravel_index(pattern.argmax(), pattern.shape))
    return sequence, query, key, float(pattern[sequence, query, key])


def chosen(app: AppTest) -> list[str]:
    """The heads that are ticked."""
    return [shown(app, "ranking")["Head"][row] for row in app.session_state["ranking"]["selection"]["rows"]]


def test_heads_are_ranked_and_the_sharpest_look_is_found(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("find", run="tiny", step=20, layer=1, head=3, measure="previous_token")
    table = shown(app, "ranking")
    assert list(table) == ["Head", "Previous-token attention", "Induction score", "Control"]
    recorded = small_run.trace["previous_token"].sel(step=20).values
    np.testing.assert_allclose(table["Previous-token attention"], np.sort(recorded.ravel())[::-1], rtol=1e-6)
    best = np.unravel_index(int(recorded.argmax()), recorded.shape)
    assert table["Head"][0] == "L{}H{}".format(*best) and len(table["Head"]) == 8
    known = MEASURES["previous_token"].at_chance(small_run.about.setting)
    number = f"{recorded.max():.2f} (chance {known:.2f})"
    assert f"{table['Head'][0]} ranks first: previous-token attention {number}." in written(app), "no role yet"
    assert chosen(app) == ["L1H3"]

    header, arrays, _ = sent(app, "passages")
    sequence, query, key, share = best_look(small_run, 20, 1, 3)
    top = header["passages"][0]
    assert (top["sequence"], top["query"], top["key"]) == (sequence, query, key)
    assert top["score"] == pytest.approx(share, abs=1e-5) == top["p"]
    groups = [one["group"] for one in header["passages"]]
    assert groups == ["top"] * 12 + ["typical"] * 4
    seen = sum(len(piece) for one in header["passages"] for piece in one["tokens"])
    assert arrays["shares"].shape == (seen,)
    assert "Searched 64 rows of random tokens that repeat, 4,096 tokens" in captions(app)


def test_nothing_is_printed_with_a_minus() -> None:
    column = st.column_config.NumberColumn(format="%6.3f")
    assert str(plots.unsigned_zeros([-0.0004, -0.0, 0.0004, -0.0006], column)) == "[0.0, 0.0, 0.0004, -0.0006]"
    assert plots.unsigned_zeros([-0.0004], None) == [-0.0004]


def test_ranked_by_what_is_above_the_control(open_page: Open, small_run: Run) -> None:
    app = open_page("find", run="tiny", measure="induction")
    table, now = shown(app, "ranking"), small_run.trace.isel(step=-1)
    assert list(table) == ["Head", "Above control", "Induction score", "Control"]
    assert "By score above control, on random tokens" in captions(app)
    above = (now["induction"] - now["induction_control"]).values
    np.testing.assert_allclose(table["Above control"], np.sort(above.ravel())[::-1], rtol=1e-6)
    best = np.unravel_index(int(above.argmax()), above.shape)
    score, control = (float(now[name].values[best]) for name in ("induction", "induction_control"))
    said = f"{'L{}H{}'.format(*best)} comes nearest, induction score {score:.2f} (control {control:.2f}, chance"
    assert said in written(app)


def test_heads_at_their_control_are_one_line(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = copy_run("places")
    store = zarr.open_group(str(run.dir / "trace.zarr"), mode="r+")
    scores = np.array(store["induction"])
    scores[:] = np.array(store["induction_control"]) + BEYOND / 2
    scores[:, 1, 2] += BEYOND
    store["induction"][:] = scores  # pyrefly: ignore[unsupported-operation]
    app = open_page("find", run="places", measure="induction")
    assert "7 others less than 0.05 above control" in [one.label for one in app.expander]
    (listed,) = [one.value for one in app.markdown if "(control " in one.value and one.value.startswith("**L")]
    assert listed.startswith("**L1H2** ") and "\n" not in listed and len(shown(app, "ranking")["Head"]) == 8
    app = open_page("find", run="places", measure="entropy")
    assert not [one for one in app.expander if "heads" in one.label or "others" in one.label], (
        "nothing says who does it"
    )


def test_the_bars_are_long_enough_for_the_value_at_chance(open_page: Open, small_run: Run) -> None:
    """Of the heads after 30 steps none is more even than uniform attention, whose entropy is the largest there is."""
    app = open_page("find", run="tiny", measure="entropy")
    columns = json.loads(app.dataframe[0].proto.columns)
    longest = columns["Attention entropy"]["type_config"]["max_value"]
    assert f"nats (even attention {longest:.3f})" in written(app)
    assert longest > float(small_run.trace["entropy"].values[-1].max())


def test_heads_without_a_value_come_last() -> None:
    values = np.array([[0.1, 0.2], [np.nan, 0.4], [0.2, 9.0]])
    there = np.array([[True, True], [True, True], [True, False]])
    assert ranked(values, there) == [(1, 1), (0, 1), (2, 0), (0, 0), (1, 0)]


def test_a_chosen_head_is_read(open_page: Open, sent: Any) -> None:
    app = open_page("find", run="tiny", layer=0, head=0)
    app.session_state["selection"] = replace(app.session_state["selection"], layer=1, head=2)
    app.run()
    selection = app.session_state["selection"]
    assert chosen(app) == ["L1H2"]
    assert sent(app, "passages")[0]["label"] == "L1H2" and "Where L1H2 looks" in [s.value for s in app.header]
    assert state.from_query(state.to_query(selection)) == selection


def test_of_a_copy_the_step_is_its_own(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    """`tiny` is a copy of a run that went on."""
    (copy_run("shorter").dir / "snapshots" / "000030.safetensors").unlink()
    app = open_page("find", run="tiny")
    app.selectbox(key="run_box").select("shorter").run()
    assert not app.error and sent(app, "passages")[0]["passages"]
    assert sent(app, "scrubber")[2]["value"] == 20


@pytest.mark.parametrize("kind", list(section.KINDS))
def test_every_kind_of_look(kind: str, open_page: Open, sent: Any) -> None:
    app = open_page("find", run="tiny", layer=0, head=1)
    app.selectbox(key="kind_box").set_value(kind).run()
    assert not app.exception
    top = [one for one in sent(app, "passages")[0]["passages"] if one["group"] == "top"]
    assert [one["score"] for one in top] == sorted((one["score"] for one in top), reverse=True) and top
    if kind == "previous_token":
        assert {one["query"] - one["key"] for one in top} == {1}
    found = finding_passages.search(run_of(app), 30)
    assert sum(shown(app, "spread").data[0].y) == found.search.looks(kind, (0, 1)) > 0
    assert shown(app, "looks_to")["share"] == sorted(shown(app, "looks_to")["share"], reverse=True)


def run_of(app: AppTest) -> Run:
    return open_run(app.session_state["selection"].run)


def test_a_passage_opens_as_a_prompt(open_page: Open, sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here one page runs by itself, so turning to another one is only asked for."""
    turned = []
    monkeypatch.setattr(section.st, "switch_page", lambda page: turned.append(page.url_path))
    app = open_page("find", run="tiny", layer=1, head=0)
    one = sent(app, "passages")[0]["passages"][3]
    app.session_state["passages"] = {"pick": 3}
    app.run()
    selection = app.session_state["selection"]
    run = run_of(app)
    encoded = prompt_tokens.encode(run, selection.prompt)
    assert turned == ["heads"] and encoded.strings[selection.token] == one["query_token"]
    assert selection.cell == (selection.token, selection.token - one["query"] + one["key"]), "its look is pinned there"
    row = finding_passages.text(run).tokens[one["sequence"]].tolist()
    assert encoded.tokens[selection.token - 5 : selection.token + 1] == row[one["query"] - 5 : one["query"] + 1]


@pytest.mark.parametrize(
    ("strings", "after", "expected"),
    [
        (["<bos>", "de", "f", " x"], 2, 2),
        (["<bos>", "def", " x"], 2, 1),
        (["<bos>", "def x"], 2, 0),
        (["<bos>", "a", "b"], 0, 2),
        (["a"], 9, 0),
    ],
)
def test_the_place_of_a_query_in_a_text(strings: list[str], after: int, expected: int) -> None:
    assert section.position(strings, after) == expected


def test_without_weights_the_kept_prompts_are_searched(
    open_page: Open, copy_run: Callable[..., Run], sent: Any
) -> None:
    run = copy_run("bare")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("find", run="bare", step=10, layer=0, head=2)
    found = run.trace["pattern"].sel(step=10).values[:, 0, 2].astype(np.float32)
    found[:, :, 0] = 0
    np.einsum("pqq->pq", found)[:] = 0
    top = sent(app, "passages")[0]["passages"][0]
    assert top["p"] == pytest.approx(float(np.nanmax(found)), abs=1e-6)
    assert "kept prompts" in captions(app)
    names = [str(name) for name in run.trace["prompt"].values]
    assert sent(app, "passages")[2]["rows"] == names


@pytest.mark.parametrize(("run", "said"), [("patches", "reads no tokens"), ("gpt", ""), ("opened", "")])
@pytest.mark.usefixtures("elsewhere")
def test_models_of_others(run: str, said: str, open_page: Open, sent: Any) -> None:
    app = open_page("find", run=run)
    assert shown(app, "ranking")["Head"]
    if said:
        assert said in "".join(info.value for info in app.info)
    else:
        assert sent(app, "passages")[0]["passages"][0]["group"] == "top"
        assert re.search("Searched \\d+ (kept prompts|passages that the run kept)", captions(app))


def test_a_link_with_a_head_that_does_not_exist_falls_back(open_page: Open, small_run: Run) -> None:
    app = open_page("find", run="tiny", layer=9, head=1)
    above = (small_run.trace["induction"] - small_run.trace["induction_control"]).values[-1]
    best = np.unravel_index(int(above.argmax()), (2, 4))
    assert "Where L{}H{} looks".format(*best) in [header.value for header in app.header]


def test_nothing_recorded_yet(open_page: Open, workplace: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert "There is no run yet" in open_page("find").info[0].value


def test_an_interrupted_run_of_kept_prompts_is_at_one_step(
    request: pytest.FixtureRequest, copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, sent: Any
) -> None:
    """Its last record came after the last patterns that it kept."""
    run = copy_run("cut", status="training")
    store = zarr.open_group(str(run.dir / "trace.zarr"), mode="r+")
    store["step"][-1] = UNCOMMITTED  # pyrefly: ignore[unsupported-operation]
    monkeypatch.setattr(prompts, "can_read", lambda _: False)
    share = "from dashboard.shared.export.page_file import draw_page_taking\ndraw_page_taking('find', 'Find')\n"
    app = opener(request, share)("find", run="cut")
    assert run.trace["step"].values[-1] == 25 and sent(app, "scrubber")[2]["value"] == 20
    points = np.concatenate([trace.x for trace in shown(app, "all_heads").data])
    np.testing.assert_allclose(points, run.trace["previous_token"].sel(step=20).values.ravel(), rtol=1e-6)
    assert any("step=20" in code.value for code in app.code)
