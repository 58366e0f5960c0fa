"""Exercises on the Papers page: every check with its numbers, the heads they were asked of, and what runs add."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import loading, shipped
from dashboard.views.specimens import data as reading
from tests.dashboard.test_specimens import OPEN, arguments, narrow, written
from tracer.presets import preset
from tracer.specimens.systems import Check
from tracer.specimens.tutorials import SPECIMENS
from tracer.store import Run, open_run
from tracer.training.loop import train

Open = Callable[..., AppTest]
EXERCISES = {name: one.exercise for name, one in SPECIMENS.items() if one.exercise}


@pytest.fixture
def elsewhere(none_left: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The dashboard started where there is no run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bare(text: str) -> str:
    return text.replace("\\", "")


def test_every_check_is_shown_with_its_numbers(open_page: Open, elsewhere: Path) -> None:
    text = bare(written(open_page("specimens", **OPEN)))
    for exercise in EXERCISES.values():
        for check in exercise().checks:
            line = f":green-badge[✓] &nbsp;{check.asks[0].upper()}{check.asks[1:]}  \n:gray[{check.answer}]"
            assert line in text
    assert text.count("What its author asks") == 3 and text.count(":red-badge[✕]") == 0


def test_the_heads_of_five_words_are_drawn(open_page: Open, elsewhere: Path, sent: Any) -> None:
    app, done = open_page("specimens", **OPEN), EXERCISES["post-norm"]()
    for head, shares in enumerate(done.pattern):
        header, arrays, _ = sent(app, f"post_norm L0H{head}")
        assert header["tokens"] == ["the", "cat", "sat", "on", "mat"]
        np.testing.assert_allclose(arrays["shares"].reshape(5, 5) / 65534, shares, atol=1e-5)
    assert sent(app, "one_matmul exercise")[1]["thumbs"].shape == (1, 12, 24, 24)


def answered(runs: list[Run]) -> list[Check]:
    """What many-eyes and many-eyes-bare, in this order, say to the questions that are left."""
    answers = SPECIMENS["many-eyes"].answers
    assert answers is not None
    said = answers([dict(zip(("many-eyes", "many-eyes-bare"), runs, strict=True))])
    assert len(said) == 2
    return [*said]


def test_trained_runs_answer_what_is_left(open_page: Open, elsewhere: Path) -> None:
    """The shipped runs, until there is one of another setting; then those of that setting."""
    ours = {run.name: run for run in shipped.specimens()}
    before = answered([ours["many-eyes-small"], ours["many-eyes-bare-small"]])
    text = bare(written(open_page("specimens", **OPEN)))
    assert all(check.answer in text for check in before) and "once both are trained" not in text
    for name, waits in (("many-eyes-bare", True), ("many-eyes", False)):
        config = narrow(preset(f"{name}-small").config, elsewhere / "checkpoints" / f"my-{name}", 20, 24)
        train(config, preset=f"{name}-small", quiet=True)
        text = bare(written(open_page("specimens", **OPEN)))
        assert ("once both are trained" in text) == waits and not any(check.answer in text for check in before)
    said = answered([open_run("my-many-eyes"), open_run("my-many-eyes-bare")])
    assert all(check.answer in text for check in said) and text.count("here, step 20") == 2


def test_characters_are_a_setting_of_their_own(open_page: Open, elsewhere: Path) -> None:
    for name, width in (("single-head", 16), ("many-eyes", 24)):
        config = narrow(preset(f"{name}-small").config, elsewhere / "checkpoints" / f"my-{name}", 5, width)
        train(config, preset=f"{name}-small", quiet=True)
    assert len(reading.trained(loading.runs())) == 2
    app = open_page("specimens", **OPEN)
    mine, theirs = app.selectbox(key="setting_box").options  # of the series alone: mine and the shipped one
    assert mine.startswith("16 wide") and theirs.startswith("64 wide") and written(app).count("here, step 5") == 2


def test_an_exercise_is_trained_beside_the_others(open_page: Open, elsewhere: Path) -> None:
    from dashboard import jobs

    app = open_page("specimens")
    app.button(key="train many-eyes-small").click().run()
    (one,) = jobs.started()
    assert arguments(one)[:2] == ["train", "many-eyes-small"]
    assert not {"train one-matmul-small", "train post-norm-small"} & {button.key for button in app.button}
