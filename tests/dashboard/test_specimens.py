"""The Papers page over real runs of two specimens: what is shown, what is claimed, and what can be started."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import jobs, loading, shipped
from dashboard.views.specimens import data as reading
from dashboard.views.specimens.claims import evidence
from dashboard.views.specimens.data import LossSetting
from dashboard.views.specimens.page import NOISE, SERIES
from tests.dashboard.words import labels, written
from tracer.config import TrainConfig
from tracer.presets import preset
from tracer.specimens.paper_results import results
from tracer.specimens.system_figures import outcome
from tracer.specimens.tutorials import CLAIMS, SPECIMENS
from tracer.specimens.tutorials import TRAINED as TRAINABLE
from tracer.store import Run, open_run
from tracer.training.loop import train

Open = Callable[..., AppTest]
TRAINED = ("single-head-scaled", "single-head-residual", "multi-head")
OPEN = {"cards": tuple(SPECIMENS)}
"""Every card opened."""


def narrow(config: TrainConfig, run: Path, steps: int, width: int = 16) -> TrainConfig:
    """A narrow specimen on random tokens, so that no text has to be read."""
    hidden: dict[str, Any] = {k: (8,) * len(getattr(config.model, k)) for k in ("mlp_hidden", "unembed_hidden")}
    return replace(
        config, run=str(run), steps=steps, device="cpu",
        model=replace(config.model, d_model=width, n_ctx=16, **hidden),
        data=replace(config.data, corpus="repeated-random", vocab_size=64, period_min=4, period_max=7),
        optim=replace(config.optim, batch_size=8),
        record=replace(config.record, every=5, snapshot_every=10, val_rows=4, log_every=10),
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three specimens in a setting of their own, trained for 20 steps."""
    folder = tmp_path_factory.mktemp("specimens")
    for name in TRAINED:
        config = narrow(preset(f"{name}-small").config, folder / "checkpoints" / f"my-{name}", 20)
        train(config, preset=f"{name}-small", quiet=True)
    return folder


