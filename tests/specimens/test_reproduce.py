"""Specimens have presets in both sizes; outcomes are read from real runs; claims are judged by hand-made outcomes."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracer import presets
from tracer.cli.commands import main
from tracer.presets import PRESETS
from tracer.specimens.claims import CLAIMS, NOISE, NOISE_AT_100, Outcome, answers, heads_apart, judged, outcome
from tracer.specimens.exercises import EXERCISES
from tracer.specimens.reproduce import named, reproduce, trained
from tracer.specimens.systems import SPECIMENS, TRAINED, TUTORIALS, Check
from tracer.specimens.tables import Drift, as_json, drift_said, figures, tables
from tracer.store import open_run

DOCS = Path(__file__).parents[2] / "docs"

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
    return Outcome("run", status, 100, start, end, ((end,),), loss, 1000, 0.1)


FOUND = {name: made(*values) for name, values in AS_PUBLISHED.items()}


def test_every_specimen_has_a_preset_and_what_is_trained_has_it_in_both_sizes() -> None:
    assert set(SPECIMENS) <= set(PRESETS)
    for name, specimen in TRAINED.items():
        assert {specimen.preset("small"), specimen.preset("published")} == {name, f"{name}-small"} <= set(PRESETS)
    assert [name for name, one in SPECIMENS.items() if one.tutorial < 2] == list(presets.SERIES_A)
    assert [one.tutorial for one in SPECIMENS.values()] == sorted(one.tutorial for one in SPECIMENS.values())
    assert {one.tutorial for one in SPECIMENS.values()} == set(range(len(TUTORIALS)))


def test_what_was_published_contradicts_no_claim() -> None:
    verdicts = {one.claim.text: one.holds for one in judged([FOUND])}
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
    failing = [one.claim for one in judged([{**FOUND, name: made(*outcome)}]) if one.holds is False]
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

    (verdict,) = judged(seeds("multi-head", "multi-head-full"))
    assert (verdict.claim.text, verdict.holds) == ("multi-head is no worse than multi-head-full", no_worse)
    assert f"seeds alone make {NOISE / math.sqrt(len(gaps)):.3f}" in verdict.evidence
    (verdict,) = judged(seeds("two-blocks", "multi-head"))
    assert (verdict.claim.text, verdict.holds) == ("two-blocks is better than multi-head", better)


ONE_LEFT = (
    "held-out loss 3.000 and 4.000, 1.000 lower; seeds alone make 0.060; not counted: multi-head diverged at step 100"
)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([(3.0, math.nan)], (None, False, "multi-head diverged at step 100: no loss to compare with")),
        ([(math.nan, math.nan)], (None, False, "multi-head diverged at step 100: no loss to compare with")),
        ([(math.nan, 3.0)], (False, True, "two-blocks diverged at step 100")),
        ([(3.0, math.nan), (3.0, 4.0)], (True, True, ONE_LEFT)),
        ([(math.nan, 3.0), (3.0, 4.0)], (False, True, "two-blocks diverged at step 100")),
    ],
)  # fmt: skip
def test_a_run_that_diverged_is_worse_and_nothing_is_better_than_it(
    losses: list[tuple[float, float]], expected: tuple[bool | None, bool, str]
) -> None:
    seeds = [{"two-blocks": made(1, 1, one), "multi-head": made(1, 1, other)} for one, other in losses]
    (verdict,) = judged(seeds)
    assert (verdict.holds, verdict.tested, verdict.evidence) == expected
    word = {True: "yes", False: "**no**", None: "not tested"}[expected[0]]
    assert f"| two-blocks is better than multi-head | {word} | {expected[2]} |" in tables(seeds, {})


def test_only_claims_whose_runs_are_there_are_judged() -> None:
    (verdict,) = judged([{"four-blocks": FOUND["four-blocks"]}, {}])
    assert verdict.claim.needs == ("four-blocks",)


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
    lost = answers("many-eyes", [{"many-eyes": given, "many-eyes-bare": made(3, 2, math.nan)}])[0]
    assert lost.answer == "many-eyes-bare diverged at step 100: no two losses to compare"
    assert answers("many-eyes", [{}]) == answers("one-matmul", [{"many-eyes": given}]) == []


def test_figures_are_set_beside_what_was_published() -> None:
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
    from tracer.specimens.tables import _size

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


@pytest.fixture(scope="module")
def kept() -> tuple[list[dict[str, Outcome]], dict[str, list[Check]]]:
    """The figures of the runs that docs/specimens.md tells of."""
    found = json.loads((DOCS / "specimens.json").read_text())
    seeds = [{name: as_it_was(one) for name, one in outcomes.items()} for outcomes in found["seeds"]]
    return seeds, {name: [Check(**check) for check in checks] for name, checks in found["exercises"].items()}


def as_it_was(one: dict[str, Any]) -> Outcome:
    loss = math.nan if one["loss"] is None else one["loss"]
    start, end = (math.nan if share is None else share for share in one["apart"])
    return Outcome(**one | {"loss": loss, "apart": (start, end)})


def test_the_document_is_made_from_the_figures_that_were_kept(kept: tuple[Any, Any]) -> None:
    document, text = ((DOCS / name).read_text() for name in ("specimens.md", "specimens.json"))
    assert document[document.index(f"## {TUTORIALS[0]}\n") :] == tables(*kept)
    drift = [Drift(**one | {"outcome": as_it_was(one["outcome"])}) for one in json.loads(text)["drift"]]
    assert text == as_json(*kept, drift) + "\n"  # nothing in it is of another version
    assert drift_said(drift) in document
    assert set(TRAINED) == set(kept[0][0])
    assert "docs/specimens.md" in (DOCS.parent / "README.md").read_text()


def test_drift_is_the_range_of_what_came_out() -> None:
    ends = [(3.3, 1.0, 0.5), (3.302, 1.004, 0.5), (3.301, 1.001, 0.41)]
    found = [
        Drift(
            kernels, 1, "single-head", Outcome("x", "finished", 2000, 1.2, entropy, ((entropy,),), loss, 9, own, (0, 0))
        )
        for kernels, (loss, entropy, own) in zip(("default", "avx2", "avx2"), ends, strict=True)
    ]
    said = drift_said(found).replace("\n", " ")
    assert "trained 3 times for 2,000 steps with the kernels of 2 kinds of CPU" in said
    assert (
        "held-out losses 0.0020 nats apart, entropies 0.0040 nats apart and attention on the token itself 0.0900"
        in said
    )


def test_the_exercises_of_the_document_are_those_that_run(kept: tuple[Any, Any]) -> None:
    now = {name: exercise().checks for name, exercise in EXERCISES.items()}
    told = {name: [(check.asks, check.holds) for check in checks] for name, checks in kept[1].items()}
    assert told == {name: [(check.asks, check.holds) for check in checks] for name, checks in now.items()}


def test_the_text_of_the_document_says_what_the_figures_say(kept: tuple[Any, Any]) -> None:
    prose, seeds = (DOCS / "specimens.md").read_text().partition("# The tables")[0].replace("\n", " "), kept[0]
    systems = ("single-head", "multi-head-full", "multi-head", "two-blocks")
    spread = np.mean([np.var([found[name].loss for found in seeds], ddof=1) for name in systems]) ** 0.5
    rank = [found["multi-head"].loss - found["multi-head-full"].loss for found in seeds]
    first = [found["two-blocks"].entropies[0] for found in seeds]
    sharp = [min(found["multi-head-full"].entropies[0]) for found in seeds]
    without = np.mean([found["many-eyes"].loss - found["many-eyes-bare"].loss for found in seeds])
    assert pytest.approx(2 * math.sqrt(2) * spread, rel=0.1) == NOISE
    assert [sum(entropy < 0.1 for entropy in heads) for heads in first] == [2, 1, 2]
    for said in (
        f"by {rank[0]:.3f}, {rank[1]:.3f} and {rank[2]:.3f} nats at the end, {np.mean(rank):.3f} on average",
        f"a standard deviation of {spread:.3f} (three seeds each",
        "here two, one and two of its four heads are below 0.1 in the three seeds",
        "the highest is at {:.2f}, {:.2f} and {:.2f}".format(*map(max, first)),
        "nearly one-hot in each of three seeds ({:.2f}, {:.2f}, {:.2f};".format(*sharp),
        f"the model without W_O is ahead by {without:.2f} nats (three seeds)",
    ):
        assert said in prose


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
    killed = run.dir / "run.json"  # before its first state: nothing to go on from
    killed.write_text(json.dumps(json.loads(killed.read_text()) | {"status": "stopped"}))
    shutil.rmtree(run.dir / "resume", ignore_errors=True)
    assert open_run("single-head-small").status == "stopped" and trained(["single-head"], corpus=str(text)) == [{}]
    assert reproduce(["single-head"], corpus=str(text), quiet=True) == [outcomes]
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
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "post-norm", "--table", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "seeds": [{}],
        "exercises": {"post-norm": [vars(check) for check in EXERCISES["post-norm"]().checks]},
    }
