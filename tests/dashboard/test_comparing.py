"""Two steps, runs or prompts side by side: the numbers are those of the models, and what cannot be is said."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard import state
from dashboard.loading import ablation, comparison, prompt_tokens
from dashboard.loading.ablation import Setup, Swept
from dashboard.views.ablate.beside import fitted, sentence, too_few_words
from tests.dashboard.words import written
from tracer.ablate import Estimate, effect, estimate
from tracer.interventions.edits import recording
from tracer.presets import PRESETS
from tracer.store import Run
from tracer.store.layout import Lock
from tracer.training.loop import train

Open = Callable[..., AppTest]
PROMPT = "3 4 5 3 4"
NAN = float("nan")


@pytest.fixture(scope="module")
def narrow(small_run: Run) -> Iterator[Run]:
    """Beside `tiny`: 1 layer of 2 heads, 20 words, a snapshot at 0 and at 2."""
    toy = PRESETS["induction"].config
    record = replace(toy.record, every=1, snapshot_every=2, val_rows=2, text_prompts=1, repeat_prompts=1)
    config = replace(
        toy, run=str(small_run.dir.with_name("narrow")), steps=2, device="cpu", record=record,
        model=replace(toy.model, n_layers=1, n_heads=2), data=replace(toy.data, vocab_size=20),
        optim=replace(toy.optim, batch_size=2),
    )  # fmt: skip
    yield train(config, preset="induction", quiet=True)
    shutil.rmtree(small_run.dir.with_name("narrow"))


def drawn(app: AppTest) -> str:
    return " ".join(e.proto.id for e in app.get("bidi_component"))


def patterns(run: Run, step: int, prompt: str = PROMPT) -> np.ndarray:
    """Every pattern from the explicit matrices, [layer head query_pos key_pos]."""
    tokens = torch.tensor([prompt_tokens.encode(run, prompt).tokens])
    with torch.no_grad(), recording("hook_pattern") as seen:
        run.model(step)(tokens)
    return np.stack([pattern[0].numpy() for _, pattern in sorted(seen.items())]).astype(np.float64)


def shares(sent: Any, app: AppTest) -> tuple[np.ndarray, np.ndarray]:
    _, arrays, _ = sent(app, "versus")
    return arrays["a"] / 65534, arrays["b"] / 65534


def cue(app: AppTest, key: str) -> dict[str, Any]:
    """What a part was told beside its bytes."""
    return json.loads({e.proto.id.rpartition("-")[2]: e.proto for e in app.get("bidi_component")}[f"{key}:cue"].json)


def moved(app: AppTest) -> np.ndarray:
    return np.array(cue(app, "moved")["values"], float)


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_nothing_is_compared_and_nothing_drawn_until_it_is_chosen(open_page: Open, copy_run: Any) -> None:
    copy_run("twin")
    for page in ("heads", "ablate"):
        app = open_page(page, run="tiny", off=((0, 1),) if page == "ablate" else ())
        assert "versus" not in drawn(app) and "moved" not in drawn(app) and "beside" not in drawn(app)
        assert "compared" not in written(app) and "in B" not in written(app)
        assert [b.label for b in app.button if b.key == "stop_comparing"] == []
        assert app.selectbox(key="compare_run").value == "tiny"


@pytest.mark.parametrize(
    ("page", "answers"), [("find", "ranks first|comes nearest|is the strongest"), ("circuits", "random heads would")]
)
def test_the_answer_of_what_is_compared_with_stands_below(
    page: str, answers: str, open_page: Open, copy_run: Any
) -> None:
    copy_run("twin")
    for chosen, name in (({"compare": "twin"}, "twin, step 30"), ({"other_step": 10}, "tiny, step 10")):
        app = open_page(page, run="tiny", **chosen)
        (line,) = [one.value for one in app.caption if one.value.startswith("**B** ")]
        assert line.startswith(f"**B** {name}: ") and re.search(answers, line) and not app.exception
    own = next(
        one.value for one in open_page(page, run="tiny", compare="twin").markdown if re.search(answers, one.value)
    )
    assert [one.value for one in open_page(page, run="twin").markdown if one.value == own], "a copy answers as it"
    refused = written(open_page(page, run="tiny", compare="gone"))
    assert "This comparison cannot be shown." in refused


def test_gradients_of_another_run_are_laid_over(open_page: Open, copy_run: Any, sent: Any) -> None:
    copy_run("twin")
    app = open_page("gradients", run="tiny", compare="twin")
    assert [one.value for one in app.caption if one.value.startswith("**B** twin, step 30: ")]
    header, arrays, _ = sent(app, "total_curve")
    assert header["labels"][-1] == "twin" and header["dash_names"] == ["tiny", "twin"] and header["dashes"][-1] == 1
    np.testing.assert_array_equal(arrays["lines"][0], arrays["lines"][-1])
    assert "dash_names" in header and not sent(open_page("gradients", run="tiny"), "total_curve")[0]["dash_names"]


@pytest.mark.parametrize("page", ["training", "gradients", "phases"])
def test_without_another_run_comparing_says_why_not(page: str, open_page: Open, workplace: Path) -> None:
    button = open_page(page, run="tiny").button(key="compare_not")
    assert button.disabled and button.proto.help == "There is no other run here."


def test_another_step_is_laid_beside_this_one(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, other_step=10)
    now, before = patterns(small_run, 30), patterns(small_run, 10)
    a, b = shares(sent, app)
    np.testing.assert_allclose(a, now[1, 2], atol=2e-5)
    np.testing.assert_allclose(b, before[1, 2], atol=2e-5)
    header = sent(app, "versus")[0]
    assert header["same"] and header["top"] == pytest.approx(np.abs(before[1, 2] - now[1, 2]).max(), abs=1e-5)
    assert [one["title"] for one in header["sides"]] == ["L1H2 of tiny, step 30", "L1H2 of tiny, step 10"]

    oracle = np.abs(before - now).sum(-1).mean(-1) / 2  # in float64, over every cell of every head
    np.testing.assert_allclose(moved(app), oracle, atol=1e-6)
    layer, head = np.unravel_index(oracle.argmax(), oracle.shape)
    assert f"**L{layer}H{head}** differs most" in written(app)


def test_the_same_weights_in_another_run_differ_in_nothing(open_page: Open, copy_run: Any, sent: Any) -> None:
    copy_run("twin")
    app = open_page("heads", run="tiny", compare="twin", prompt=PROMPT, layer=0, head=1)
    header, arrays, _ = sent(app, "versus")
    assert header["same"] and header["top"] == 0
    np.testing.assert_array_equal(arrays["a"], arrays["b"])
    assert not moved(app).any()
    assert "L0H1 of B behaves 0.00 away from L0H1 of A" in written(app)
    app.segmented_control(key="match_box").set_value("alike").run()
    assert not app.exception and sent(app, "versus")[0]["sides"][1]["title"] == "L0H1 of twin, step 30"


def test_run_step_and_prompt_combine(open_page: Open, copy_run: Any, sent: Any, small_run: Run) -> None:
    twin = copy_run("twin")
    app = open_page("heads", run="tiny", compare="twin", other_step=19, other_prompt="7 8 7", layer=1, head=0)
    header = sent(app, "versus")[0]
    assert not header["same"] and header["sides"][1]["tokens"][1:] == ["7", "8", "7"]
    assert header["sides"][1]["title"] == "L1H0 of twin, step 20"  # the nearest snapshot
    np.testing.assert_allclose(shares(sent, app)[1], patterns(twin, 20, "7 8 7")[1, 0], atol=2e-5)
    assert "Two different prompts" in written(app) and "moved:cue" not in drawn(app)
    assert state.from_query(state.to_query(app.session_state["selection"])) == app.session_state["selection"]


def test_the_popover_chooses_and_one_button_stops(open_page: Open, copy_run: Any) -> None:
    copy_run("twin")
    app = open_page("heads", run="tiny", prompt=PROMPT)
    app.selectbox(key="compare_run").set_value("twin").run()
    assert app.select_slider(key="compare_step").value == 30 and "follows the step" in written(app)
    app.select_slider(key="compare_step").set_value(20).run()
    app.text_area(key="compare_prompt").set_value(" 9 9 ").run()
    chosen = app.session_state["selection"]
    assert (chosen.compare, chosen.other_step, chosen.other_prompt) == ("twin", 20, "9 9")
    assert "**B** twin, step 20, another prompt" in [one.proto.popover.label for one in app.get("popover")]
    app.button(key="same_step").click().run()
    assert app.session_state["selection"].other_step is None and not app.exception
    app.button(key="stop_comparing").click().run()
    assert "versus" not in drawn(app) and not app.exception
    assert app.session_state["selection"] == state.Selection(run="tiny", prompt=PROMPT)


def test_a_click_on_the_difference_of_a_head_takes_it_into_focus(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, other_step=0)
    app.session_state["moved"] = {"pick": [0, 3]}
    app.run()
    assert app.session_state["selection"].focus == (0, 3)
    assert sent(app, "versus")[0]["sides"][1]["title"] == "L0H3 of tiny, step 0"


def test_a_held_cell_belongs_to_its_prompt(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, other_step=0)
    app.session_state["versus"] = {"pick": [3, 1, 0]}
    app.run()
    assert sent(app, "versus")[2]["value"] == [3, 1, 0]
    app.text_area(key="prompt_box").set_value("1 2 3 4 5 6").run()
    assert sent(app, "versus")[2]["value"] is None


def test_a_removed_run_in_a_link_is_said_and_the_page_goes_on(open_page: Open, sent: Any) -> None:
    for name in ("gone", "x" * 300, "<b>**bold**</b>"):
        app = open_page("heads", run="tiny", compare=name, prompt=PROMPT)
        assert "This comparison cannot be shown." in written(app) and "versus" not in drawn(app)
        assert "pattern" in drawn(app)
        app = open_page("ablate", run="tiny", compare=name, off=((0, 0),), section="text")
        assert "This comparison cannot be shown." in written(app) and "tokens" in drawn(app)
    app.button(key="stop_comparing").click().run()
    assert "cannot be shown" not in written(app)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({}, "label"),
        ({"steps": 99}, "label"),
        ({"seed": 7}, "alike"),
        ({"model": {"positions": "rotary"}}, "alike"),
    ],
)
def test_heads_of_two_seeds_are_laid_beside_the_most_alike(
    open_page: Open, copy_run: Any, changes: dict[str, Any], match: str
) -> None:
    """A label is the same head only where both runs began with the same weights."""
    meta = json.loads((copy_run("twin").dir / "run.json").read_text())
    config = {
        name: {**was, **changes[name]} if isinstance(was, dict) and name in changes else changes.get(name, was)
        for name, was in meta["config"].items()
    }
    (Path("checkpoints") / "twin" / "run.json").write_text(json.dumps({**meta, "config": config}))
    app = open_page("heads", run="tiny", compare="twin", prompt=PROMPT)
    assert app.segmented_control(key="match_box").value == match
    parent = {"run": "tiny", "step": 10, "optimizer": "fresh"}
    (Path("checkpoints") / "twin" / "run.json").write_text(json.dumps({**meta, "config": config, "parent": parent}))
    assert comparison.began_alike(Run(Path("checkpoints/twin")), Run(Path("checkpoints/tiny")))


def open_trace(name: str) -> Any:
    return Run(Path("checkpoints") / name).trace.load()


def test_a_text_that_the_other_cannot_read_is_refused(open_page: Open, narrow: Run) -> None:
    app = open_page("heads", run="tiny", compare="narrow", prompt="3 40 3")
    assert "This comparison cannot be shown." in written(app) and "versus" not in drawn(app)
    assert "narrow cannot read this prompt: not in the vocabulary: '40'" in written(app)


@pytest.mark.parametrize("broken", ["", "{"])
def test_kept_prompts_that_cannot_be_read_are_said(
    broken: str, elsewhere: Path, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has no trace, or a damaged one."""
    monkeypatch.chdir(tmp_path)
    for name in ("patches", "other"):
        shutil.copytree(elsewhere / "checkpoints" / "patches", tmp_path / "checkpoints" / name)
    if broken:
        (tmp_path / "checkpoints" / "other" / "trace.zarr" / "zarr.json").write_text(broken)
    else:
        shutil.rmtree(tmp_path / "checkpoints" / "other" / "trace.zarr")
    app = open_page("heads", run="patches", compare="other")
    assert "This comparison cannot be shown." in written(app) and "pattern" in drawn(app)
    assert app.selectbox(key="compare_prompt").options == ["The same prompt"]


