"""Runs of models that other people wrote: every page shows what there is, and says in words what there is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest
from torch import nn

import tracer
from dashboard.loading import ablation, head_scores
from dashboard.loading.ablation import Setup
from dashboard.loading.run_summaries import summary
from tests.dashboard.words import changes, facts, strip, written
from tracer import ablate
from tracer.pictures.payload import MISSING
from tracer.store import open_run

Open = Callable[..., AppTest]
PAGES = ("heads", "training", "gradients", "ablate")


def box(app: AppTest, label: str) -> Any:
    return next(b for b in app.selectbox if b.label == label)


def shares(sent: Any, app: AppTest) -> np.ndarray:
    return sent(app, "pattern")[1]["shares"] / 65534


@pytest.mark.parametrize("name", ["patches", "gpt", "opened"])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_draws_and_prints_no_none_and_no_nan(name: str, page: str, elsewhere: Path, open_page: Open) -> None:
    app = open_page(page, run=name)
    said = written(app) + " "
    assert not app.error
    for word in ("None", "nan", "NaN"):
        assert word not in said.replace("NaN", " nan ").split(), said


def test_without_code_the_kept_inputs_are_shown(elsewhere: Path, open_page: Open, sent: Any) -> None:
    app, run = open_page("heads", run="patches"), open_run("patches")
    assert ":gray-badge[○ too few records]" in [opened.proto.popover.label for opened in app.get("popover")]
    assert not app.text_area and "The code of this model is not in the run" in written(app)
    assert box(app, "Prompt").options == [n.replace("text", "input") for n in run.trace["prompt"].values]
    layer, head = head_scores.default_head(run.trace)
    kept = run.trace["pattern"].dropna("step", how="all")
    expected = kept.isel(step=-1, prompt=0, layer=layer, head=head).values[:9, :9].astype(np.float32)
    np.testing.assert_allclose(shares(sent, app), expected, atol=1e-5)
    header = sent(app, "pattern")[0]
    assert header["causal"] is False and header["tokens"] == [str(i) for i in range(9)]
    assert f"blocks.{layer}.self_attn" in written(app)
    assert sent(app, "scrubber")[1]["steps"].tolist() == kept["step"].values.tolist()


def test_measures_without_a_value_are_not_offered_and_the_sharpest_head_is_in_focus(
    elsewhere: Path, open_page: Open, sent: Any
) -> None:
    app, trace = open_page("heads", run="patches"), open_run("patches").trace
    offered = box(app, "Colour heads by").options
    assert "Induction score" not in offered and "Attention entropy" in offered
    sharpest = np.unravel_index(np.nanargmin(trace["entropy_normalised"].values[-1]), (2, 4))
    assert sent(app, "atlas")[2]["value"] == [int(i) for i in sharpest]


def test_a_head_that_a_narrow_layer_lacks_is_never_in_focus(elsewhere: Path, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="patches", layer=1, head=3)
    assert sent(app, "atlas")[2]["value"] != [1, 3]
    assert sent(app, "atlas")[1]["there"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    app = open_page("ablate", run="patches", layer=1, head=1)
    assert "{(1, 1)}" in app.code[0].value


def test_the_lines_for_where_the_code_is_do_what_they_say(elsewhere: Path, open_page: Open, patches: nn.Module) -> None:
    app = open_page("ablate", run="patches", layer=0, head=2)
    scope: dict[str, Any] = {"tracer": tracer, "model": patches.eval(), "inputs": torch.randn(2, 9, 16)}
    with torch.no_grad():
        exec(app.code[0].value, scope)
    assert float((scope["before"] - scope["after"]).abs().max()) > 1e-4


def test_a_hugging_face_model_without_a_tokenizer_reads_token_ids(elsewhere: Path, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="gpt", prompt="5, 7 9 5 7", layer=1, head=0)
    found: Any = open_run("gpt").model()
    model = found.model.eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(torch.tensor([[5, 7, 9, 5, 7]]), output_attentions=True).attentions[1][0, 0].numpy()
    np.testing.assert_allclose(shares(sent, app), expected, atol=2e-5)
    assert sent(app, "pattern")[0]["tokens"] == ["5", "7", "9", "5", "7"]
    app.text_area(key="prompt_box").set_value("5 60").run()
    assert "'60': this run has no tokenizer, so a prompt is token ids: numbers from 0 to 59" in written(app)
    app.text_area(key="prompt_box").set_value("5 " * 49).run()
    assert "The prompt is 49 tokens, the context holds 48" in written(app) and not app.exception


def test_ablating_a_hugging_face_model_is_measured_on_what_the_run_kept(elsewhere: Path, open_page: Open) -> None:
    run = open_run("gpt")
    app = open_page("ablate", run="gpt", off=((1, 0),))
    found = ablation.batches(run)
    assert found.text is not None and found.text.tolist() == run.trace["prompt_tokens"].values[:2, :24].tolist()
    expected = [
        ablate.effect(run.model(), found.repeat.tokens, [(1, 0)]).over(found.repeat.predictable).mean,
        ablate.effect(run.model(), found.text, [(1, 0)]).mean,
    ]
    assert changes(app) == pytest.approx(expected, abs=6e-4)
    assert "Kept text" in strip(app) and "The text it was trained on is not in the run" in written(app)
    assert Setup.of(run, run.steps[-1], ((1, 0),), "zero", False).model.n_heads == 2


def test_checkpoints_are_steps(elsewhere: Path, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="opened")
    assert sent(app, "scrubber")[1]["steps"].tolist() == [10, 20]
    (shown,) = facts(open_page("training", run="opened"))
    assert shown.startswith("Perplexity ") and " on text · " in shown and "tokens/s" not in shown
    gradients = open_page("gradients", run="opened")
    assert gradients.segmented_control(key="quantity_box").options == ["weight"]
    assert [s.value for s in gradients.header] == [
        "Norm of the weight over training",
        "Tensor by tensor",
        "Size of the residual stream",
    ]
    assert "held-out text" not in written(gradients)
    assert "No update ratio was recorded: norm of the weight only." in written(gradients)


def test_a_loss_of_nobody_knows_what_has_no_unit(elsewhere: Path, open_page: Open, sent: Any) -> None:
    app = open_page("training", run="patches")
    assert sent(app, "loss")[2]["scale"]["unit"] == "" and sent(app, "loss")[2]["scale"]["chance"] is None
    assert "its own training loop computes" in written(app) and "perplexity" not in written(app).lower()
    assert [s.value for s in app.header] == ["Loss", "Attention entropy of every head", "Learning rate"]
    gpt = open_page("training", run="gpt")
    assert sent(gpt, "loss")[2]["scale"]["chance"] == pytest.approx(np.log(60))
    assert "Not measured in this run:" in written(gpt) and "held-out text" not in written(gpt)


def test_cards_say_whose_model_it_is_and_offer_no_stop(
    elsewhere: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_page("runs")
    said = written(app)
    for words in ("watched Patches", "watched GPT2LMHeadModel", "opened GPT2LMHeadModel", "2 checkpoints"):
        assert words in said
    assert "Sharpest head" in said and "No induction head" in said
    monkeypatch.setattr(tracer.Run, "live", property(lambda self: True))
    assert not {"Stop", "Resume"} & {button.label for button in open_page("runs").button}
    found = summary(open_run("patches"))
    assert (found.steps, found.share, found.induction) == (None, 1.0, False)


def test_a_class_name_of_a_stranger_is_never_markup(
    elsewhere: Path, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(elsewhere / "checkpoints" / "patches", tmp_path / "checkpoints" / "evil")
    path = tmp_path / "checkpoints" / "evil" / "run.json"
    meta = json.loads(path.read_text())
    layers = [{**one, "name": "**x** <img src=x>"} for one in meta["layers"]]
    path.write_text(json.dumps({**meta, "class": "<b>**x**", "layers": layers}))
    monkeypatch.chdir(tmp_path)
    assert "watched model" in written(open_page("runs"))
    app = open_page("heads", run="evil")
    assert any("**x** <img src=x>" in e.value for e in app.text)
    assert "<img" not in "".join(e.value for kind in (app.markdown, app.caption) for e in kind)
    path.write_text(json.dumps({**meta, "layers": 3}))
    broken = open_page("heads", run="evil")
    assert "run.json says what cannot be: layers=3" in written(broken) and len(broken.error) == 1


def test_why_recording_ended_is_said_as_text(
    elsewhere: Path, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(elsewhere / "checkpoints" / "patches", tmp_path / "checkpoints" / "ended")
    path = tmp_path / "checkpoints" / "ended" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "recording_stopped": "**the disk** is full"}))
    monkeypatch.chdir(tmp_path)
    app = open_page("training", run="ended")
    assert "Recording ended before the training did." in [e.value for e in app.warning]
    assert "**the disk** is full" in [e.value for e in app.text]


def test_a_live_run_of_others_shows_what_is_kept_so_far(
    elsewhere: Path, open_page: Open, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer.Run, "live", property(lambda self: True))
    app = open_page("heads", run="patches")
    assert sent(app, "scrubber")[2]["live"] and not app.exception
    (shown,) = facts(open_page("training", run="patches"))
    assert " left at this speed" not in shown and "recording" not in shown


def test_a_loop_of_others_shows_every_update(elsewhere: Path, open_page: Open, sent: Any) -> None:
    run = tracer.open_run("gpt")
    assert run.updates is not None and run.updates.sizes["step"] > run.trace.sizes["step"]
    app = open_page("training", run="gpt")
    assert facts(app)[0].startswith(f"Training loss {float(run.updates.train_loss[-1]):.3f} ")
    for key, name in (("loss", "train_loss"), ("learning_rate", "learning_rate")):
        head, arrays, _ = sent(app, key)
        assert arrays["steps"].tolist() == run.updates.step.values.tolist()
        line = head["lo"] + (head["hi"] - head["lo"]) * arrays["lines"][0] / (MISSING - 1)
        np.testing.assert_allclose(line, run.updates[name].values, atol=1e-4 * (head["hi"] - head["lo"]))
