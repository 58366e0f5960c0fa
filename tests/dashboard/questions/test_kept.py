"""What is kept of the answers that take long, and the keys under which functions are cached."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dashboard.loading import kept
from tests.dashboard.questions.conftest import Write
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run


def test_the_latest_32_answers_of_a_name_are_kept() -> None:
    made: list[int] = []

    def ask(key: int) -> list[int]:
        def make() -> list[int]:
            made.append(key)
            return [key]

        return kept.kept("a test of what is kept", key, make)

    assert [ask(key) for key in range(33)] == [[key] for key in range(33)]
    assert ask(32) is ask(32)
    assert [ask(key) for key in range(1, 33)] == [[key] for key in range(1, 33)]
    assert made == list(range(33)), "none of the latest 32 is made again"
    ask(0)
    assert made[33:] == [0], "the first one had gone"


def test_what_tells_runs_and_prompts_apart(write: Write) -> None:
    run = write("keyed", [0, 1], {"x": ((), np.array([1.0, 2.0]))})
    as_recorded, of_a_step = (functions[Run] for functions in (kept.AS_RECORDED, kept.OF_A_STEP))
    before = as_recorded(run), of_a_step(run)
    assert of_a_step(run) == kept.of_run(run) == (str(run.dir.resolve()), run.job)
    meta = json.loads((run.dir / "run.json").read_text())
    (run.dir / "run.json").write_text(json.dumps({**meta, "resumed": 3}))
    assert as_recorded(run) != before[0] and of_a_step(run) != before[1], "a job went on with it"
    of_a_prompt: Callable = kept.OF_A_PROMPT[PromptPatterns]
    nothing = np.empty(0)
    shown = PromptPatterns(("a", "b", (1, 2)), 7, [], [], [], [], nothing, lambda *_: nothing, lambda *_: nothing)
    assert of_a_prompt(shown) == ("a", "b", (1, 2), (), 7)
    assert of_a_prompt(replace(shown, off=((1, 2),))) == ("a", "b", (1, 2), ((1, 2),), 7)
