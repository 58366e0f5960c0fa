"""A run that holds a clamp while it trains is shown with it: what every page computes is what was trained."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dashboard import loading
from dashboard.loading import diagnoses, prompt_attention
from dashboard.shared.export.snippets import View, snippet
from dashboard.shared.run_bar import clamps_of
from dashboard.state import Selection
from dashboard.views.circuits import data as circuits
from dashboard.views.find import data as finding_passages
from dashboard.views.phases import data as phases
from tracer.analysis.max_activating import search
from tracer.analysis.prompt_over_steps import film
from tracer.heads.definitions import entropy
from tracer.store import Run
from tracer.training.loop import train

STEP, TOKENS = 20, [1, *range(5, 15), *range(5, 15)]


@pytest.fixture(scope="module")
def blind(small_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """No head of layer 0 may look at the token before its own, and L1H1 is off."""
    directory = tmp_path_factory.mktemp("clamped") / "checkpoints" / "blind"
    held = ("L0 no-previous", "L1H1 off")
    return train(replace(small_run.config, run=str(directory), clamp=held, steps=STEP), quiet=True)


def one_back(shares: np.ndarray) -> np.ndarray:
    """What each query but the first gives to the key before it."""
    return np.diagonal(shares, -1, -2, -1)


def test_heads_and_their_film(blind: Run) -> None:
    shown = prompt_attention.of_text(blind, STEP, TOKENS, [str(token) for token in TOKENS])
    everything = slice(None)
    for head in range(4):
        assert (one_back(shown.window(0, head, everything, everything)) == 0).all()
        assert (one_back(shown.window(1, head, everything, everything)) > 0).all()
    (_, (frame, _)) = next(film(blind, torch.tensor([TOKENS]), [STEP], size=len(TOKENS)))
    np.testing.assert_array_equal(frame, shown.thumbs)
    assert (one_back(frame[0]) == 0).all() and one_back(shown.thumbs[0]).max() == 0


def test_find_and_its_lines(blind: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = finding_passages.search(blind, STEP)
    expected = search(blind.model(STEP), torch.from_numpy(found.text.tokens)).scores
    let_go = search(blind.model(STEP, clamps=False), torch.from_numpy(found.text.tokens)).scores
    monkeypatch.chdir(blind.dir.parents[1])
    view = View(blind, loading.trace(blind), STEP, (0, 1), Selection(), runs=True)
    scope: dict[str, Any] = {}
    exec(snippet("find", view).rpartition("\n")[0], scope)
    for kind, scores in expected.items():
        np.testing.assert_array_equal(found.search.scores[kind], scores, err_msg=kind)
        np.testing.assert_array_equal(scope["found"].scores[kind], scores, err_msg=kind)
    assert np.nanmax(np.abs(let_go["sharpest"] - expected["sharpest"])) > 0.01
    assert np.nanmax(expected["previous_token"][0]) == 0 < np.nanmax(let_go["previous_token"][0])


def test_lines_of_ablate(blind: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(blind.dir.parents[1])
    view = View(blind, loading.trace(blind), STEP, (0, 1), Selection(off=((1, 1),)), runs=True)
    *before, last = snippet("ablate", view).splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join(before), scope)
    assert eval(last, scope).mean == 0, "it is off already"


def test_circuits(blind: Run) -> None:
    at_one = circuits.stripes(blind, STEP)[0].values[..., 1]
    assert (at_one[0] == 0).all() and (at_one[1] > 0).all()
    assert circuits.seen(blind, STEP, (0, 2), 1) == 0 < circuits.seen(blind, STEP, (0, 2), 2)
    parts = circuits.parts_of_logit(blind, STEP, tuple(TOKENS))
    assert (parts.heads[1, 1] == parts.heads[1, 1][0]).all(), "a head that is off writes the same everywhere: nothing"
    whole = parts.embed + parts.heads.sum((0, 1)) + parts.mlps.sum(0) + parts.biases
    np.testing.assert_allclose(whole, parts.logit, atol=1e-4)


def test_phases(blind: Run) -> None:
    """Off already: the losses stay as they are."""
    found = phases.undone(blind, 10, STEP, ((1, 1), (0, 0)))
    assert (found.without[0] == 0).all() and (found.without[1] != 0).any()


def test_the_bound_is_of_the_model_that_the_trace_measured(blind: Run) -> None:
    """Entropy of the kept texts, as their patterns have it; with the clamps let go it is another."""
    found = diagnoses.bounds(blind, (0, 2))
    assert found is not None
    kept = loading.open_run(blind.dir).trace["pattern"].sel(step=STEP, layer=0, head=2)
    texts = [str(name).startswith("text ") for name in kept["prompt"].values]
    pattern = torch.from_numpy(kept.values[texts][:, : found.tokens, : found.tokens]).double()
    here = list(found.steps).index(STEP)
    assert found.entropy[here] == pytest.approx(float(entropy(pattern)[:, 1:].mean()), abs=1e-3)
    assert (one_back(pattern.numpy()) == 0).all() and found.by_scores[here] <= found.entropy[here]


def test_every_page_says_what_is_held(open_page, blind: Run, workplace: Path) -> None:
    app = open_page("runs")
    assert not any("no-previous" in text.value for text in app.text)
    (workplace / "checkpoints" / "blind").symlink_to(blind.dir)
    try:
        app = open_page("runs")
        assert "Clamped: L0 no-previous, L1H1 off" in [text.value for text in app.text]
        for page in ("training", "heads", "circuits"):
            told = [one.value.replace("\\", "") for one in open_page(page, run="blind").caption]
            assert "clamped: L0 no-previous, L1H1 off" in told
    finally:
        (workplace / "checkpoints" / "blind").unlink()


@pytest.mark.parametrize(("held", "said"), [(5, []), ("off", []), (None, []), (["L1H1 off", 7], ["L1H1 off", "7"])])
def test_what_a_strangers_config_holds_is_no_error(held: Any, said: list[str]) -> None:
    run: Any = SimpleNamespace(meta={"config": {"clamp": held}})
    assert clamps_of(run) == said
