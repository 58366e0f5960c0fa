"""Training: curves of the run, a second run, the chosen step, a diverged run, a live one, and texts."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from dashboard import loading, state, theme
from dashboard.views.training.curve_lines import end_of
from dashboard.views.training.facts import _duration, printable
from tests.dashboard.words import facts, written
from tracer.store.layout import Lock

BROKEN = {
    "step": 20,
    "replayed_from": 0,
    "non_finite": {"step": 20, "where": "blocks.1.attn.hook_q", "layer": 1, "head": 2, "value": None},
    "exploding": {"step": 9, "where": "unembed.W_U (gradient)", "layer": None, "head": None, "value": 67.1},
    "text": "",
}


def header_says(app, *words):
    return any(all(word in caption.value for word in words) for caption in app.caption)


def test_facts_say_what_the_header_does_not(open_page, small_run):
    app, last = open_page("training", run="tiny"), small_run.trace.isel(step=-1)
    (shown,) = facts(app)
    assert header_says(app, "✓ finished", "30 steps")
    first = float(small_run.trace.val_loss[0])
    ends = f"held-out loss {float(last.val_loss):.3f} nats at step 30 ({first:.3f} at step 0)"
    assert any(ends in one.value and one.value.endswith(" of 8 heads have a role.") for one in app.markdown)
    assert f" · perplexity {np.exp(float(last.val_loss)):.1f} held out · " in shown
    assert shown.startswith("Training loss ") and "(recording +" in shown and " left" not in shown
    assert not app.metric and [one.value for one in app.header][0] == "Loss"


def test_facts_follow_the_chosen_step(open_page, small_run):
    (shown,) = facts(open_page("training", run="tiny", step=10))
    assert shown.startswith(f"Training loss {float(small_run.trace.train_loss.sel(step=10)):.3f} · ")


def test_what_a_click_does_is_said_in_a_help_which_no_file_holds(open_page):
    app = open_page("training", run="tiny")
    assert not [one.value for one in app.caption if re.search("click|move the step", one.value, re.I)]
    helps = [one.proto.help for one in app.caption]
    assert any("Click one" in said for said in helps) and not app.exception


def test_loss_holds_both_lines_and_the_loss_of_knowing_nothing(open_page, small_run, sent):
    head, arrays, cue = sent(open_page("training", run="tiny", step=10), "loss")
    assert head["labels"] == ["train", "held-out"]
    assert cue["colours"]["light"] == [theme.INKS["light"].beside, theme.INKS["light"].text] and cue["on_timeline"]
    assert arrays["steps"].tolist() == small_run.trace.step.values.tolist()
    assert cue["scale"]["chance"] == pytest.approx(np.log(65))
    assert (cue["step"], cue["scale"]["unit"]) == (10, "nats")
    ((name, counting),) = cue["scale"]["marks"]
    assert name == "unigram" and counting == small_run.meta["references"]["unigram"] < np.log(65) + 0.1


def test_perplexity_is_the_same_lines_lifted(open_page, small_run, sent):
    app = open_page("training", run="tiny")
    next(box for box in app.segmented_control if box.key == "loss_box").set_value("perplexity").run()
    assert app.session_state["selection"].unit == "perplexity"
    head, _, cue = sent(app, "loss")
    both = np.concatenate([small_run.trace.train_loss.values, small_run.trace.val_loss.values])
    assert (head["lo"], head["hi"]) == pytest.approx((np.exp(both.min()), np.exp(both.max())), rel=1e-4)
    assert cue["scale"]["chance"] == pytest.approx(65)


def test_the_band_of_a_loss_of_few_rows_ends_at_0(small_run):
    trace = small_run.trace[["val_loss", "val_loss_se"]].load()
    trace["val_loss_se"] = trace["val_loss_se"] * 0 + 2.0
    assert (end_of(trace, "val_loss", -1) == 0).all() and (end_of(trace, "val_loss", 1) > trace["val_loss"] + 3).all()
    assert np.isnan(end_of(trace.drop_vars("val_loss_se"), "val_loss", -1)).all()


def test_log_steps(open_page, sent):
    app = open_page("training", run="tiny")
    assert sent(app, "entropy_curves")[2]["log_x"] is False
    app.segmented_control(key="axis_box").set_value("log").run()
    assert all(sent(app, key)[2]["log_x"] for key in ("loss", "copying", "entropy_curves", "measure_curves", "context"))


@pytest.mark.parametrize(("page", "key"), [("training", "loss"), ("gradients", "tensor_curves")])
def test_the_axis_of_steps_is_one_choice_of_every_page(open_page, sent, page, key):
    app = open_page(page, run="tiny", log=True)
    assert app.segmented_control(key="axis_box").value == "log" and sent(app, key)[2]["log_x"]
    app.segmented_control(key="axis_box").set_value("linear").run()
    assert not app.session_state["selection"].log and not sent(app, key)[2]["log_x"]


def test_a_second_run_is_laid_over(open_page, copy_run, sent):
    copy_run("other")
    app = open_page("training", run="tiny", compare="other")
    assert sent(app, "loss")[0]["labels"] == ["train · tiny", "held-out · tiny", "train · other", "held-out · other"]
    assert sent(app, "context")[0]["labels"] == ["ICL · tiny", "ICL · other"]
    loss, heads = sent(app, "loss")[0], sent(app, "entropy_curves")[0]
    assert (loss["groups"], loss["dashes"], loss["dash_names"]) == ([0, 1, 0, 1], [0, 0, 1, 1], ["tiny", "other"])
    assert heads["labels"][6] == "L1H2" and heads["labels"][14] == "L1H2 · other", "a hue is a layer, a dash a run"
    assert heads["groups"] == ([0] * 4 + [1] * 4) * 2 and heads["dashes"] == [0] * 8 + [1] * 8
    assert sent(app, "positions")[0]["labels"] == ["tiny", "other"]
    own, its = facts(app)
    assert own.startswith("tiny, step 30: training loss") and its == own.replace("tiny", "other"), "a copy"
    app.session_state["entropy_curves"] = {"pick": "L1H2 · other"}
    app.run()
    assert app.session_state["selection"].focus == (1, 2)
    assert sent(app, "entropy_curves")[2]["partner"] is None  # it began with the same weights: every namesake


def test_a_fork_finds_its_parent_first(open_page, copy_run):
    copy_run("another")
    copy_run("fork", parent={"run": "tiny", "step": 10})
    box = next(b for b in open_page("training", run="fork").multiselect if b.label == "Compare with")
    assert box.options[0] == "tiny (parent)" and "another" in box.options


def test_choosing_and_clearing_further_runs(open_page, copy_run, sent):
    for name in ("other", "third"):
        copy_run(name)
    app = open_page("training", run="tiny")

    def choose(names: list[str]) -> tuple[str | None, tuple[str, ...]]:
        next(b for b in app.multiselect if b.label == "Compare with").set_value(names).run()
        return app.session_state["selection"].compare, app.session_state["selection"].over

    assert "Compare with …" in [one.proto.popover.label for one in app.get("popover")]
    assert choose(["other", "third"]) == ("other", ("third",))
    assert "**B** other and 1 more" in [one.proto.popover.label for one in app.get("popover")]
    header = sent(app, "loss")[0]
    assert len(header["labels"]) == 6 and header["dash_names"] == ["tiny", "other", "third"]
    assert not app.toggle  # they differ in nothing at all
    assert choose(["third"]) == ("third", ()) and len(sent(app, "loss")[0]["labels"]) == 4
    assert choose([]) == (None, ()) and len(sent(app, "loss")[0]["labels"]) == 2


def test_three_seeds_have_a_mean(open_page, copy_run, sent, small_run):
    config = small_run.meta["config"]
    for seed in (1, 2):
        copy_run(f"s{seed}", config=config | {"seed": seed})
    app = open_page("training", run="tiny", compare="s1", over=("s2",))
    assert len(sent(app, "loss")[0]["labels"]) == 6
    app.session_state["entropy_curves"] = {"pick": "L1H2"}
    app.run()
    assert sent(app, "entropy_curves")[2]["partner"] == "L1H2 · s1"  # the most alike, in this copy its namesake
    app.toggle[0].set_value(True).run()
    assert app.session_state["selection"].mean and not app.exception
    header, arrays, _ = sent(app, "loss")
    assert header["labels"] == ["train", "held-out"] and header_says(app, "lowest to the highest seed")
    assert np.isfinite(header["band"]).all() and arrays["lines"].shape[0] == 2


def test_losses_by_position_of_the_other_run_alone_are_said_to_be_its(open_page, copy_run, sent, monkeypatch):
    copy_run("bare")
    whole = loading.trace
    monkeypatch.setattr(
        loading, "trace", lambda run: whole(run).drop_vars(["loss_by_position"] if run.name == "bare" else [])
    )
    app = open_page("training", run="bare", compare="tiny")
    assert sent(app, "positions")[2]["scale"]["chance"] is None and header_says(app, "Of tiny, at the chosen step")
    app = open_page("training", run="tiny", compare="bare")
    assert sent(app, "positions")[2]["scale"]["chance"] and header_says(app, "At the chosen step and at earlier ones")


def test_names_of_runs_are_never_markdown(open_page, copy_run):
    copy_run(name := "a *b* $x$ :red[c]")
    plain = r"a \*b\* \$x\$ \:red\[c\]"
    app = open_page("training", run=name, compare="tiny", view="heatmap")
    assert header_says(app, f"Heatmaps are of {plain} alone.")
    assert facts(open_page("training", run="tiny", compare=name))[1].startswith(f"{plain}, step 30: ")


@pytest.mark.parametrize("page", ["heads", "circuits"])
def test_the_name_of_a_run_without_snapshots_is_not_markdown(page, open_page, copy_run):
    run = copy_run("a *b*", status="training")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    lock = Lock(run.dir)
    said = [info.value for info in open_page(page, run="a *b*").info]
    lock.release()
    assert any(text.startswith(r"a \*b\* has no snapshot yet") for text in said), said


def test_a_second_run_that_is_gone_is_said_and_passed_over(open_page, sent):
    app = open_page("training", run="tiny", compare="gone")
    assert sent(app, "loss")[0]["labels"] == ["train", "held-out"]
    assert any("gone" in text.value for text in app.text)


def test_a_click_on_a_line_brings_its_head_into_focus_everywhere(open_page, sent):
    app = open_page("training", run="tiny")
    app.session_state["entropy_curves"] = {"pick": "L1H3"}
    app.run()
    assert app.session_state["selection"].focus == (1, 3)
    assert [sent(app, key)[2]["value"] for key in ("entropy_curves", "measure_curves")] == ["L1H3", "L1H3"]


@pytest.mark.parametrize("measure", ["previous_token", "max_logit", "entropy_normalised"])
def test_every_other_measure_can_stand_beside_the_entropy(open_page, small_run, sent, measure):
    head, arrays, _ = sent(open_page("training", run="tiny", measure=measure), "measure_curves")
    values = small_run.trace[measure].values.reshape(-1, 8).T
    np.testing.assert_allclose(arrays["lines"] / 65534 * (head["hi"] - head["lo"]) + head["lo"], values, atol=1e-3)


def test_loss_by_position_ends_with_the_chosen_step(open_page, small_run, sent):
    head, arrays, cue = sent(open_page("training", run="tiny", step=5), "positions")
    assert "step 5" in head["labels"] and head["labels"][0] == "step 0" and head["labels"][-1] == "step 30"
    assert arrays["steps"].tolist() == list(range(64)) and cue["x_label"] == "position"


def test_texts_are_those_of_the_chosen_step_as_plain_code(open_page, small_run):
    app = open_page("training", run="tiny", step=15)
    texts = [s["text"] for s in small_run.samples() if s["step"] == 10]
    assert texts and [code.value for code in app.code][1:] == [printable(text) for text in texts]
    assert all(code.language in (None, "plaintext") for code in app.code)


@pytest.mark.parametrize(("n", "length"), [(1000, 10), (2, 100_000), (400_000, 20)])
def test_a_strangers_samples_cost_no_more_than_is_drawn(open_page, copy_run, n, length):
    """A thousand at one step, long ones, and a file of more bytes than are read."""
    run = copy_run("odd")
    row = {"step": 30, "temperature": 0.5, "prompt": "p" * length, "text": "t" * length}
    (run.dir / "samples.jsonl").write_text(f"{json.dumps(row)}\n" * n)
    app = open_page("training", run="odd")
    texts = [code.value for code in app.code]
    assert len(texts) <= 5 and max(map(len, texts), default=0) <= 20_000
    assert ("more than the 16,777,216" in written(app)) == (n == 400_000)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\n\tb", "a\n\tb"), ("\x11", "‹U+0011›"), ("\u202e**x**", "‹U+202E›**x**"), ("<b>é</b>", "<b>é</b>")],
)
def test_printable(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(59.6, "1 min 00 s"), (7, "7 s"), (102, "1 min 42 s"), (7260, "2 h 01 min"), (np.nan, "–")]
)
def test_duration(seconds, shown):
    assert _duration(seconds) == shown


def test_a_diverged_run_says_where_and_what_grew_first(open_page, copy_run):
    copy_run("broken", status="diverged", divergence=BROKEN)
    app = open_page("training", run="broken")
    said = app.error[0].value
    for words in (
        "not a finite number at step 20",
        "`blocks.1.attn.hook_q` in head L1H2",
        "`unembed.W_U (gradient)`",
        "step 9",
    ):
        assert words in said
    assert any(one.value.startswith("Diverged at step 20: held-out loss ") for one in app.markdown)
    assert header_says(app, "✕ diverged", "step 30 of 30")
    app.button(key="focus_broken").click().run()
    assert app.session_state["selection"].focus == (1, 2)


def test_a_divergence_without_a_place_is_still_told(open_page, copy_run):
    copy_run("broken", status="diverged", divergence={"step": 3, "non_finite": None, "exploding": None})
    app = open_page("training", run="broken")
    assert "step 3" in app.error[0].value and not any(button.key == "focus_broken" for button in app.button)


def test_a_name_in_a_divergence_is_not_markdown(open_page, copy_run):
    hostile = {**BROKEN["non_finite"], "where": "`**x**` <img src=x>", "head": None}
    copy_run("broken", status="diverged", divergence={**BROKEN, "non_finite": hostile})
    assert "`**x** <img src=x>` in layer 1" in open_page("training", run="broken").error[0].value


def test_a_live_run_shows_what_is_left_and_follows_the_newest(open_page, copy_run, sent):
    run = copy_run("alive", status="training")
    meta = json.loads((run.dir / "run.json").read_text())
    meta["config"]["steps"] = 100
    (run.dir / "run.json").write_text(json.dumps(meta))
    lock = Lock(run.dir)
    try:
        app = open_page("training", run="alive")
    finally:
        lock.release()
    assert header_says(app, "◐ training", "step 30 of 100")
    assert facts(app)[0].endswith(" left at this speed")
    assert sent(app, "scrubber")[2]["live"]


def test_a_run_without_a_trace_is_refused_kindly(open_page, copy_run, workplace):
    import shutil

    run = copy_run("bare")
    shutil.rmtree(run.dir / "trace.zarr")
    app = open_page("training", run="bare")
    assert any("no trace.zarr" in text.value for text in app.text)


def test_the_link_reopens_the_same_view():
    chosen = state.Selection(run="tiny", compare="other", step=10, layer=1, head=3, measure="first_token")
    assert state.from_query(state.to_query(chosen)) == chosen