@pytest.fixture
def elsewhere(none_left: None, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The dashboard started in a copy of that folder."""
    folder = Path(shutil.copytree(made, tmp_path / "work"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def nothing(none_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The dashboard started where there is no run at all."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(run: str, **facts: Any) -> None:
    path = Path("checkpoints") / run / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def the_setting(folder: Path) -> dict[str, Run]:
    (runs,) = reading.trained(loading.runs()).values()
    return runs


def arguments(one: jobs.Started) -> list[str]:
    """What follows `python -P -m tracer`."""
    assert isinstance(one.process.args, list)
    return [str(word) for word in one.process.args[4:]]


def test_runs_are_known_by_their_preset_and_their_system(elsewhere: Path) -> None:
    (setting,) = reading.trained(loading.runs())
    assert setting == LossSetting(16, 16, 8, 0.1, 64, "repeated-random", 0)
    assert {name: run.name for name, run in the_setting(elsewhere).items()} == {name: f"my-{name}" for name in TRAINED}
    assert not reading.is_small(setting)


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        ({}, True),
        ({"preset": "single-head-scaled"}, True),
        ({"preset": "demo"}, False),
        ({"preset": None}, False),
        ({"preset": "multi-head-small"}, False),  # its model has one head
        ({"preset": "single-head-residual-small"}, False),  # it has no residual connection
        ({"parent": {"run": "a", "step": 3}}, False),
        ({"config": {"steps": "x"}}, False),
    ],
)
def test_what_counts_as_a_run_of_a_specimen(elsewhere: Path, facts: dict[str, Any], known: bool) -> None:
    change("my-single-head-scaled", **facts)
    assert ("my-single-head-scaled" in {run.name for run in the_setting(elsewhere).values()}) == known


def test_settings_that_differ_read_differently() -> None:
    one, two = (LossSetting(16, 16, 8, lr, 64, "text", 0).text for lr in (0.1234567, 0.1234568))
    assert one != two and "learning rate 0.1234567," in one


def test_of_two_runs_the_newest_that_ended_counts(elsewhere: Path) -> None:
    for name, created, status in (("b", "2126-01-01T00:00:00+00:00", "finished"),
                                  ("c", "2127-01-01T00:00:00+00:00", "stopped")):  # fmt: skip
        shutil.copytree("checkpoints/my-multi-head", f"checkpoints/{name}")
        change(name, created=created, status=status)
    assert the_setting(elsewhere)["multi-head"].name == "b"


def test_every_claim_is_judged_by_the_runs_or_waits(elsewhere: Path) -> None:
    found = {one.claim.text: one for one in reading.readings(the_setting(elsewhere))}
    assert list(found) == [claim.text for claim in CLAIMS]
    entropy = open_run("my-single-head-scaled").trace["entropy"].values[:, 0, 0]
    fell = found["scaled but without a residual, entropy falls to under a third"]
    assert (fell.verdict == "holds") == bool(entropy[-1] < entropy[0] / 3)
    assert evidence(fell) == f"{entropy[-1] / entropy[0]:.3f} of the start, must be at most 0.333333"
    waits = found["multi-head is better than single-head"]
    assert (waits.verdict, evidence(waits)) == ("not tested", "waits for single-head")


def test_losses_after_different_numbers_of_steps_are_not_compared(elsewhere: Path) -> None:
    shutil.copytree("checkpoints/my-multi-head", "checkpoints/two")
    config = json.loads(Path("checkpoints/two/run.json").read_text())["config"]
    config["model"]["n_layers"] = 2
    change("two", preset="two-blocks-small", config=config, step=7)
    by_claim = {one.claim.text: one for one in reading.readings(the_setting(elsewhere))}
    found = by_claim["two-blocks is better than multi-head"]
    assert (found.verdict, evidence(found)) == ("not tested", "trained for 7 and 20 steps: not comparable")


def test_a_run_that_is_not_done_is_not_judged(elsewhere: Path) -> None:
    change("my-single-head-scaled", status="stopped")
    found = reading.readings(the_setting(elsewhere))
    assert {one.verdict for one in found if one.claim.needs == ("single-head-scaled",)} == {"not tested"}


def test_a_card_shows_the_run_at_both_ends_and_its_curves(open_page: Open, elsewhere: Path, sent: Any) -> None:
    app, name = open_page("specimens", **OPEN), "single_head_scaled"
    trace = open_run("my-single-head-scaled").trace
    head, arrays, cue = sent(app, f"{name} entropy")
    assert head["labels"] == ["L0H0", "even attention"] and arrays["steps"].tolist() == trace["step"].values.tolist()
    drawn = arrays["lines"] / 65534 * (head["hi"] - head["lo"]) + head["lo"]
    np.testing.assert_allclose(drawn[0], trace["entropy"].values[:, 0, 0], atol=1e-3)
    np.testing.assert_allclose(drawn[1], np.log(np.arange(2, 17)).mean(), atol=1e-3)
    assert cue["scale"]["chance"] == pytest.approx(0.089 * 32 / 31)
    walls = next(e.proto.body for e in app.get("html") if "class='wall'" in e.proto.body)
    cards = walls.split("<div class='wall'>")[1]
    holding, of = cards.count("✓ "), cards.count("<em") - cards.count("not tested")
    (said,) = [one.value for one in app.markdown if one.value.startswith("**Tutorials: ")]
    assert said.startswith(f"**Tutorials: {holding} of {of} findings hold here") and re.search(
        r"Papers: of \d+ claims \d+ hold, \d+ fail, \d+ open\.\*\*", said
    )
    assert cue["scale"]["mark"] == "published end 0.089, without its first row"  # and then 0.092, as the line stands
    head, arrays, _ = sent(app, f"{name} looks")
    drawn = arrays["lines"] / 65534 * (head["hi"] - head["lo"]) + head["lo"]
    expected = [trace[k].values[:, 0, 0] for k in ("current_token", "previous_token")]
    np.testing.assert_allclose(drawn, expected, atol=1e-3)
    for at, step in (("At the start", 0), ("At the end", 20)):
        seen = np.sqrt(trace["pattern"].sel(step=step, prompt="text 0").values[0, 0].astype(float))
        np.testing.assert_allclose(sent(app, f"{name} atlas {at}")[1]["thumbs"][0, 0] / 255, seen, atol=0.5 / 39 + 4e-3)
    assert "**At the end**, step 20" in written(app)


def test_the_shares_at_the_end_answer_the_question(open_page: Open, elsewhere: Path) -> None:
    text = written(open_page("specimens", **OPEN))
    shares = {}
    for name in ("single-head-scaled", "single-head-residual"):
        last = open_run(f"my-{name}").trace.isel(step=-1, layer=0, head=0)
        own, before = float(last["current_token"]), float(last["previous_token"])
        shares[name] = f"{own:.0%} of it is on the token itself, {before:.0%} on the token before"
        assert shares[name] in text
    assert "**What are those heads doing?** Without a residual connection" in text


def test_what_is_shipped_is_what_was_published_with_the_code(nothing: Path) -> None:
    """The runs that come along are what their papers keep, within what machines differ by; without weights."""
    told = {name: of["outcomes"]["0"] for one in results() for name, of in one.told.get("systems", {}).items()
            if name in TRAINABLE}  # fmt: skip
    assert {run.meta["preset"] for run in shipped.specimens()} == {one.preset for one in TRAINABLE.values()}
    for run in shipped.specimens():
        name = run.name.removesuffix("-small")
        found = outcome(run)
        assert not run.steps and (found.status, found.step) == (told[name]["status"], told[name]["step"])
        assert found.n_params == told[name]["n_params"] and not {"host", "argv", "git"} & set(run.meta)
        if found.status == "finished":
            assert found.loss == pytest.approx(told[name]["loss"], abs=NOISE)
            assert found.entropy_end == pytest.approx(told[name]["entropy_end"], abs=0.05)


def test_pages_that_ask_at_once_read_one_folder() -> None:
    """Of several, all but one would be removed while their runs are read."""
    shipped._unpacked().cleanup()
    shipped._unpacked.cache_clear()
    together = Barrier(8)

    def ask(_: int) -> Path:
        together.wait()
        return shipped.folder()

    with ThreadPoolExecutor(8) as pool:
        (found,) = set(pool.map(ask, range(8)))
    assert {run.dir.parent for run in shipped.specimens()} == {found}


def test_a_run_of_ones_own_takes_the_place_of_a_shipped_one(nothing: Path) -> None:
    ((setting, there),) = reading.with_shipped({}, SERIES).items()
    mine = object()
    found = reading.with_shipped({setting: {"multi-head": mine}}, SERIES)[setting]  # pyrefly: ignore[bad-assignment]
    assert found["multi-head"] is mine and set(found) == set(there) == set(SERIES) and reading.is_small(setting)


def test_without_a_run_everything_can_be_trained(open_page: Open, nothing: Path) -> None:
    app = open_page("specimens")
    assert labels(app) == [
        "Train all 11 tutorial models (about 22 minutes)",
        "Open all cards",
        *(f"Train it here (about {n})" for n in ("2 minutes", "2 minutes", "2 minutes", "2 minutes", "3 minutes",
                                                 "2 minutes", "3 minutes", "10 seconds", "6 minutes", "10 seconds",
                                                 "10 seconds")),
    ]  # fmt: skip


def test_in_another_setting_nothing_is_started(open_page: Open, elsewhere: Path) -> None:
    app = open_page("specimens")
    train = [label for label in labels(app) if label.startswith("Train ")]
    assert train == ["Train it here (about 10 seconds)"] * 2  # on characters: a series of their own
    assert [c.value for c in app.caption].count("No run of it in this setting.") == 6


def test_training_one_starts_its_preset(open_page: Open, nothing: Path) -> None:
    app = open_page("specimens")
    app.button(key="train four-blocks-small").click().run()
    (one,) = jobs.started()
    assert arguments(one) == ["train", "four-blocks-small", "--run", "checkpoints/four-blocks-small", "--seed",
                                    "0", "--steps", "2000"]  # fmt: skip
    assert "Reading the text and building the model" in written(app)
    assert app.button(key="train_all").disabled and "train four-blocks-small" not in {b.key for b in app.button}


def test_a_name_that_is_taken_is_said(open_page: Open, nothing: Path, made: Path) -> None:
    shutil.copytree(made / "checkpoints" / "my-multi-head", nothing / "checkpoints" / "multi-head-small")
    change("multi-head-small", preset="demo")
    app = open_page("specimens")
    app.button(key="train multi-head-small").click().run()
    assert "already holds a run" in written(app) and jobs.started() == []


def test_a_corpus_named_by_others_is_text(open_page: Open, elsewhere: Path) -> None:
    name = "**b** <img src=x onerror=alert(1)>"
    config = json.loads(Path("checkpoints/my-multi-head/run.json").read_text())["config"]
    config["data"]["corpus"] = name
    change("my-multi-head", config=config)
    app = open_page("specimens")
    assert any(name in option for option in app.selectbox(key="setting_box").options)
    assert name not in written(app)