def test_a_run_without_a_snapshot_yet_is_said_to_have_none(open_page: Open, copy_run: Any) -> None:
    fresh = copy_run("fresh", status="training")
    for path in (fresh.dir / "snapshots").iterdir():
        path.unlink()
    lock = Lock(fresh.dir)
    try:
        app = open_page("ablate", run="tiny", compare="fresh", off=((0, 0),))
    finally:
        lock.release()
    assert "The heads of fresh cannot be switched off here. It has no snapshot yet." in written(app)


def test_the_same_heads_are_off_on_both_sides(open_page: Open, small_run: Run, sent: Any) -> None:
    off = ((0, 1), (1, 2))
    app = open_page("ablate", run="tiny", off=off, other_step=10)
    tables = [e.proto.body for e in app.get("html") if "beside" in e.proto.body]
    found = ablation.batches(small_run)
    for table, (_, tokens, where) in zip(tables, found.sequences(), strict=True):
        cells = [number(cell) for cell in re.findall(r"<td>([+−]?[\d.]+)", table)]
        effects = [effect(small_run.model(step), tokens, off) for step in (30, 10)]
        means: Any = [[e.clean[:, where].mean(), e.ablated[:, where].mean(), e.over(where).mean] for e in effects]
        np.testing.assert_allclose(np.reshape(cells, (2, 3)), means, atol=6e-4)
    assert "The same heads off in B" in written(app)
    assert f"Both read the same {len(found.repeat.tokens)} sequences" in written(app)
    a, b, change = (np.array(cue(app, f"beside_{name}")["values"], float) for name in ("a", "b", "change"))
    np.testing.assert_allclose(change, b - a, atol=1e-12)
    alone = effect(small_run.model(10), found.repeat.tokens, [(1, 3)]).over(found.repeat.predictable)
    assert b[1, 3] == pytest.approx(alone.mean, abs=1e-5)


