"""The Heads page: whole patterns of short prompts, an overview and an exact window of long ones."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
import zarr
from streamlit.testing.v1 import AppTest

import tracer
from dashboard import state
from dashboard.loading import head_scores, prompt_tokens, recorded_prompts
from dashboard.views.heads import data
from tests.dashboard.test_circuits_page import cue
from tests.dashboard.words import captions, explained, shown, was_drawn, written
from tracer.analysis import head_roles
from tracer.analysis.induction_by_period import induction_by_period
from tracer.interventions.edits import recording
from tracer.named_code import ROLES
from tracer.pictures import payload
from tracer.presets import PRESETS
from tracer.store import Run
from tracer.training.loop import train

Open = Callable[..., AppTest]
LONG = " ".join(str(1 + i * i % 61) for i in range(599))
"""600 tokens with the one in front."""


def explicit(run: Run, layer: int, head: int) -> np.ndarray:
    """The whole pattern on LONG, from the explicit matrices."""
    tokens = torch.tensor([prompt_tokens.encode(run, LONG).tokens])
    with torch.no_grad(), recording(f"blocks.{layer}.attn.hook_pattern") as seen:
        run.model()(tokens)
    return seen[f"blocks.{layer}.attn.hook_pattern"][0, head].numpy()


def shares(sent: Any, app: AppTest) -> np.ndarray:
    return sent(app, "pattern")[1]["shares"] / 65534


@pytest.mark.parametrize("n_ctx", [5, 40, 128])
def test_the_first_text_fits_the_context(open_page: Open, small_run: Run, tmp_path: Path, n_ctx: int) -> None:
    (tmp_path / "a.txt").write_text("def add(self, name, value): a = b + c\n" * 200)
    config, directory = PRESETS["many-eyes-small"].config, small_run.dir.with_name("characters")
    config = replace(
        config, run=str(directory), steps=1, device="cpu",
        model=replace(config.model, n_ctx=n_ctx, d_model=16, n_layers=1, n_heads=2, mlp_hidden=()),
        data=replace(config.data, corpus=str(tmp_path)), optim=replace(config.optim, batch_size=2),
        record=replace(config.record, val_rows=1, text_prompts=0, repeat_prompts=0),
    )  # fmt: skip
    train(config, quiet=True)
    app = open_page("heads", run="characters")
    shutil.rmtree(directory)
    text = app.text_area(key="prompt_box").value or ""
    assert not app.warning and not app.error and text[:1] in text[1:]


def test_a_short_prompt_is_drawn_whole(open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="tiny", prompt="3 4 5 3 4", layer=1, head=2)
    assert "L1H2 on this prompt" in [s.value for s in app.header]
    assert shares(sent, app).shape == (6, 6) and "overview" not in str(app.get("bidi_component"))
    np.testing.assert_allclose(shares(sent, app).sum(1), 1, atol=1e-4)


def test_a_long_prompt_is_an_overview_and_an_exact_window(long_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="long", prompt=LONG, layer=1, head=0)
    whole = explicit(long_run, 1, 0)
    np.testing.assert_allclose(shares(sent, app), whole[472:600, 472:600], atol=1e-5)
    assert sent(app, "pattern")[0]["starts"] == [472, 472]
    header, arrays, cue = sent(app, "overview")
    assert (header["sizes"], header["factors"], header["pool"]) == ([600, 600], [2, 2], "max")
    pooled = whole.reshape(300, 2, 300, 2).max((1, 3))
    np.testing.assert_allclose((arrays["blocks"] / 255) ** 2, pooled, atol=0.005)
    assert cue["value"] == [472, 600, 472, 600] and "Queries 472 to 599 look at keys 472 to 599." in captions(app)


def test_blocks_can_show_their_average(long_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("heads", run="long", prompt=LONG, layer=1, head=3)
    app.segmented_control(key="pool_box").set_value("mean").run()
    header, arrays, _ = sent(app, "overview")
    mean = explicit(long_run, 1, 3).reshape(300, 2, 300, 2).mean((1, 3))
    np.testing.assert_allclose((arrays["blocks"] / 255) ** 2 * header["top"], mean, atol=0.005 * header["top"] + 1e-6)


def test_ablate_takes_a_long_prompt_and_draws_the_end_of_a_pattern(long_run: Run, open_page: Open, sent: Any) -> None:
    app = open_page("ablate", run="long", prompt=LONG, off=((0, 0),), layer=1, head=1, section="text")
    app.toggle(key="ablate_patterns").set_value(True).run()
    assert not app.exception and "Shown are the last 256 tokens" in captions(app)
    before = sent(app, "pattern_Before")
    np.testing.assert_allclose(before[1]["shares"] / 65534, explicit(long_run, 1, 1)[344:, 344:], atol=1e-5)
    assert before[0]["starts"] == [344, 344]


def test_a_prompt_too_long_for_a_link_stays_in_the_session(long_run: Run, open_page: Open) -> None:
    app = open_page("heads", run="long", prompt=LONG * 3)
    assert "too long for a link" in captions(app) and app.text_area(key="prompt_box").value == LONG * 3
    assert "prompt" not in state.to_query(state.Selection(prompt="x" * 4001))
    assert state.to_query(state.Selection(prompt="x" * 4000))["prompt"] == "x" * 4000


def test_without_weights_the_kept_prompts_are_shown(open_page: Open, copy_run: Callable[..., Run], sent: Any) -> None:
    run = copy_run("bare")
    for path in (run.dir / "snapshots").iterdir():
        path.unlink()
    app = open_page("heads", run="bare", kept="repeat 0", layer=0, head=3, step=10)
    assert "This run keeps no weights" in captions(app) and not app.text_area
    expected = run.trace["pattern"].sel(step=10, prompt="repeat 0").values[0, 3].astype(np.float32)
    n = int(np.isfinite(expected).any(1).sum())
    np.testing.assert_allclose(shares(sent, app), expected[:n, :n], atol=1e-5)
    assert state.from_query(state.to_query(app.session_state["selection"])).kept == "repeat 0"
    assert "cannot be switched off here" in "".join(e.value for e in open_page("ablate", run="bare").info)


@pytest.mark.parametrize("size", [1, 3, 7, 10, 96])
def test_pooled_blocks(size: int) -> None:
    p = np.random.default_rng(0).random((2, 10, 10), np.float32)
    np.testing.assert_array_equal(recorded_prompts.pooled(p, size, "max"), payload.max_pool(p, size)[0])
    f = -(-10 // size)
    by_hand = [[p[:, i : i + f, j : j + f].mean((1, 2)) for j in range(0, 10, f)] for i in range(0, 10, f)]
    np.testing.assert_allclose(
        recorded_prompts.pooled(p, size, "mean"), np.moveaxis(np.array(by_hand), -1, 0), rtol=1e-6
    )


NAN = float("nan")


def a_trace(**measures: list[list[list[float]]]) -> xr.Dataset:
    steps = len(next(iter(measures.values())))
    return xr.Dataset(
        {n: (("step", "layer", "head"), v) for n, v in measures.items()}, {"step": range(0, 10 * steps, 10)}
    )


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        ({"induction": [[[0.1, 0.9], [0.2, 0.3]]], "entropy_normalised": [[[0.1, 0.9], [0.0, 0.3]]]}, (0, 1)),
        ({"induction": [[[NAN, NAN], [NAN, NAN]]], "entropy_normalised": [[[0.1, 0.9], [0.05, 0.3]]]}, (1, 0)),
        ({"entropy_normalised": [[[0.1, NAN], [0.5, 0.3]]]}, (0, 0)),
        ({"induction": [[[NAN, 0.2], [NAN, 0.1]]]}, (0, 1)),
        ({"previous_token": [[[NAN, 0.2], [0.3, 0.1]]]}, (0, 1)),
        ({"induction": [[[NAN, NAN], [NAN, NAN]]]}, (0, 0)),
    ],
)
def test_the_head_to_begin_with(measures: dict[str, Any], expected: tuple[int, int]) -> None:
    assert head_scores.default_head(a_trace(**measures)) == expected


def test_what_a_trace_holds() -> None:
    trace = a_trace(entropy=[[[1.0, NAN]], [[NAN, NAN]]], induction=[[[NAN, NAN]], [[NAN, NAN]]])
    assert head_scores.head_measures(trace) == ["entropy"]
    assert not head_scores.holds(trace, "val_loss") and not head_scores.predicts_tokens(trace)
    assert head_scores.head_exists(trace).tolist() == [[True, False]]
    assert np.isnan(head_scores.head_means(trace, "previous_token", 3)).all()
    np.testing.assert_array_equal(head_scores.head_means(trace, "entropy", 3), [[1.0, NAN]])


ANY = tracer.role("any", measure="entropy", at_least=0.0, label="any head")


def test_a_tile_says_its_heads_role_at_the_step(
    open_page: Open, small_run: Run, sent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours, then with a role of the person's own, which comes first; the film has them for every step."""
    for own in ((), (ANY,)):
        monkeypatch.setenv(ROLES, ",".join(f"{__name__}:ANY" for _ in own))
        table = [*own, *head_roles.ROLES]
        app = open_page("heads", run="tiny", step=20)
        told = cue(app, "atlas")["roles"]
        assert told["labels"] == [role.label for role in table] and np.shape(told["codes"]) == (2, 4)
        assert told["measures"] == {role.label: role.measure for role in table}
        assert "The colour is its induction score, the number the score of its role." in explained(app)
        assert own or set(np.ravel(told["codes"])) <= {0, *range(1, 7)}
        assert not own or np.all(np.array(told["codes"]) == 1)
        said = head_roles.roles_in(small_run.trace, 20, table).heads
        first = {head: 1 + table.index(of[0].role) for head, of in said.items()}
        assert {tuple(at): told["codes"][at[0]][at[1]] for at in np.argwhere(told["codes"]).tolist()} == first
        film = sent(app, "scrubber")[1]
        step = small_run.steps.index(20)
        assert film["roles"].shape == (len(small_run.steps), 2, 4) and film["roles"][step].tolist() == told["codes"]
        focus = tuple(sent(app, "atlas")[2]["value"]["head"])
        kind = rf"is an? {said[focus][0].role.label} head" if focus in said else "has no role here. Nearest: "
        assert re.search(f"^L{focus[0]}H{focus[1]} {kind}", written(app), re.M)
        lost = head_roles.lost_codes(small_run.trace.sel(step=slice(20)), table)[-1].tolist()
        assert told["lost"] == film["lost"][step].tolist() == lost


