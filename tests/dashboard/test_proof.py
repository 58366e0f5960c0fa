"""The Ablate page as proof: intervals, random sets, replacements, effects over training, and the verdict card."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard.loading import ablation
from dashboard.loading.ablation import Setup, Swept
from dashboard.shared import sweeping
from dashboard.theme import signed
from dashboard.views.ablate import card, circuit, sweep
from dashboard.views.ablate import data as proving
from tests.dashboard.words import shown, strip, written
from tracer import ablate
from tracer.analysis.run_sweep import sweep_run
from tracer.model import Transformer
from tracer.store import Run

Open = Callable[..., AppTest]
PAGE = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    "from dashboard.views.ablate.page import page\npage()\n"
)


def setup_of(run: Run, off: Any, mode: str = "zero", frozen: bool = False) -> Setup:
    return Setup.of(run, run.steps[-1], off, mode, frozen)


@pytest.mark.parametrize("mode", list(ablate.MODES))
@pytest.mark.parametrize("frozen", [False, True])
def test_costs_are_those_of_one_forward_pass_after_the_other(
    mode: str, frozen: bool, workplace: Path, small_run: Run
) -> None:
    setup = setup_of(small_run, ((0, 1), (1, 3)), mode, frozen)
    found = ablation.costs(setup)
    batches = ablation.batches(small_run)
    for name, tokens, where in batches.sequences():
        given = mode == "mean" or (mode == "resample" and name == "repeat")
        reference = batches.wide[name] if given else None
        slow = ablate.effect(small_run.model(), tokens, setup.off, mode, reference=reference, frozen=frozen)
        assert found[name].change.mean == pytest.approx(slow.over(where).mean, abs=2e-6)
        np.testing.assert_allclose(found[name].after_by_position, slow.ablated.mean(0).numpy(), atol=1e-5)


def test_the_sweep_marks_heads_whose_interval_excludes_nothing(open_page: Open, small_run: Run, sent: Any) -> None:
    app = open_page("ablate", run="tiny", off=((0, 0),), section="heads")
    swept = ablation.sweep(small_run, 30, "zero", False)["repeat"]
    probe = ablation.batches(small_run).repeat
    expected = ablate.sweep(small_run.model(), probe.tokens, positions=probe.predictable, interval=True)
    np.testing.assert_allclose(swept.low, expected["low"].values, atol=1e-6)
    cue = _cue(app, "sweep_repeat")
    assert cue["marked"] == ((swept.low > 0) | (swept.high < 0)).tolist()
    assert cue["notes"][0][0].startswith("95 % interval ")
    captions = [c.value for c in app.caption]
    counted = [c for c in captions if c.startswith("A dot for ")]
    found = ablation.sweep(small_run, 30, "zero", False)
    assert [c.split(" of ")[0] for c in counted] == [f"A dot for {int(one.sure.sum())}" for one in found.values()]
    (meaning,) = (c for c in captions if c.startswith("Dot: the head's 95 % interval excludes 0;"))
    assert "by chance 0.4 of 8 heads get one" in meaning
    few = [len(tokens) < 9 for _, tokens, _ in ablation.batches(small_run).sequences()]
    assert ["It takes 9 sequences." in c for c in counted] == few


@pytest.mark.parametrize(
    ("marked", "corrected", "said"),
    [
        ([], [], "A dot for 0 of 8 heads. Significant: none of 8 (Holm-corrected)."),
        ([1], [], "A dot for 1 of 8 heads. Significant: none of 8 (Holm-corrected)."),
        ([1], [1], "A dot for 1 of 8 heads. Significant: 1 of 8 (Holm-corrected): L0H1."),
        ([1, 6, 7], [1, 6], "A dot for 3 of 8 heads. Significant: 2 of 8 (Holm-corrected): L0H1 L1H2."),
        (range(8), range(8), "A dot for 8 of 8 heads. Significant: 8 of 8 (Holm-corrected)."),
    ],
)
def test_the_marks_in_words(marked: Sequence[int], corrected: Sequence[int], said: str) -> None:
    sure, kept = (np.isin(np.arange(8), list(heads)).reshape(2, 4) for heads in (marked, corrected))
    effect = np.where(sure, 1.0, 0.0)
    assert sweep._sure(Swept(effect, effect - 0.5, effect + 0.5, kept)) == said


def test_what_two_sequences_cannot_say(copy_run: Callable[..., Run], open_page: Open, monkeypatch: Any) -> None:
    """As many as a watched or opened run keeps of text: dots there may be, but none is called significant."""
    run = copy_run("watched")
    whole = ablation.batches(run)
    assert whole.text is not None
    few = replace(whole, text=whole.text[:2])
    monkeypatch.setattr(ablation, "batches", lambda _: few)
    ablation.sweep.clear()
    swept = ablation.sweep(run, run.steps[-1], "zero", False)["text"]
    assert np.isfinite(swept.low).all() and not swept.corrected.any()
    assert sweep._sure(swept) == (
        f"A dot for {int(swept.sure.sum())} of 8 heads. With 2 sequences no head can be significant: corrected for 8 "
        "heads, p can't be below 1. It takes 9 sequences."
    )
    app = open_page("ablate", run="watched", section="heads")
    assert "With 2 sequences no head can be significant" in written(app)
    ablation.sweep.clear()


def test_one_sequence_has_no_marks() -> None:
    nan = np.full((2, 4), np.nan)
    assert sweep._sure(Swept(np.ones((2, 4)), nan, nan, np.zeros((2, 4), bool))) == ("1 sequence, so no intervals.")


def test_random_sets_are_tried_when_asked(open_page: Open, small_run: Run) -> None:
    app = open_page("ablate", run="tiny", off=((0, 1), (1, 2)))
    assert "median" not in written(app)
    assert "There are 15 other sets of as many heads in the same layers, so p can't be below 0.06." in written(app)
    app.button(key="null").click().run()
    found = ablation.null(setup_of(small_run, ((0, 1), (1, 2))), 30)
    less = int((found.others < found.effect).sum())
    assert f"**{less} of {len(found.others)}**" in written(app) and not app.exception
    assert f"with {len(found.others)} sets it can't be below {1 / (1 + len(found.others)):.2f}" in written(app)
    whole = open_page("ablate", run="tiny", off=tuple((0, h) for h in range(4)))
    assert "Whole layers are off: no other set" in written(whole) and "null" not in {b.key for b in whole.button}


def test_all_replacements_stand_side_by_side(open_page: Open, small_run: Run) -> None:
    app = open_page("ablate", run="tiny", off=((1, 2),), mode="mean")
    found = ablation.by_replacement(setup_of(small_run, ((1, 2),), "mean"))
    assert found["mean"] == ablation.costs(setup_of(small_run, ((1, 2),), "mean"))["repeat"].change
    text = ablation.costs(setup_of(small_run, ((1, 2),), "mean"))["text"].change
    assert re.findall(r'<th scope="row">(\w+)</th>.*?<td>(\S+) <small>', strip(app)) == [
        (mode.capitalize(), signed(e.mean)) for mode, e in (*found.items(), ("mean", text))
    ]
    assert any("agree within their intervals" in c.value for c in app.caption) == ablate.agree(found)


def test_effects_over_training_are_those_of_the_sweep(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    run = copy_run("swept")
    before = open_page("ablate", run="swept", section="when")
    assert before.button(key="sweep_run").label == "Measure 4 snapshots"
    effects = sweep_run(run, steps=[0, 10], draws=2)
    part = open_page("ablate", run="swept", section="when")
    assert part.button(key="sweep_run").label == "Measure the 2 snapshots missing"
    effects = sweep_run(run, draws=2)
    app = open_page("ablate", run="swept", step=20, layer=1, head=2, mode="mean", section="when")
    assert [b for b in app.button if b.key == "sweep_run"] == []
    header, arrays, cue = sent(app, "when_effect")
    assert header["labels"][6] == "L1H2" and cue["value"] == "L1H2" and cue["step"] == 20
    lines = header["lo"] + arrays["lines"] / 65534 * (header["hi"] - header["lo"])
    expected = effects["effect"].sel(mode="mean", probe="repeat").values.reshape(4, 8).T
    np.testing.assert_allclose(lines, expected, atol=1e-5)
    points = shown(app, "when_scatter").data[1]
    assert list(points.customdata[2]) == [1, 2] and points.y[2] == pytest.approx(float(expected[6, 2]), abs=1e-6)
    assert points.x[2] == pytest.approx(float(run.trace["induction"].sel(step=20)[1, 2]), abs=1e-6)
    assert "L1H2 rose in neither" in written(app)  # 30 steps are too few
    assert ablation.swept(run) == 4


def rank(logits: torch.Tensor, targets: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """How many tokens stand above the right one, mean over positions."""
    right = logits.gather(-1, targets[..., None])
    return (logits > right).double().sum(-1).mean(-1)


def test_the_verdict_is_drawn_up_when_asked(open_page: Open, small_run: Run) -> None:
    app = open_page("ablate", run="tiny", layer=1, head=2, off=((1, 2),), mode="mean")
    assert not app.code
    app.button(key="verdict").click().run()
    found = ablate.verdict(small_run, 1, 2, 30)
    snippet, link = (code.value for code in app.code)
    assert snippet == found.snippet
    assert link.endswith("/ablate?run=tiny&layer=1&head=2&off=L1H2&mode=mean&cards=verdict-L1H2-30&step=30")
    ticks = next(e.proto.body for e in app.get("html") if f"{found.headline}." in e.proto.body)
    assert ticks.count("<li") == 6 and ticks.count("✓ ") == found.passed
    html = next(e.proto.body for e in app.get("html") if '<table class="verdict">' in e.proto.body)
    assert html.count("<tr>") == 7
    assert found.elsewhere in [caption.value for caption in app.caption]
    for test in found.tests:
        assert test.name.capitalize() in html
    assert html.count("passed</td>") == found.passed


def test_what_a_head_that_writes_nothing_cannot_show_is_not_measured_on_the_card(small_run: Run) -> None:
    model = small_run.model()
    assert isinstance(model, Transformer)
    model.blocks[1].attn.W_V.requires_grad_(False)[2] = 0
    found = ablate.verdict(model, 1, 2)
    ticks, table = card._ticks(found), card._table(found)
    assert ticks.count("(not measured)") == table.count("– not measured</td>") == 2
    assert "copying (not measured)" in ticks and "nan" not in ticks + table


def test_the_link_of_a_verdict_opens_the_verdict(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", layer=1, head=2)
    app.button(key="verdict").click().run()
    snippet, link = (code.value for code in app.code)
    opened = AppTest.from_string(PAGE, default_timeout=300)
    for name, value in parse_qsl(urlsplit(link).query):
        opened.query_params[name] = value
    opened.run()
    again, same = (code.value for code in opened.code)
    assert (
        not opened.exception and again == snippet and parse_qs(urlsplit(same).query) == parse_qs(urlsplit(link).query)
    )
    opened.session_state["selection"] = replace(opened.session_state["selection"], head=1)
    opened.run()
    assert not opened.code, "another head is asked for by itself"


@pytest.mark.parametrize(
    ("tail", "share", "said"),
    [
        ("", 0, "Reading the model and its text …"),
        ("sweeping: 0 of 8960 ablations", 0, "0 of 8,960 ablations"),
        ("sweeping: 1 of 40 ablations\nsweeping: 4 of 40 ablations, about 8 s to go", 0.1,
         "4 of 40 ablations, about 8 s left"),
        ("sweeping: 4480 of 8960 ablations, about 1200 s to go", 0.5, "4,480 of 8,960 ablations, about 20 min left"),
    ],
)  # fmt: skip
def test_progress_is_what_the_sweep_printed_last(tail: str, share: float, said: str) -> None:
    assert sweeping.progress(tail) == (share, said)


def test_the_smallest_set_is_searched_and_applied(open_page: Open, small_run: Run) -> None:
    """30 steps teach no copying: so the page says what the search says, and the search is checked by its own tests."""
    app = open_page("ablate", run="tiny", step=0, section="set")
    app.button(key="circuit").click().run()
    probe = ablation.batches(small_run).repeat
    try:
        found = ablate.build_up(small_run.model(0), probe.tokens)
    except ValueError as error:
        assert f"{str(error)[0].upper()}{str(error)[1:]}." in written(app)
        return
    others = tuple((layer, h) for layer in range(2) for h in range(4) if (layer, h) not in found.heads)
    assert f"{found.share:.0%}**" in written(app)
    if others:
        app.button(key="apply_circuit").click().run()
        assert app.session_state["selection"].off == others and not app.exception


@pytest.mark.parametrize(
    ("choice", "name", "wide", "said"),
    [
        (((1, 2), True, 0.931), "+L1H2", "93.1%", "93 %"),
        (((0, 0), False, 1.04), "−L0H0", "100.0%", "104 %"),  # the longest takes all the room
        (((0, 1), True, -0.001), "+L0H1", "0.0%", "0 %"),
        (((0, 1), True, -0.031), "+L0H1", "0.0%", "−3 %"),
    ],
)
def test_choices_are_bars(choice: tuple[tuple[int, int], bool, float], name: str, wide: str, said: str) -> None:
    found = circuit.bars(proving.Circuit([], 1.0, True, [0.0], [choice], (0.0, 0.0), (0.0, 0.0)))
    assert f">{name}</th>" in found and f"width:{wide}" in found and f"<td>{said}</td>" in found


def _cue(app: AppTest, key: str) -> dict[str, Any]:
    import json

    parts = {e.proto.id.rpartition("-")[2]: e.proto for e in app.get("bidi_component")}
    return json.loads(parts[f"{key}:cue"].json)


def test_a_verdict_is_drawn_up_for_the_run_that_was_asked_about(open_page: Open) -> None:
    app = open_page("ablate", run="tiny", layer=1, head=2, cards=("verdict-L1H2-30", "two-blocks"))
    assert app.code
    other = AppTest.from_function(_turn_to_another_run)
    other.session_state["selection"] = app.session_state["selection"]
    other.run()
    assert other.session_state["selection"].cards == ("two-blocks",)


def _turn_to_another_run() -> None:
    from dashboard import state

    state.open_run("other")
