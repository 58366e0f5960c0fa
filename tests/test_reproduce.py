"""Specimens have presets in both sizes; outcomes are read from real runs; claims are judged by hand-made outcomes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracer import presets
from tracer.claims import CLAIMS, NOISE, NOISE_AT_100, Outcome, answers, heads_apart, judged, outcome
from tracer.cli import main
from tracer.exercises import EXERCISES
from tracer.presets import PRESETS
from tracer.reproduce import named, reproduce, trained
from tracer.specimens import SPECIMENS, TRAINED, TUTORIALS, Check
from tracer.store import open_run
from tracer.tables import figures, tables

AS_PUBLISHED = {
    "single-head-unscaled": (0.003, 0.003, 6.4), "single-head-scaled": (1.492, 0.089, 6.0),
    "single-head-residual": (1.492, 1.16, math.log(68.28)), "single-head": (1.492, 1.177, math.log(67.68)),
    "multi-head-full": (1.5, 0.68, math.log(66.48)), "multi-head": (1.5, 0.7, math.log(65.11)),
    "two-blocks": (1.5, 0.5, math.log(55.74)), "four-blocks": (0.97, 0.97, math.nan),
    "four-blocks-rms": (2.2, 1.5, math.log(48.66)),
}  # fmt: skip
"""Entropy at the start and at the end, and held-out loss."""


def made(start: float, end: float, loss: float) -> Outcome:
    status = "diverged" if math.isnan(loss) else "finished"
    return Outcome("run", status, 100, start, end, ((end,),), loss, 1000, 60.0, 0.1)


FOUND = {name: made(*values) for name, values in AS_PUBLISHED.items()}


def test_every_specimen_has_a_preset_and_what_is_trained_has_it_in_both_sizes() -> None:
    assert set(SPECIMENS) <= set(PRESETS)
    for name, specimen in TRAINED.items():
        assert {specimen.preset("small"), specimen.preset("published")} == {name, f"{name}-small"} <= set(PRESETS)
    assert [name for name, one in SPECIMENS.items() if one.tutorial < 2] == list(presets.SERIES_A)
    assert [one.tutorial for one in SPECIMENS.values()] == sorted(one.tutorial for one in SPECIMENS.values())
    assert {one.tutorial for one in SPECIMENS.values()} == set(range(len(TUTORIALS)))


def test_what_was_published_contradicts_no_claim() -> None:
    verdicts = {claim.text: holds for claim, holds, _ in judged([FOUND])}
    assert list(verdicts) == [claim.text for claim in CLAIMS]
    gains = [math.log(67.68 / ppl) for ppl in (66.48, 65.11)]
    assert 0 < gains[0] < gains[1] < NOISE  # on its large batches a seed means less than on ours
    close = [text for text, holds in verdicts.items() if not holds]
    assert close == ["multi-head-full is better than single-head", "multi-head is better than single-head"]
    assert {verdicts[text] for text in close} == {None}


@pytest.mark.parametrize(
    ("name", "outcome", "broken"),
    [
        ("single-head-unscaled", (1.2, 0.01, 4), "unscaled attention is one-hot from the start (entropy below 0.05)"),
        ("single-head-scaled", (1.5, 0.6, 4), "scaled but without a residual, entropy falls to under a third"),
        ("single-head-residual", (1.5, 0.9, 4), "with it, entropy stays above two thirds of the start"),
        ("four-blocks", (1.0, 1.0, 5.0), "four-blocks diverges"),
        ("two-blocks", (1.0, 1.0, 4.5), "two-blocks is better than multi-head"),
        ("four-blocks-rms", (1.0, 1.0, math.nan), "four-blocks-rms is better than single-head"),
    ],
)  # fmt: skip
def test_a_claim_can_fail(name: str, outcome: tuple[float, float, float], broken: str) -> None:
    failing = [claim for claim, holds, _ in judged([{**FOUND, name: made(*outcome)}]) if holds is False]
    assert broken in [claim.text for claim in failing] and all(name in claim.needs for claim in failing)


@pytest.mark.parametrize(
    ("gaps", "no_worse", "better"),
    [
        ([-1.1 * NOISE], True, True),
        ([-0.9 * NOISE], True, None),
        ([0.0], True, None),
        ([0.9 * NOISE], None, None),
        ([1.1 * NOISE], False, False),
        ([0.6 * NOISE] * 4, False, False),  # four seeds: half the noise
        ([1.1 * NOISE, -1.1 * NOISE], True, None),
    ],
)
def test_losses_differ_when_seeds_alone_would_not(
    gaps: list[float], no_worse: bool | None, better: bool | None
) -> None:
    def seeds(name: str, other: str) -> list[dict[str, Outcome]]:
        return [{name: made(1, 1, 3 + gap), other: made(1, 1, 3.0)} for gap in gaps]

    (claim, holds, told), *_ = judged(seeds("multi-head", "multi-head-full"))
    assert (claim.text, holds) == ("multi-head is no worse than multi-head-full", no_worse)
    assert f"seeds alone make {NOISE / math.sqrt(len(gaps)):.3f}" in told
    (claim, holds, _), *_ = judged(seeds("two-blocks", "multi-head"))
    assert (claim.text, holds) == ("two-blocks is better than multi-head", better)


def test_only_claims_whose_runs_are_there_are_judged() -> None:
    assert [claim.needs for claim, *_ in judged([{"four-blocks": FOUND["four-blocks"]}, {}])] == [("four-blocks",)]


def test_heads_are_apart_by_the_attention_that_they_give_to_different_keys() -> None:
    same, other = [[1, 0], [1, 0]], [[1, 0], [0.25, 0.75]]
    assert heads_apart(np.array([[[same, same]]])) == 0
    assert heads_apart(np.array([[[same, other]]])) == 0.75
    assert heads_apart(np.array([[[same, other, other]]])) == pytest.approx(0.5)  # 0.75, 0.75 and 0
    unseen = np.full((2, 2), np.nan)
    assert heads_apart(np.array([[[same, other]], [[unseen, unseen]]])) == 0.75  # a prompt that is shorter


@pytest.mark.parametrize(
    ("bare", "told"),
    [
        (3 - 1.1 * NOISE_AT_100, "better without"),
        (3 - 0.9 * NOISE_AT_100, "too close to tell"),
        (3 + 1.1 * NOISE_AT_100, "better with;"),
    ],
)
def test_trained_runs_answer_the_questions(bare: float, told: str) -> None:
    given = replace(made(3, 2, 3.0), apart=(0.14, 0.57))
    both = answers("many-eyes", [{"many-eyes": given, "many-eyes-bare": made(3, 2, bare)}])
    assert [check.asks for check in both] == ["100 steps with W_O and without", "do the heads differ?"]
    assert both[0].answer.startswith(f"held-out loss 3.000 with, {bare:.3f} without: ") and told in both[0].answer
    assert "14% of their attention to different keys before the first step, 57% after the last" in both[1].answer
    assert answers("many-eyes", [{"many-eyes": given}]) == both[1:]
    assert answers("many-eyes", [{}]) == answers("one-matmul", [{"many-eyes": given}]) == []


def test_figures_are_set_beside_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracer.tables._size", {"single-head-residual": 6_500_608, "four-blocks": 7}.__getitem__)
    residual = [made(1.2, 1.0, math.log(20)), made(1.3, 1.1, math.log(30))]
    assert figures(SPECIMENS["single-head-residual"], residual) == [
        ("`single-head-residual`", *row)
        for row in (
            ("entropy at the start", "–", "1.250 (1.200 to 1.300)"),
            ("entropy at the end, step 100", "1.160", "1.050 (1.000 to 1.100)"),
            ("held-out perplexity", "68.28", "25.00 (20.00 to 30.00)"),
            ("held-out loss", "–", "3.198 (2.996 to 3.401)"),
            ("attention on the token itself", "–", "0.10 (0.10 to 0.10)"),
            ("parameters, at the published size", "6,500,608", "6,500,608"),
        )
    ]
    assert ("`four-blocks`", "how it ends", SPECIMENS["four-blocks"].published, "diverged at step 100") in figures(
        SPECIMENS["four-blocks"], [FOUND["four-blocks"]]
    )


def test_the_sizes_are_the_published_ones() -> None:
    from tracer.tables import _size

    published = {name: one.n_params for name, one in SPECIMENS.items() if one.n_params}
    assert {name: _size(name) for name in published} == published
    assert published == {"single-head-residual": 6_500_608, "four-blocks-rms": 23_096_320}


def test_the_tables_hold_every_tutorial_claim_and_exercise() -> None:
    checks = {"post-norm": [Check("is a|b small?", "|x| is 1", True), Check("and c?", "2")]}
    text = tables([FOUND], checks)
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## One attention head", "## Many heads, many blocks", "## Multi-head attention and residuals", "## Claims",
    ]  # fmt: skip
    assert "| `post-norm` | is a\\|b small? | \\|x\\| is 1 | yes |\n| `post-norm` | and c? | 2 | – |" in text
    assert all(f"| {claim.text} |" in text for claim in CLAIMS)
    assert "| multi-head is better than single-head | too close to tell |" in text


def test_the_document_has_every_figure_claim_and_exercise() -> None:
    document = (Path(__file__).parents[1] / "docs" / "specimens.md").read_text()
    for name, specimen in TRAINED.items():
        outcomes = [FOUND.get(name, made(1, 1, 1))]
        for _, figure, published, _ in figures(specimen, outcomes):
            assert re.search(
                rf"\| `{name}` \| {figure.partition(',')[0]}[^|]* \| {re.escape(published)} \| [^|]+ \|", document
            )
    assert [claim.text for claim in CLAIMS if f"| {claim.text} | " not in document] == []
    for name, exercise in EXERCISES.items():
        lines = [f"| `{name}` | {check.asks} | " for check in exercise().checks]
        assert lines and all(line in document for line in lines)
    assert "docs/specimens.md" in (Path(__file__).parents[1] / "README.md").read_text()


def test_names_bring_what_they_are_compared_with() -> None:
    assert named(["many-eyes", "post-norm"]) == ["many-eyes", "many-eyes-bare", "post-norm"]
    assert named() == list(SPECIMENS)


def test_trains_what_is_missing_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text"
    text.mkdir()
    for i in range(20):
        (text / f"{i}.txt").write_text(f"def f{i}(self, x):\n    return self.x + {i}\n" * 40)
    whole = PRESETS["single-head-small"]
    config = replace(whole.config, steps=3, device="cpu", optim=replace(whole.config.optim, batch_size=8))
    monkeypatch.setitem(PRESETS, "single-head-small", replace(whole, config=config))
    assert trained(["single-head"], corpus=str(text)) == [{}]
    (outcomes,) = reproduce(["single-head", "post-norm"], corpus=str(text), quiet=True)
    assert list(outcomes) == ["single-head"] and [outcomes] == trained(corpus=str(text))
    found = outcomes["single-head"]
    assert (found.run, found.status, found.step) == ("single-head-small", "finished", 3)
    run = open_run("single-head-small")
    assert found == outcome(run)
    assert found.entropy_start == pytest.approx(float(run.trace["entropy"][0, 0, 0]))
    assert found.loss == pytest.approx(float(run.trace["val_loss"][-1]))
    created = run.meta["created"]
    reproduce(["single-head"], corpus=str(text), quiet=True)
    assert open_run("single-head-small").meta["created"] == created
    with pytest.raises(ValueError, match="was trained with other settings"):
        reproduce(["single-head"], quiet=True)
    with pytest.raises(ValueError, match="there is no specimen nope; there are: single-head-unscaled"):
        reproduce(["nope"])


def test_the_command_runs_exercises_and_prints_their_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "one-matmul", "post-norm", "--seeds", "0", "1"])
    told = capsys.readouterr().out
    assert (
        ended.value.code == 0 and told.count("| yes |") == 8 and "| 2,359,296 with 1, 2, 4, 8, 12 heads | yes |" in told
    )
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "--table"])
    told = capsys.readouterr().out
    assert ended.value.code == 0 and told.count("| yes |") == 12 and not list(tmp_path.iterdir())
