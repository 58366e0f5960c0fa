"""A head that is switched off writes nothing wherever the model runs, as in a model whose W_O has lost it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

import tracer
from dashboard import state
from dashboard.loading import ablation, prompt_attention, prompt_tokens, roles
from dashboard.shared import switches
from dashboard.shared.export import data as taking
from dashboard.shared.mount import DRAWN
from tests.dashboard.words import captions, explained, labels, shown, was_drawn, written
from tracer import data
from tracer.ablate import zeroed
from tracer.analysis import guessing, head_roles
from tracer.analysis.prompt_over_steps import film
from tracer.data.probes import repeated
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.model.protocol import HeadModel
from tracer.store import Run
from tracer.training.probe_recorder import ProbeRecorder

Open = Callable[..., AppTest]
PROMPT = "3 4 5 3 4"
TOKENS = torch.tensor([[0, 3, 4, 5, 3, 4]])
OFF = (0, 1)


def cut(run: Run, step: int | None = None, heads: tuple[tuple[int, int], ...] = (OFF,)) -> Transformer:
    """The model without the rows of W_O that the heads write with."""
    model = run.model(step)
    assert isinstance(model, Transformer)
    for layer, head in heads:
        weights = model.blocks[layer].attn.W_O
        assert weights is not None
        with torch.no_grad():
            weights[head] = 0
    return model


@torch.no_grad()
def read(model: HeadModel) -> tuple[np.ndarray, torch.Tensor]:
    """Patterns of layer 1 [head query_pos key_pos], and logits [pos d_vocab]."""
    with recording("blocks.1.attn.hook_pattern") as seen:
        logits = model(TOKENS)[0]
    return seen["blocks.1.attn.hook_pattern"][0].numpy(), logits.double()


def scores(run: Run, step: int | None = None) -> dict[str, np.ndarray]:
    """As a record of the cut model has them, [layer head]."""
    found = data.build(run.config.data, run.config.model.n_ctx, run.config.seed)
    model = cut(run, step)
    return ProbeRecorder(model, run.config.record, found).measure(model, with_patterns=False)


def shares(sent: Any, app: AppTest, key: str = "pattern") -> np.ndarray:
    return sent(app, key)[1]["shares"] / 65534


def said_next(app: AppTest) -> list[tuple[str, float, float]]:
    """Of each token what it is, its probability with all heads on, and now."""
    told = cue(app, "guesses")
    return list(zip(told["words"], told["before"], told["shares"], strict=True))


def both(ids: list[int], before: np.ndarray, now: np.ndarray) -> list[tuple[Any, ...]]:
    return [(str(i), *(pytest.approx(p[i], abs=1e-6) for p in (before, now))) for i in ids]


def cue(app: AppTest, key: str) -> dict[str, Any]:
    """What a part without bytes got."""
    (found,) = [e.proto for e in app.get("bidi_component") if e.proto.id.rpartition("-")[2] == f"{key}:cue"]
    return json.loads(found.json)


def test_patterns_guesses_and_loss_are_those_of_the_cut_model(small_run: Run, open_page: Open, sent: Any) -> None:
    patterns, logits = read(cut(small_run))
    whole, clean = read(small_run.model())
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    np.testing.assert_allclose(shares(sent, app), patterns[2], atol=1e-5)
    assert np.abs(patterns[2] - whole[2]).max() > 1e-3, "the head is read, or this test says nothing"
    header, arrays, told = sent(app, "atlas")
    assert told["scored"] == "anew" and sent(app, "scrubber")[2]["heads_off"]
    for name, values in zip(header["measures"], arrays["values"], strict=True):
        np.testing.assert_allclose(values, scores(small_run)[name], atol=1e-5, err_msg=name)
    now, before = (one[-1].softmax(-1).numpy() for one in (logits, clean))
    ids = guessing.likeliest(now, before)
    assert int(now.argmax()) in ids and int(before.argmax()) in ids
    assert said_next(app) == both(ids, before, now)
    target = TOKENS[0, 1:, None]
    losses = [-one[:-1].log_softmax(-1).gather(1, target).mean() for one in (clean, logits)]
    told = cue(app, "guesses")
    assert [told["was"], told["loss"]] == pytest.approx([float(loss) for loss in losses], abs=1e-5)


def test_all_on_says_one_number_each(open_page: Open, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT)
    told = cue(app, "guesses")
    assert told["before"] is told["was"] is None and len(told["words"]) == len(told["shares"]) == 5
    title = next(one for one in app.header if one.value.endswith("on this prompt") and one.value.startswith("L"))
    explained = title.proto.help, app.button(key="switch_focus").help
    assert explained == (switches.OFF, ""), "what opens above a switch covers the loss that it changes"
    assert "All heads on" not in labels(app) and app.session_state["selection"].off == ()


def test_a_head_that_lost_its_role(
    small_run: Run, open_page: Open, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    now, names = scores(small_run), ("previous_token", "current_token", "first_token")
    falls = np.stack([small_run.trace[name].values[-1] - now[name] for name in names])
    measure, layer, head = map(int, np.unravel_index(np.argmax(falls), falls.shape))
    left = float(now[names[measure]][layer, head])
    then = left + float(falls[measure, layer, head])
    assert then > left + 1e-3, "something is lost, or this test says nothing"
    keen = head_roles.Role("keen", names[measure], (then + left) / 2, label="keen")
    any_head = head_roles.Role("any", "entropy", 0.0, label="any")
    monkeypatch.setattr(roles, "table", lambda: (keen,))
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=layer, head=head, off=(OFF,))
    said = f"Without L0H1, L{layer}H{head} is no keen head: {left:.2f} ({then:.2f} with all heads on)."
    assert said in written(app) and not cue(app, "guesses")["quiet"], "the loss is said beside what comes next"
    told = sent(app, "atlas")[2]["roles"]
    assert (told["codes"][layer][head], told["lost"][layer][head]) == (0, 1)
    monkeypatch.setattr(roles, "table", lambda: (any_head, keen))
    told = sent(app.run(), "atlas")[2]["roles"]
    assert np.all(np.array(told["codes"]) == 1) and not np.any(told["lost"]), "no head is called by what it lost"


def test_a_large_model_is_scored_when_asked(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    copy_run("large", n_params=50_000_000)
    app = open_page("heads", run="large", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    assert sent(app, "atlas")[2]["scored"] == "recorded" and "Scores and roles: recorded with all" in captions(app)
    app.button(key="score_again").click().run()
    assert sent(app, "atlas")[2]["scored"] == "anew" and "roles are computed anew" in explained(app)
    assert "Score every head again" not in labels(app)


def test_before_and_change(small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    app.segmented_control(key="off_view").set_value("before").run()
    np.testing.assert_allclose(shares(sent, app), read(small_run.model())[0][2], atol=1e-5)
    app.segmented_control(key="off_view").set_value("change").run()
    header, arrays, _ = sent(app, "off_change")
    assert [side["title"] for side in header["sides"]] == ["All heads on", "L0H1 off"]
    np.testing.assert_allclose(arrays["b"] / 65534, read(cut(small_run))[0][2], atol=1e-5)


def test_a_switch_and_the_buttons(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2)
    app.session_state["atlas"] = {"pick": {"value": {"head": [1, 2], "off": [[1, 0], [0, 1]]}, "time": 1}}
    app.run()
    chosen = app.session_state["selection"]
    assert chosen.off == ((0, 1), (1, 0)) and chosen.focus == (1, 2)
    assert state.to_query(chosen)["off"] == "L0H1 L1H0" and "What is off writes nothing." in explained(app)
    assert re.search(
        r"Without L0H1 and L1H0, the loss on this text goes from [\d.]+ to [\d.]+ nats \([+−][\d.]+\)", written(app)
    )
    assert sent(app, "atlas")[2]["value"] == {"head": [1, 2], "off": [[0, 1], [1, 0]]}
    app.button(key="switch_focus").click().run()
    assert app.session_state["selection"].off == ((0, 1), (1, 0), (1, 2)) and "Switch L1H2 on" in labels(app)
    app.button(key="all_on").click().run()
    assert app.session_state["selection"].off == () and "What is off" not in explained(app)


def test_why_and_its_lines_are_of_the_cut_model(small_run: Run, open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    app.session_state["pattern"] = {"pick": [5, 2]}
    app.run()
    share = read(cut(small_run))[0][2, 5, 2]
    assert f"{share:.2f} of its attention" in written(app)
    (code,) = [one.value for one in app.code if "tracer.why" in one.value]
    names: dict[str, Any] = {}
    exec(code, names)  # in the folder where the app runs
    assert names["found"].attrs["pattern"] == pytest.approx(share, abs=1e-6)
    sources = names["found"].key_source.values.tolist()
    assert "L0H0" in sources and "L0H1" not in sources, "what is off wrote nothing"


def test_a_film_with_heads_off_waits_for_a_click(small_run: Run, open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, off=(OFF,))
    assert "Film" in labels(app)
    app.button(key="film").click().run()
    assert "Film" not in labels(app)
    step, (frame, _) = next(film(small_run, TOKENS, [small_run.steps[-1]], size=6, off=(OFF,)))
    np.testing.assert_allclose(frame[1], read(cut(small_run, step))[0], atol=1e-6)


def test_a_second_step_of_the_run_is_without_them_too(small_run: Run, open_page: Open, sent: Any) -> None:
    first = small_run.steps[0]
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,), other_step=first)
    np.testing.assert_allclose(sent(app, "versus")[1]["b"] / 65534, read(cut(small_run, first))[0][2], atol=1e-5)


def test_heads_that_are_not_there_are_left_out(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, off=((7, 1), OFF))
    assert "This model has no L7H1" in "".join(one.value for one in app.warning)
    assert sent(app, "atlas")[2]["value"]["off"] == [[0, 1]]


def test_without_weights_nothing_can_be_switched(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    run = copy_run("weightless")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("heads", run="weightless", off=(OFF,))
    assert isinstance(sent(app, "atlas")[2]["value"], list) and "switch_focus" not in {b.key for b in app.button}
    assert not {"guesses", "off_change"} & was_drawn(app)


def test_a_shown_file_is_of_the_cut_model(small_run: Run, workplace: Path) -> None:
    view = tracer.show(small_run, PROMPT, head=(1, 2), off=[OFF], film=False)
    assert "L0H1 off" in view.html and "off=[(0, 1)]" in view.html
    model = small_run.model()
    with zeroed(model, TOKENS, [OFF]):
        edited, logits = read(model)
    expected, cut_logits = read(cut(small_run))
    np.testing.assert_allclose(edited, expected, atol=1e-6)
    torch.testing.assert_close(logits, cut_logits, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="L9H0|layer 9"), zeroed(model, TOKENS, [(9, 0)]):
        pass


def test_a_file_of_the_page_has_no_model_to_switch(open_page: Open) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    drawn = taking._drawn(app.session_state[DRAWN])
    (cue,) = [picture.cue for picture in drawn.values() if picture.part == "atlas"]
    assert (cue["value"], cue["off"]) == ([1, 2], [[0, 1]]), "hatched, and a click takes a head into focus"


def test_several_heads_of_several_layers(small_run: Run) -> None:
    heads, model = ((1, 0), OFF, (0, 3)), small_run.model()
    with zeroed(model, TOKENS, heads):
        patterns, logits = read(model)
    expected, cut_logits = read(cut(small_run, heads=heads))
    np.testing.assert_allclose(patterns, expected, atol=1e-6)
    torch.testing.assert_close(logits, cut_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read(model)[1], read(small_run.model())[1], msg="nothing is off after the block")


@torch.no_grad()
def parts(model: Transformer, target: int, at: int) -> np.ndarray:
    """What each head adds to the logit of `target` above the mean logit, by hand in float64, [layer head]."""
    model = model.double()
    with recording("hook_z", "hook_resid_post") as seen:
        model(TOKENS)
    final, norm = seen["blocks.1.hook_resid_post"][0, at], model.ln_final
    direction = model.W_U[:, target] - model.W_U.mean(1)
    scale = (final.square().mean() + model.config.norm_eps).sqrt()
    found = np.zeros((2, 4))
    for layer, head in np.ndindex(2, 4):
        weights = model.blocks[layer].attn.W_O
        assert weights is not None
        written = seen[f"blocks.{layer}.attn.hook_z"][0, at, head] @ weights[head]
        found[layer, head] = written / scale * norm.w @ direction
    return found


def test_what_made_the_next_token_is_of_the_cut_model(small_run: Run, open_page: Open) -> None:
    app = open_page("circuits", run="tiny", prompt=PROMPT, layer=1, head=2, token=3, off=(OFF,))
    logits, clean = read(cut(small_run))[1], read(small_run.model())[1]
    now, before = (one[-1].softmax(-1).numpy() for one in (logits, clean))
    assert said_next(app) == both(guessing.likeliest(now, before), before, now)
    heads = np.array(cue(app, "logit_heads")["values"])
    np.testing.assert_allclose(heads, parts(cut(small_run), 3, 3), atol=1e-4)
    assert heads[OFF] == 0 and cue(app, "logit_heads")["off"] == [[0, 1]]
    assert np.abs(heads - parts(cut(small_run, heads=()), 3, 3))[1].max() > 1e-3, (
        "later heads read it, or this says nothing"
    )
    total, was = (float(one[3, 3] - one[3].mean()) for one in (logits, clean))
    assert shown(app, "sum").data[0].x[-1] == pytest.approx(total, abs=1e-4)
    assert re.search(rf"with all heads on [+−]{abs(was):.2f}", captions(app))
    lens, chance = shown(app, "lens"), (one[3].softmax(-1)[3] for one in (logits, clean))
    assert (lens["probability"][-1], lens["all heads on"][-1]) == pytest.approx(tuple(map(float, chance)), rel=1e-4)
    np.testing.assert_allclose(cue(app, "logit_tokens")["after"][3], heads[1, 2], atol=1e-6)


def test_attention_by_distance_is_of_the_cut_model(small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("circuits", run="tiny", prompt=PROMPT, layer=1, head=0, off=(OFF,))
    with torch.no_grad(), recording("blocks.1.attn.hook_pattern") as seen:
        cut(small_run)(repeated(65, 64, at=25).tokens)
    pattern = seen["blocks.1.attn.hook_pattern"][:, 0, 1:, 1:].numpy()
    header, arrays, _ = sent(app, "stripes")
    row = arrays["lines"][header["labels"].index("L1H0")] / 65534 * (header["hi"] - header["lo"]) + header["lo"]
    np.testing.assert_allclose(row, [np.mean([np.diagonal(one, -d).mean() for one in pattern]) for d in range(43)],
                               atol=1e-4)  # fmt: skip
    assert re.search(rf"stands what followed the earlier copy: [\d.]+ → {row[24]:.2f}", captions(app))


def test_what_weights_say_stays(open_page: Open, sent: Any) -> None:
    on, off = (open_page("circuits", run="tiny", prompt=PROMPT, layer=0, head=1, off=gone) for gone in ((), (OFF,)))
    assert sent(off, "composition")[2]["off"] == [[0, 1]] == cue(off, "copying_map")["off"]
    np.testing.assert_array_equal(sent(on, "composition")[1]["scores"], sent(off, "composition")[1]["scores"])
    assert cue(on, "copying_map")["values"] == cue(off, "copying_map")["values"]
    assert shown(on, "words_moves") == shown(off, "words_moves")
    assert ("Weights are the same with heads off." in captions(off), "Weights are" in captions(on)) == (True, False)
    assert cue(on, "guesses")["before"] is None and (cue(on, "guesses")["quiet"], cue(off, "guesses")["quiet"]) == (
        False,
        True,
    )


@pytest.mark.parametrize("page", ["circuits", "find", "ablate"])
def test_where_heads_cannot_be_off_all_are_on(page: str, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_attention, "why_on", lambda run, step, off: "z is not seen")
    app = open_page(page, run="tiny", prompt=PROMPT, layer=1, head=2, off=(OFF,))
    assert "L0H1 cannot be switched off here: every head is on." in "".join(one.value for one in app.warning)
    assert "z is not seen" in written(app) and "ithout L0H1" not in captions(app)


def looks_of(run: Run, model: Transformer, layer: int, head: int) -> np.ndarray:
    """A head's attention in the held-out rows but for the token itself and the first, [row query_pos key_pos]."""
    config = run.config
    tokens = data.build(config.data, config.model.n_ctx, config.seed).val(64)[:, : config.model.n_ctx]
    tap = f"blocks.{layer}.attn.hook_pattern"
    with torch.no_grad(), recording(tap) as seen:
        model(tokens)
    found = seen[tap][:, head].double().numpy()
    found[:, :, 0] = 0
    np.einsum("sqq->sq", found)[:] = 0
    return found