@pytest.mark.parametrize("mode", ["zero", "resample"])
def test_differences_are_paired_by_sequence(workplace: Path, small_run: Run, mode: str) -> None:
    one, two = (Setup.of(small_run, step, ((1, 0),), mode, False) for step in (30, 0))
    batches = ablation.batches(one.opened)
    tokens, where = batches.sequences()[0][1:]
    others = batches.reference("repeat", mode)
    a, b = (effect(small_run.model(s.step), tokens, [(1, 0)], mode, reference=others) for s in (one, two))
    expected = estimate((b.delta - a.delta)[:, where].mean(1).numpy())
    found = comparison.differences(one, two)["repeat"]
    assert found is not None and found.n == expected.n
    np.testing.assert_allclose(
        [found.mean, found.low, found.high], [expected.mean, expected.low, expected.high], atol=1e-5
    )


def test_other_sequences_are_not_paired_and_missing_heads_are_said(open_page: Open, narrow: Run) -> None:
    app = open_page("ablate", run="tiny", compare="narrow", off=((0, 1), (1, 2)))
    assert "B has no L1H2: left out there." in written(app)
    assert "two separate measurements" in written(app) and "only one of them has" in written(app)
    app = open_page("ablate", run="tiny", compare="narrow", off=((1, 2),))
    assert "None of these heads is in B" in written(app) and "two separate" not in written(app)
    app = open_page("ablate", run="tiny", compare="narrow")
    assert "Beside B" in written(app) and not app.exception


