"""The timeline: what the browser gets, what a commit changes, and what it costs nothing to repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dashboard.loading import prompt_film, prompt_tokens
from tests.dashboard.words import was_drawn
from tracer.analysis.prompt_attention import look
from tracer.pictures import payload, scrubber
from tracer.store import Run, nearest_row
from tracer.store.layout import Lock

Open = Callable[..., AppTest]
PROMPT = "3 4 5 3 4"


def pick(app: AppTest, key: str, value: Any) -> AppTest:
    app.session_state[key] = {"pick": value}
    app.run()
    assert not app.exception
    return app


def payload_of(app: AppTest, key: str) -> bytes:
    return next(e.proto.bytes for e in app.get("bidi_component") if e.proto.id.endswith(f"-{key}"))


def test_every_frame_is_there(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT)
    header, arrays, cue = sent(app, "scrubber")
    assert arrays["steps"].tolist() == small_run.steps == [0, 10, 20, 30]
    tokens = torch.tensor([prompt_tokens.encode(small_run, PROMPT).tokens])
    for i, step in enumerate(small_run.steps):
        seen = look(small_run.model(step), tokens)
        np.testing.assert_array_equal(arrays["frames"][arrays["film"][i]], scrubber.codes(seen.thumbs))
        logits = torch.from_numpy(seen.logits).double()
        shares, ids = logits[-1].softmax(-1).sort(descending=True)
        assert [header["words"][word] for word in arrays["guessed"][i]] == prompt_tokens.strings(
            small_run, ids[:5].tolist()
        )
        np.testing.assert_allclose(arrays["shares"][i], shares[:5], rtol=1e-4)
        losses = -logits[:-1].log_softmax(-1).gather(1, tokens[0, 1:, None])
        assert arrays["losses"][i] == pytest.approx(float(losses.mean()), abs=1e-4)
    assert header["factors"] == [1, 1] and header["n"] == [6, 6] and header["causal"] == [True, True]
    trace = small_run.trace
    rows = [nearest_row(trace["step"].values, step) for step in small_run.steps]
    np.testing.assert_array_equal(arrays["loss"], trace["val_loss"].values[rows].astype(np.float32))
    m = header["measures"].index("induction")
    lo, hi = header["ranges"][m]
    scores = lo + arrays[f"measure{m}"] / 65534 * (hi - lo)
    np.testing.assert_allclose(scores, trace["induction"].values[rows], atol=1e-4)
    assert (cue["value"], cue["measure"], header["loss"]) == (30, "induction", "held-out loss")
    assert "step_box" not in app.session_state


def test_a_commit_keeps_the_head_and_sends_no_frame_again(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT)
    before, head = payload_of(app, "scrubber"), sent(app, "scrubber")[2]["head"]
    pick(app, "scrubber", 10)
    chosen = app.session_state["selection"]
    assert (chosen.step, [chosen.layer, chosen.head]) == (10, head)
    assert payload_of(app, "scrubber") == before and sent(app, "scrubber")[2]["value"] == 10
    pick(app, "scrubber", 30)
    assert app.session_state["selection"].step is None


def test_a_large_model_is_filmed_when_asked(open_page: Open, sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_film, "CHEAP_BYTES", 0)
    app = open_page("heads", run="tiny", prompt="7 8 9 7 8 9 7")
    assert "frames" not in sent(app, "scrubber")[1]
    pick(app, "scrubber", 20)
    assert app.session_state["selection"].step == 20
    app.button(key="film").click().run()
    assert sent(app, "scrubber")[1]["film"].tolist() == [0, 1, 2, 3]
    assert "film" not in [button.key for button in app.button] and not app.exception


def test_of_a_live_run_a_new_snapshot_sends_one_piece_of_the_film(
    open_page: Open, copy_run: Callable[..., Run], sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(scrubber, "REEL", 2)
    run = copy_run("alive", status="training")
    newest = run.dir / "snapshots" / "000030.safetensors"
    weights = newest.read_bytes()
    newest.unlink()
    lock = Lock(run.dir)
    try:
        app = open_page("heads", run="alive", prompt=PROMPT)
        header, arrays, _ = sent(app, "scrubber")
        assert "frames" not in arrays and arrays["film"].tolist() == [0, 1, 2] and header["every"] == 2
        before = [payload_of(app, f"scrubber reel {i}") for i in range(2)]
        newest.write_bytes(weights)
        app.run()
        after = [payload_of(app, f"scrubber reel {i}") for i in range(2)]
    finally:
        lock.release()
    assert after[0] == before[0] and after[1] != before[1]
    name = sent(app, "scrubber")[0]["reel"]
    pieces = [payload.unpack(one) for one in after]
    assert [(head["reel"], head["first"]) for head, _ in pieces] == [(name, 0), (name, 2)]
    tokens = torch.tensor([prompt_tokens.encode(run, PROMPT).tokens])
    for i, step in enumerate(run.steps):
        expected = scrubber.codes(look(run.model(step), tokens).thumbs)
        np.testing.assert_array_equal(pieces[i // 2][1]["frames"][i % 2], expected)


def test_kept_prompts_are_filmed_from_what_was_kept(
    open_page: Open, copy_run: Callable[..., Run], sent: Any
) -> None:  # fmt: skip
    run = copy_run("bare")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    header, arrays, _ = sent(open_page("heads", run="bare", kept="repeat 0"), "scrubber")
    patterns = run.trace["pattern"].sel(prompt="repeat 0").dropna("step", how="all")
    assert arrays["steps"].tolist() == patterns["step"].values.tolist()
    n = header["n"][0]
    expected = scrubber.codes(patterns.values[..., :n, :n].astype(np.float32))
    np.testing.assert_array_equal(arrays["frames"], expected)


def test_one_snapshot_needs_no_timeline(open_page: Open, copy_run: Callable[..., Run]) -> None:
    run = copy_run("young")
    for step in run.steps[1:]:
        (run.dir / "snapshots" / f"{step:06}.safetensors").unlink()
    app = open_page("heads", run="young")
    assert not [e for e in app.get("bidi_component") if e.proto.id.endswith("-scrubber")]


def test_heads_by_strength(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT)
    assert sent(app, "atlas")[2]["order"] == "index" and sent(app, "atlas")[2]["lit"] is None
    app.toggle(key="order_box").set_value(True).run()
    assert sent(app, "atlas")[2]["order"] == "measure" == app.session_state["selection"].order
    app.toggle(key="order_box").set_value(False).run()
    assert app.session_state["selection"].order == "index"
    found = open_page("heads", run="tiny", prompt=PROMPT, find="L1H2")
    assert sent(found, "atlas")[2]["lit"] == [[1, 2]]


def test_a_held_cell_is_read_exactly(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", prompt=PROMPT, layer=1, head=2)
    (strongest,) = [t.value for t in app.text if t.value.startswith("query 5 ")]
    pick(app, "pattern", [4, 1])
    tokens = torch.tensor([prompt_tokens.encode(small_run, PROMPT).tokens])
    share = look(small_run.model(), tokens).pattern(1, 2)[4, 1]
    assert f"query 4 “3” → key 1 “3”: {share:.6f}" in [t.value for t in app.text]
    pick(app, "scrubber", 0)
    share = look(small_run.model(0), tokens).pattern(1, 2)[4, 1]
    assert f"query 4 “3” → key 1 “3”: {share:.6f}" in [t.value for t in app.text]
    assert sent(app, "pattern")[2]["value"] == [4, 1]
    pick(app, "scrubber", small_run.steps[-1])
    pick(app, "pattern", [])
    assert strongest in [t.value for t in app.text], "until a cell is pinned"


def test_a_damaged_snapshot_leaves_the_way_to_the_others(
    open_page: Open, copy_run: Callable[..., Run], sent: Any
) -> None:  # fmt: skip
    broken = copy_run("broken", created="2026-02-03T00:00:00+00:00")
    (broken.dir / "snapshots" / "000020.safetensors").write_bytes(b"cut off")
    app = open_page("heads", run="broken", step=20)
    assert app.error and sent(app, "scrubber")[2]["value"] == 20
    pick(app, "scrubber", 10)
    assert not app.error and "atlas" in was_drawn(app)


@pytest.mark.parametrize("name", ["training", "phases", "gradients", "ablate", "circuits", "find"])
def test_every_page_about_a_run_has_it(name: str, open_page: Open, sent: Any, small_run: Run) -> None:
    """Its loss, and the score of the one head that is in focus; steps of the page, of which one is picked."""
    app = open_page(name, run="tiny", layer=1, head=2, measure="previous_token")
    header, arrays, cue = sent(app, "scrubber")
    trace = small_run.trace
    snapshots = name in ("ablate", "circuits", "find")
    steps = small_run.steps if snapshots else trace["step"].values.tolist()
    assert arrays["steps"].tolist() == steps and (arrays["film"] == scrubber.NONE).all()
    rows = [nearest_row(trace["step"].values, step) for step in steps]
    np.testing.assert_array_equal(arrays["loss"], trace["val_loss"].values[rows].astype(np.float32))
    assert (header["measures"], header["only"], cue["head"]) == (["previous_token"], [1, 2], [1, 2])
    lo, hi = header["ranges"][0]
    expected = trace["previous_token"].values[rows, 1, 2]
    np.testing.assert_allclose(lo + arrays["measure0"] / 65534 * (hi - lo), expected, atol=1e-4)
    assert cue["value"] == steps[-1]
    pick(app, "scrubber", 10)
    assert app.session_state["selection"].step == 10 and sent(app, "scrubber")[2]["value"] == 10
