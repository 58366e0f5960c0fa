"""The Ablate page: choosing heads changes the numbers, and the numbers are `tracer.ablate`'s."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup
from dashboard.views.ablate import costs, sweep
from tests.dashboard.words import answer, changes, strip, written
from tracer import ablate, data
from tracer.analysis import head_sets
from tracer.analysis.run_sweep import sweep_run
from tracer.data import probes
from tracer.measures.aliases import Head
from tracer.pictures import headmap
from tracer.pictures import tokens as token_strip
from tracer.pictures.payload import MISSING
from tracer.store import Run

Open = Callable[..., AppTest]


def test_with_every_head_on_the_page_says_what_to_do(open_page: Open, sent: Any) -> None:
    app = open_page("ablate", run="tiny")
    assert strip(app).count("All heads on</th>") == 2 and not changes(app)
    assert "Switch a head off above: with all on, the loss on repeated tokens is" in written(app)
    assert sent(app, "positions")[0]["labels"] == ["all heads on"]
    assert app.button(key="preset Random control").disabled
    assert app.button(key="preset Induction heads").disabled  # 30 steps are too few for one


def test_the_numbers_are_those_of_an_ablation(open_page: Open, small_run: Run, sent: Any) -> None:
    app = open_page("ablate", run="tiny", off=((0, 1), (1, 2)))
    config = small_run.config
    repeat = probes.repeated(small_run.meta["d_vocab"], 64, batch=config.record.repeat_rows)
    text = data.build(config.data, 64, config.seed).val(config.record.val_rows)
    on_repeat = ablate.effect(small_run.model(), repeat.tokens, [(0, 1), (1, 2)]).over(repeat.predictable).mean
    on_text = ablate.effect(small_run.model(), text, [(0, 1), (1, 2)]).mean
    assert changes(app) == pytest.approx([on_repeat, on_text], abs=6e-4)
    before, text_before = (float(small_run.trace[name][-1]) for name in ("repeat_loss", "val_loss"))
    assert answer(app) == pytest.approx([before, before + on_repeat], abs=6e-4)
    assert "Without L0H1 and L1H2 the loss on repeated tokens goes" in written(app)
    held_out = f"{theme.fmt(text_before, 'loss')} → {theme.fmt(text_before + on_text, 'loss')} nats, 4 sequences"
    assert "32 sequences" in strip(app) and held_out in strip(app)
    repeated = theme.signed(on_repeat)
    assert (written(app) + strip(app)).count(repeated) == 1  # no number twice
    found = ablation.costs(Setup.of(small_run, 30, ((0, 1), (1, 2)), "zero", False))["repeat"].after_by_position
    head, arrays, _ = sent(app, "positions")
    assert head["labels"] == ["all heads on", "heads off"]
    high = head["lo"] + (head["hi"] - head["lo"]) * arrays["lines"][1].max() / (MISSING - 1)
    assert high == pytest.approx(found.max(), abs=1e-2)


def test_a_switch_of_the_strip_changes_the_numbers(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", off=((1, 0),))
    before = answer(app)
    app.session_state["strip"] = {"pick": {"value": {"head": [1, 2], "off": [[1, 2], [0, 3]]}, "time": 1}}
    app.run()
    assert app.session_state["selection"].off == ((0, 3), (1, 2))
    assert answer(app) != before and not app.exception


@pytest.mark.parametrize("mode", list(ablate.MODES))
@pytest.mark.parametrize("frozen", [False, True])
def test_every_mode_draws(mode: str, frozen: bool, open_page: Open) -> None:
    app = open_page("ablate", run="tiny", off=((0, 0),), mode=mode, frozen=frozen)
    assert len(changes(app)) == 2 and not app.error
    assert ("Patterns are held" in written(app)) == frozen == (", patterns frozen, the loss" in written(app))
    if mode == "mean":
        app.segmented_control(key="mode_box").set_value("zero").run()
        app.toggle(key="frozen_box").set_value(not frozen).run()
        selection = app.session_state["selection"]
        assert (selection.mode, selection.frozen) == ("zero", not frozen) and not app.exception


def test_presets_choose_sets(open_page: Open, small_run: Run) -> None:
    app = open_page("ablate", run="tiny", off=((1, 0), (1, 1)))
    app.button(key="preset Random control").click().run()
    assert app.session_state["selection"].off == ((1, 2), (1, 3))
    app.button(key="preset Previous-token head").click().run()
    back = head_sets.previous_token_head(small_run.trace["previous_token"][-1].values)
    assert app.session_state["selection"].off == back


def test_sets_of_heads_from_scores() -> None:
    scores = np.array([[0.1, 0.0, 0.2, np.nan], [0.9, 0.41, 0.4, 0.3]])
    assert head_sets.induction_heads(scores) == ((1, 0), (1, 1))
    assert head_sets.previous_token_head(scores) == ((1, 0),)


def test_a_control_is_drawn_from_the_same_layers() -> None:
    there = np.array([[True, True, True, False], [True] * 4])
    assert head_sets.random_control(((1, 0), (1, 1)), there) == ((1, 2), (1, 3))
    drawn = {head_sets.random_control(((0, 0), (1, at)), there) for at in range(4)}
    assert all(layers == (0, 1) for layers in (tuple(layer for layer, _ in one) for one in drawn))
    assert {head for one in drawn for layer, head in one if layer == 0} <= {1, 2} and len(drawn) > 1
    assert head_sets.random_control(((0, 0), (1, 0)), there) == head_sets.random_control(((0, 0), (1, 0)), there)
    assert head_sets.random_control(((1, 0), (1, 1), (1, 2)), there) == ()  # one is left for three
    assert head_sets.random_control((), there) == ()
    assert head_sets.random_control(((0, 0),), np.array([[True, False], [True, True]])) == ()  # that layer has one head


def test_a_link_carries_everything() -> None:
    chosen = state.Selection(run="tiny", step=20, off=((1, 0), (1, 2)), mode="mean", frozen=True)
    query = state.to_query(chosen)
    assert query["off"] == "L1H0 L1H2" and query["frozen"] == "True"
    assert state.from_query(query) == chosen
    assert state.from_query({"frozen": "no", "mode": "loud"}) == state.Selection()


def test_heads_of_another_model_are_left_out(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", off=((1, 0), (7, 3)))
    assert "This model has no L7H3: left out." in written(app) and len(changes(app)) == 2


def test_small_effects_of_one_head_come_with_a_warning(open_page: Open) -> None:
    one, two = (open_page("ablate", run="tiny", off=off) for off in (((1, 0),), ((1, 0), (1, 1))))
    assert written(one).count("does not mean that it is unused") == 1
    assert written(two).count("does not mean that it is unused") == 0
    swept = open_page("ablate", run="tiny", off=((1, 0), (1, 1)), section="heads")
    assert written(swept).count("does not mean that it is unused") == 1


def test_heads_are_named_that_hold_although_so_many_were_tried(workplace: Path, small_run: Run) -> None:
    """Of 8 heads at each step, some intervals exclude 0 only because 8 were tried."""
    found = [one for step in small_run.steps for one in ablation.sweep(small_run, step, "zero", False).values()]
    for one in found:
        assert not (one.corrected & ~one.sure).any()
    assert any((one.sure & ~one.corrected).any() for one in found)


def test_what_is_left_after_correction_is_said() -> None:
    effect, half = np.array([[0.5, 0.2], [0.0, -0.3]]), 0.1
    some = ablation.Swept(effect, effect - half, effect + half, np.array([[True, False], [False, False]]))
    assert sweep._sure(some) == "A dot for 3 of 4 heads. Significant: 1 of 4 (Holm-corrected): L0H0."
    whole, none = (sweep._sure(replace(some, corrected=one)) for one in (some.sure, np.zeros_like(some.sure)))
    assert whole.endswith("Significant: 3 of 4 (Holm-corrected): L0H0 L0H1 L1H1.")
    assert none.endswith("Significant: none of 4 (Holm-corrected).")
    assert sweep._sure(replace(some, too_few="Too few.")) == "A dot for 3 of 4 heads. Too few."


def test_the_first_step_can_be_ablated(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", step=0, off=((0, 0),))
    assert len(changes(app)) == 2


def test_choosing_a_token_shows_what_comes_after_it(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", prompt="3 4 5 3 4", off=((0, 0),), section="text")
    assert "What comes after token 5" in written(app)
    app.session_state["prompt_tokens"] = {"pick": 2}
    app.run()
    assert "What comes after token 2" in written(app) and not app.exception
    app.text_area(key="prompt_box").set_value("7 8 7").run()
    assert "What comes after token 3" in written(app)  # another text: its end again


def test_the_prompt_numbers_are_those_of_the_model(workplace: object, small_run: Run) -> None:
    setup = Setup.of(small_run, 30, ((1, 1),), "zero", False)
    prompt = (0, 5, 6, 7, 5)
    found = ablation.on_prompt(setup, prompt, 3)
    effect = ablate.effect(small_run.model(30), torch.tensor([prompt]), [(1, 1)])
    assert np.isnan(found["loss_before"][0])
    np.testing.assert_allclose(found["loss_after"][1:], effect.ablated[0].numpy(), atol=1e-5)
    assert found["next_after"].sum() == pytest.approx(1, abs=1e-5)
    assert -np.log(found["next_before"][5]) == pytest.approx(float(effect.clean[0, 3]), abs=1e-4)


@pytest.mark.parametrize("mode", list(ablate.MODES))
def test_patterns_before_and_after(mode: str, open_page: Open) -> None:
    app = open_page("ablate", run="tiny", prompt="3 4 5 3 4", off=((0, 0), (0, 1)), mode=mode, section="text")
    app.toggle(key="ablate_patterns").set_value(True).run()
    other = next(head for head in ((1, 3), (1, 2)) if head != app.selectbox(key="ablate_focus").value)
    app.selectbox(key="ablate_focus").set_value(other).run()
    assert app.session_state["selection"].focus == other and not app.exception


def test_held_patterns_are_shown_as_held(workplace: object, small_run: Run) -> None:
    free, held = (
        ablation.patterns(Setup.of(small_run, 30, ((0, 0), (0, 1)), "zero", frozen), (0, 5, 6, 5), (1, 0), 256)
        for frozen in (False, True)
    )
    np.testing.assert_array_equal(held[0], held[1])
    assert np.abs(free[0] - free[1]).max() > 1e-6


@pytest.mark.parametrize("prompt", [" ", "not in the vocabulary"])
def test_a_refused_prompt_leaves_the_rest_of_the_page(prompt: str, open_page: Open) -> None:
    app = open_page("ablate", run="tiny", prompt=prompt, off=((0, 0),), section="text")
    assert len(changes(app)) == 2 and app.error and app.button(key="verdict")


def test_only_what_is_open_is_drawn_and_the_link_says_which(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", off=((0, 0),))
    assert "Where in the sequence" in [e.value for e in app.header] and "prompt_box" not in {
        e.key for e in app.text_area
    }
    app.session_state["selection"] = replace(app.session_state["selection"], section="text")
    app.run()
    assert [e.key for e in app.text_area] == ["prompt_box"] and not app.exception
    on = open_page("ablate", run="tiny")
    assert "when only that head is off" in written(on)  # until one is, what there is to choose from
    assert state.from_query({"off": "L0H0 L0H0 L1H1"}).off == ((0, 0), (1, 1))  # a set is a set
    assert state.from_query({"section": "when"}).section == "when" and state.from_query({"section": "x"}).section == ""


def test_losses_and_their_intervals_are_drawn_where_they_are() -> None:
    """Nats from 0 over the width of the image: 0 to 4.2, 5 % more than the highest."""
    found = {"zero": ablate.Estimate(1.0, 0.5, 2.0, 8), "mean": ablate.Estimate(0.2, np.nan, np.nan, 1)}
    rows = [costs.CostRow(mode, 2.0, change, mode == "zero") for mode, change in found.items()]
    groups = [costs.Rows("Of <one>", "8 sequences", [costs.CostRow("on", 2.0), *rows])]
    markup = costs.strip(groups, 3.5)
    images = [base64.b64decode(one).decode() for one in re.findall(r"base64,([^\"]+)", markup)]
    assert (
        len(images) == 5 and 'x="83.33%"' in images[0] and ">uniform guess<" in images[0] and "Of &lt;one&gt;" in markup
    )
    clean, zero, mean = images[1:4]
    assert [re.findall(r'cx="([\d.]+)%', one) for one in (clean, zero, mean)] == [
        ["47.62"],
        ["47.62", "71.43"],
        ["47.62", "52.38"],
    ]
    lines = [re.findall(r'x1="([\d.]+)%" x2="([\d.]+)%', one) for one in (clean, zero, mean)]
    bare = [("0", "100"), ("83.33", "83.33")]
    assert lines[0] == bare and lines[2] == [*bare, ("47.62", "52.38")]
    assert lines[1] == [*bare, ("47.62", "71.43"), ("59.52", "95.24"), ("59.52", "59.52"), ("95.24", "95.24")]
    assert re.findall(r'x="([\d.]+)%"[^>]*>([\d.]+)<', images[4])[:2] == [("0.0", "0"), ("23.81", "1")]
    assert "+1.000 <small>" in markup and markup.count('class="chosen"') == 1


def test_the_loss_beside_it_is_of_tokens_that_are_new(open_page: Open, small_run: Run) -> None:
    """Not a uniform guess: a model costs more than that on tokens that nothing foretells."""
    tokens = ablation.batches(small_run).repeat.tokens
    logits = small_run.model(10)(tokens).double()
    losses = -logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    new = [[j > 0 and row[j + 1] not in row[: j + 1] for j in range(len(row) - 1)] for row in tokens.tolist()]
    expected = float(losses[torch.tensor(new)].mean())
    said = written(open_page("ablate", run="tiny", step=10, off=((0, 0),)))
    assert f"nats (tokens seen for the first time: {theme.fmt(expected, 'loss')})" in said


@pytest.mark.parametrize(
    ("off", "n_heads", "others"),
    [
        (((1, 2),), [4, 4], 3),
        (((1, 1),), [4, 2], 1),
        (((0, 0), (1, 1)), [4, 4], 15),
        (((0, 0), (0, 1)), [2, 2], 0),
        ((), [4, 4], 0),
    ],
)
def test_how_many_other_sets_there_are(off: tuple[Head, ...], n_heads: list[int], others: int) -> None:
    assert sweep.count_sets(off, n_heads) == others


def test_without_the_text_it_falls_back_on_what_the_run_kept(open_page: Open, copy_run: Callable[..., Run]) -> None:
    other = copy_run(
        "other", corpus={"name": "repeated-random", "hash": "another"}, created="2026-01-01T00:00:00+00:00"
    )
    app = open_page("ablate", run="other", off=((0, 0),))
    assert "The text it was trained on has changed since: measured on the text kept with the run" in written(app)
    assert "1 sequence</small>" in strip(app) and "no interval" in strip(app)
    app = open_page("ablate", run="other", off=((0, 0),), mode="resample")
    assert "1 sequence: resample has no other to take what stands in from" in written(app) and not app.exception
    batches = ablation.batches(other)
    repeat, reference = batches.main("resample"), batches.reference("repeat", "resample")
    cost = ablate.effect(other.model(), repeat.tokens, [(0, 0)], "resample", reference=reference).over(repeat.where)
    assert changes(app) == pytest.approx([cost.mean], abs=6e-4)

    assert not open_page("ablate", run="other", off=((0, 0),), mode="resample", section="heads").exception
    found = sweep_run(other, steps=other.steps[-1:])["effect"].sel(step=other.steps[-1])
    measured = {(p, m) for p in ("repeat", "text") for m in ablate.MODES if found.sel(probe=p, mode=m).notnull().all()}
    assert measured == {*(("repeat", mode) for mode in ablate.MODES), ("text", "zero")}


def test_a_missing_corpus_is_said(open_page: Open, copy_run: Callable[..., Run], small_run: Run) -> None:
    config = json.loads((small_run.dir / "run.json").read_text())["config"]
    config["data"]["corpus"] = "/nowhere/at/all"
    copy_run("other", config=config, created="2026-01-02T00:00:00+00:00")
    assert "is not on this machine" in written(open_page("ablate", run="other", off=((0, 0),)))


def test_a_broken_snapshot_is_said(open_page: Open, copy_run: Callable[..., Run]) -> None:
    other = copy_run("other", created="2026-01-03T00:00:00+00:00")
    (other.dir / "snapshots" / "000030.safetensors").write_bytes(b"cut off")
    app = open_page("ablate", run="other", off=((0, 0),))
    assert re.search(r"cannot be read .* it is cut off or damaged; other steps here: 0, 10, 20", written(app), re.S)


def test_nothing_recorded_yet(open_page: Open, copy_run: Callable[..., Run]) -> None:
    other = copy_run("other", created="2026-01-04T00:00:00+00:00")
    shutil.rmtree(other.dir / "trace.zarr")
    app = open_page("ablate", run="other")
    assert "no trace.zarr" in written(app) and not app.header


def test_pictures_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"values must be \[layer head\], got shape \(3,\)"):
        headmap.picture(np.zeros(3), title="", scale=theme.Scale("x"))
    with pytest.raises(ValueError, match="2 tokens, but values of shape"):
        token_strip.picture(["a", "b"], [1.0], [1.0, 2.0], selected=0, scale=theme.Scale("x"))


def test_effects_of_a_model_that_broke_have_a_scale() -> None:
    nothing, some = np.full((1, 2), np.nan), np.array([[-0.5, np.nan]])
    assert (ablation.change_scale(nothing).lo, ablation.change_scale(nothing).hi) == (-1.0, 1.0)
    assert (ablation.change_scale(nothing, some).lo, ablation.change_scale(some).hi) == (-0.5, 0.5)