def interval(mean: float, low: float, high: float) -> Estimate:
    return Estimate(mean, low, high, 8)


@pytest.mark.parametrize(
    ("a", "b", "paired", "says", "not_said"),
    [
        (interval(0.1, 0.05, 0.15), interval(0.5, 0.4, 0.6), interval(0.4, 0.3, 0.5),
         ["costs **B** more than A, by 0.400", "same 8 sequences", "+0.400, 95 % interval +0.300 to +0.500. ",
          "do not overlap"], ["includes 0", "separate"]),
        (interval(0.5, 0.2, 0.8), interval(0.4, 0.3, 0.6), interval(-0.1, -0.3, 0.1),
         ["costs **A** more than B, by 0.100", "which includes 0", "intervals overlap"], ["separate"]),
        (interval(0.5, 0.2, 0.8), interval(0.4, 0.3, 0.6), None,
         ["two separate measurements", "intervals overlap"], ["one by one"]),
        (interval(0.5, NAN, NAN), interval(0.4, NAN, NAN), interval(-0.1, NAN, NAN),
         ["With 1 sequence there are no intervals"], ["overlap", "separate"]),
        (interval(0.5001, 0.2, 0.8), interval(0.5, 0.2, 0.8), None,
         ["both the same, to three decimals"], ["more than"]),
    ],
)  # fmt: skip
def test_which_is_larger_and_how_sure(
    a: Estimate, b: Estimate, paired: Estimate | None, says: list[str], not_said: list[str]
) -> None:
    said = sentence(a, b, paired)
    assert [part for part in says if part not in said] == [] and [part for part in not_said if part in said] == []


def test_a_sweep_of_another_shape_keeps_its_labels() -> None:
    small = np.array([[1.0, 2.0, 3.0]])
    found = fitted(Swept(small, small - 1, small + 1, small > 2, "With 2 sequences none can."), (2, 2))
    np.testing.assert_array_equal(found.effect, [[1, 2], [NAN, NAN]])
    np.testing.assert_array_equal(found.high, [[2, 3], [NAN, NAN]])
    assert not found.corrected.any()
    assert too_few_words(found, found) == " With 2 sequences none can."
    assert too_few_words(replace(found, too_few="")) == ""


def test_partners() -> None:
    exists = np.array([[True, True], [True, False]])
    assert comparison.partners(exists) == {head: head for head in ((0, 0), (0, 1), (1, 0))}
    apart = np.array([[[[0.5, 0.1], [0.3, NAN]]]])
    assert comparison.partners(exists, apart) == {(0, 0): (0, 1)}
    assert comparison.partners(exists, np.full((1, 1, 1, 2), NAN)) == {}