def test_passages_are_of_the_cut_model(small_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("find", run="tiny", step=30, layer=1, head=2, off=(OFF,))
    found, clean = (looks_of(small_run, model, 1, 2) for model in (cut(small_run, 30), cut(small_run, 30, ())))
    top = sent(app, "passages")[0]["passages"][0]
    at = tuple(int(i) for i in np.unravel_index(found.argmax(), found.shape))
    assert (top["sequence"], top["query"], top["key"]) == at
    assert top["score"] == pytest.approx(found.max(), abs=1e-5) == top["p"]
    assert abs(found.max() - clean.max()) > 1e-4, "the head is read, or this test says nothing"
    for one in sent(app, "passages")[0]["passages"]:
        assert one["p"] == pytest.approx(found[one["sequence"], one["query"], one["key"]], abs=1e-5)
    was, now = (float(one[:, 2:].max(-1).mean()) for one in (clean, found))
    assert "Searched without L0H1: 64 rows" in captions(app)
    assert f": {was:.2f} → {now:.2f} on average." in captions(app)
    counts = np.histogram(found[:, 2:].max(-1), 40, (0, 1))[0]
    assert np.abs(np.array(shown(app, "spread").data[0].y) - counts).sum() <= 2, "but for one at an edge of two bars"
    on = open_page("find", run="tiny", step=30, layer=1, head=2)
    assert shown(on, "ranking") == shown(app, "ranking") and captions(app).count("Recorded with all heads on.") == 2
    assert sent(on, "passages")[0]["passages"][0]["score"] == pytest.approx(clean.max(), abs=1e-5)
    assert "Recorded with all heads on." not in captions(on) and f": {was:.2f} on average." in captions(on)


def test_of_kept_patterns_every_head_was_on(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    run = copy_run("patternful")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("find", run="patternful", layer=1, head=2, off=(OFF,))
    on = open_page("find", run="patternful", layer=1, head=2)
    assert sent(app, "passages")[0] == sent(on, "passages")[0]
    assert "these patterns were kept with all heads on." in captions(app) and "ithout L0H1" not in captions(app)
    assert isinstance(sent(app, "strip")[2]["value"], list), "what was kept can't be switched"


def test_a_large_model_is_searched_anew_when_asked(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "SMALL", 0)
    app = open_page("find", run="tiny", layer=1, head=2)
    app.button(key="search_text").click().run()
    assert "passages" in was_drawn(app) and "Search the text" not in labels(app)
    app.session_state["strip"] = {"pick": {"value": {"head": [1, 2], "off": [[1, 2]]}, "time": 1}}
    app.run()
    assert {"Search the text", "All heads on"} <= set(labels(app))
    assert "Without L1H2. This model is large" in captions(app)
    app.button(key="search_text").click().run()
    assert "Searched without L1H2:" in captions(app) and "→" in captions(app)


@pytest.mark.usefixtures("elsewhere")
def test_a_model_of_others_without_a_head(elsewhere: Path, open_page: Open) -> None:
    from transformers import GPT2LMHeadModel

    app = open_page("circuits", run="opened", prompt="def f(x):", step=20, token=1, layer=1, head=0, off=(OFF,))
    model: Any = GPT2LMHeadModel.from_pretrained(elsewhere / "saved" / "checkpoint-20")
    row = prompt_tokens.encode(Run(elsewhere / "checkpoints" / "opened"), "def f(x):").tokens
    with torch.no_grad():
        model.transformer.h[0].attn.c_proj.weight[8:16] = 0
        logits = model(torch.tensor([row])).logits[0, 1].double()
    lens = shown(app, "lens")
    assert lens["log p"][-1] == pytest.approx(float(logits.log_softmax(-1)[row[2]]), abs=1e-4)
    assert lens["probability"][-1] != pytest.approx(lens["all heads on"][-1], rel=1e-4)