def test_a_link_with_a_head_that_does_not_exist_falls_back(open_page: Open, sent: Any, small_run: Run) -> None:
    app = open_page("heads", run="tiny", layer=9, head=1)
    above = (small_run.trace["induction"] - small_run.trace["induction_control"]).values[-1]
    best = np.unravel_index(int(above.argmax()), (2, 4))
    assert sent(app, "atlas")[2]["value"]["head"] == [int(i) for i in best]


def test_the_induction_score_stands_beside_its_control(open_page: Open, small_run: Run) -> None:
    app = open_page("heads", run="tiny", step=10, layer=1, head=2, prompt="3 4 5 3 4")
    score, control = (
        float(small_run.trace[x].sel(step=10, layer=1, head=2)) for x in ("induction", "induction_control")
    )
    said = f"Induction score of L1H2: {score:.2f}. Control, where nothing repeats: {control:.2f}."
    assert said in captions(app) and "by_period" not in was_drawn(app)
    app.session_state["by_period_open"] = True
    app.run()
    figure, found = shown(app, "by_period"), induction_by_period(small_run.model(10))
    lines = [found.score[:, 1, 2], found.control[:, 1, 2], found.uniform]
    for drawn, expected in zip(figure.data, lines, strict=True):
        np.testing.assert_array_equal(drawn.x, range(2, 32))
        np.testing.assert_allclose(drawn.y, expected)


def test_one_period_is_one(open_page: Open, small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = induction_by_period(small_run.model(30), [5])
    monkeypatch.setattr(data, "by_period", lambda *_: found)
    app = open_page("heads", run="tiny", layer=1, head=2)
    app.session_state["by_period_open"] = True
    app.run()
    assert "on average over 1 period and most" in captions(app) and not app.exception


def test_a_run_of_before_the_control_says_so(open_page: Open, copy_run: Callable[..., Run]) -> None:
    old = copy_run("old").dir
    shutil.rmtree(old / "trace.zarr" / "induction_control")
    with warnings.catch_warnings(action="ignore"):  # zarr warns of other implementations
        zarr.consolidate_metadata(str(old / "trace.zarr"))
    assert "Control, where nothing repeats: not recorded in this run." in captions(open_page("heads", run="old"))
    assert not open_page("training", run="old").exception
