"""Tutorials are papers: systems have presets in both sizes; claims and figures are those of runs, real or by hand."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benchmarks.drift import Drift, drift_said, ways
from tracer import presets
from tracer.cli.commands import main
from tracer.presets import PRESETS
from tracer.specimens.paper_results import results
from tracer.specimens.paper_tables import facts
from tracer.specimens.paper_verdicts import ClaimAnswer, answers_of
from tracer.specimens.reproduction import Reproduction, reproduce
from tracer.specimens.system_figures import Outcome, figures, outcome, published_size
from tracer.specimens.tutorials import CLAIMS, SPECIMENS, TRAINED, TUTORIAL, TUTORIALS, named
from tracer.store import open_run

ROOT = Path(__file__).parents[2]
NAN = math.nan
EYES = SPECIMENS["many-eyes"]
NOISE = 0.06
AS_PUBLISHED = {
    "single-head-unscaled": (0.003, 0.003, 6.4), "single-head-scaled": (1.492, 0.089, 6.0),
    "single-head-residual": (1.492, 1.16, math.log(68.28)), "single-head": (1.492, 1.177, math.log(67.68)),
    "multi-head-full": (1.5, 0.68, math.log(66.48)), "multi-head": (1.5, 0.7, math.log(65.11)),
    "two-blocks": (1.5, 0.5, math.log(55.74)), "four-blocks": (0.97, 0.97, NAN),
    "four-blocks-rms": (2.2, 1.5, math.log(48.66)),
}  # fmt: skip
"""Entropy at the start and at the end, and held-out loss."""


def made(start: float, end: float, loss: float, patterns: Any = None) -> Any:
    """A run of one head, or as many as are given, that ended after 100 steps, or diverged where its loss is nan."""
    of_heads, n = ("step", "layer", "head"), 1 if patterns is None else patterns.shape[3]
    trace = xr.Dataset({
        "entropy": (of_heads, [[[start] * n], [[end] * n]]), "current_token": (of_heads, [[[0.5] * n], [[0.1] * n]]),
        "val_loss": ("step", [9.0, loss]),
    })  # fmt: skip
    if patterns is not None:
        trace["pattern"] = (("step", "prompt", "layer", "head", "query_pos", "key_pos"), patterns)
    status = "diverged" if math.isnan(loss) else "finished"
    return SimpleNamespace(name="run", status=status, trace=trace, meta={"step": 100, "n_params": 1000})


FOUND = {name: made(*values) for name, values in AS_PUBLISHED.items()}


def judged(*seeds: dict[str, Any]) -> dict[str, ClaimAnswer]:
    """The claims that some seed has the runs of, by their texts."""
    found = [one for of in TUTORIALS.values() for one in answers_of(of.paper, dict(enumerate(seeds)))]
    return {one.claim.text: one for one in found if one.seeds}


def test_every_system_has_a_preset_and_what_is_trained_has_it_in_both_sizes() -> None:
    assert set(SPECIMENS) <= set(PRESETS)
    assert {name: run.preset for name, run in TRAINED.items()} == {name: f"{name}-small" for name in TRAINED}
    assert all(run.config == PRESETS[run.preset].config for run in TRAINED.values())
    first, second, *others = TUTORIALS.values()
    assert [*first.paper.runs, *second.paper.runs] == list(presets.SERIES_A)
    assert list(TUTORIAL.values()) == sorted(TUTORIAL.values(), key=list(TUTORIALS).index)
    assert set(SPECIMENS) - set(TRAINED) == {"one-matmul", "post-norm"}
    assert [one.name for one in SPECIMENS.values() if one.exercise] == [folder.name for folder in others]


def test_what_was_published_contradicts_no_claim() -> None:
    verdicts = {text: one.verdict for text, one in judged(FOUND).items()}
    assert list(verdicts) == [claim.text for claim in CLAIMS] and not any(claim.ours for claim in CLAIMS)
    gains = [math.log(67.68 / ppl) for ppl in (66.48, 65.11)]
    assert 0 < gains[0] < gains[1] < NOISE  # on its large batches a seed means less than on ours
    close = [text for text, verdict in verdicts.items() if verdict != "holds"]
    assert close == ["multi-head-full is better than single-head", "multi-head is better than single-head"]
    assert {verdicts[text] for text in close} == {"too close to tell"}


@pytest.mark.parametrize(
    ("name", "outcome", "broken"),
    [
        ("single-head-unscaled", (1.2, 0.01, 4), "unscaled attention is one-hot from the start (entropy below 0.05)"),
        ("single-head-scaled", (1.5, 0.6, 4), "scaled but without a residual, entropy falls to under a third"),
        ("single-head-residual", (1.5, 0.9, 4), "with it, entropy stays above two thirds of the start"),
        ("four-blocks", (1.0, 1.0, 5.0), "four-blocks diverges"),
        ("two-blocks", (1.0, 1.0, 4.5), "two-blocks is better than multi-head"),
        ("four-blocks-rms", (1.0, 1.0, NAN), "four-blocks-rms is better than single-head"),
    ],
)  # fmt: skip
def test_a_claim_can_fail(name: str, outcome: tuple[float, float, float], broken: str) -> None:
    failing = [one.claim for one in judged({**FOUND, name: made(*outcome)}).values() if one.verdict == "fails"]
    assert broken in [claim.text for claim in failing] and all(name in claim.needs for claim in failing)
    again = judged({**FOUND, name: made(*outcome)}, FOUND)[broken]
    assert again.verdict == "fails" or again.claim.noise is not None  # an entropy must hold in every seed


@pytest.mark.parametrize(
    ("gaps", "no_worse", "better"),
    [
        ([-0.9 * NOISE], "holds", "too close to tell"),
        ([1.1 * NOISE], "fails", "fails"),
        ([1.1 * NOISE, -1.1 * NOISE], "holds", "too close to tell"),
        ([NAN], "fails", "fails"),
    ],
)
def test_losses_differ_when_seeds_alone_would_not(gaps: list[float], no_worse: str, better: str) -> None:
    def seeds(name: str, other: str) -> list[dict[str, Any]]:
        return [{name: made(1, 1, 3 + gap), other: made(1, 1, 3.0)} for gap in gaps]

    found = judged(*seeds("multi-head", "multi-head-full"))
    assert {text: one.verdict for text, one in found.items()} == {
        "multi-head is no worse than multi-head-full": no_worse
    }
    found = judged(*seeds("two-blocks", "multi-head"))
    assert {text: one.verdict for text, one in found.items()} == {"two-blocks is better than multi-head": better}


def test_nothing_is_better_than_a_run_that_diverged() -> None:
    lost = {"two-blocks": made(1, 1, 3.0), "multi-head": made(1, 1, NAN)}
    (found,) = judged(lost).values()
    assert (found.verdict, found.why) == ("not tested", "multi-head diverged at step 100: nothing to compare with")
    (found,) = judged(lost, {**lost, "multi-head": made(1, 1, 4.0)}).values()
    assert found.verdict == "holds" and found.why.endswith("; not counted: multi-head diverged at step 100")


def test_figures_are_set_beside_what_was_published() -> None:
    residual = [outcome(made(1.2, 1.0, math.log(20))), outcome(made(1.3, 1.1, math.log(30)))]
    assert figures(SPECIMENS["single-head-residual"], residual, 6_500_608) == [
        ("entropy at the start", "–", "1.250 (1.200 to 1.300)"),
        ("entropy at the end, step 100", "1.160", "1.050 (1.000 to 1.100)"),
        ("held-out perplexity", "68.28", "25.00 (20.00 to 30.00)"),
        ("held-out loss", "–", "3.198 (2.996 to 3.401)"),
        ("attention on the token itself", "–", "0.10 (0.10 to 0.10)"),
        ("parameters, at the published size", "6,500,608", "6,500,608"),
    ]
    system = SPECIMENS["four-blocks"]
    assert ("how it ends", system.published, "diverged at step 100") in figures(
        system, [outcome(FOUND["four-blocks"])], 1
    )


def test_the_sizes_are_the_published_ones() -> None:
    published = {name: one.n_params for name, one in SPECIMENS.items() if one.n_params}
    assert {name: published_size(TRAINED[name]) for name in published} == published
    assert published == {"single-head-residual": 6_500_608, "four-blocks-rms": 23_096_320}


SAME, OTHER = [[1, 0], [1, 0]], [[1, 0], [0.25, 0.75]]
UNSEEN = np.full((2, 2), NAN)


@pytest.mark.parametrize(
    ("heads", "apart"),
    [
        ([[[SAME, SAME]]], "0%"),
        ([[[SAME, OTHER]]], "75%"),
        ([[[SAME, OTHER, OTHER]]], "50%"),  # 0.75, 0.75 and 0
        ([[[SAME, OTHER]], [[UNSEEN, UNSEEN]]], "75%"),  # a prompt that is shorter
    ],
)
def test_heads_are_apart_by_the_attention_that_they_give_to_different_keys(heads: Any, apart: str) -> None:
    first, last = np.array(heads), np.zeros_like(np.array(heads))
    run = made(3, 2, 3.0, np.stack([first, last]))
    assert EYES.answers is not None
    (check,) = EYES.answers([{"many-eyes": run}])
    assert check.asks == "do the heads differ?" and check.answer == (
        f"two heads of a block give {apart} of their attention to different keys before the first step, 0% after the "
        "last"
    )


@pytest.mark.parametrize(
    ("bare", "told"),
    [
        (3 - 1.1 * 0.088, "better without"),
        (3 - 0.9 * 0.088, "too close to tell"),
        (3 + 1.1 * 0.088, "better with;"),
    ],
)
def test_trained_runs_answer_the_questions(bare: float, told: str) -> None:
    answers = EYES.answers
    assert answers is not None
    given = made(3, 2, 3.0, np.array([[[[SAME, OTHER]]]] * 2))
    both = answers([{"many-eyes": given, "many-eyes-bare": made(3, 2, bare)}])
    assert [check.asks for check in both] == ["100 steps with W_O and without", "do the heads differ?"]
    assert both[0].answer.startswith(f"held-out loss 3.000 with, {bare:.3f} without: ") and told in both[0].answer
    assert answers([{"many-eyes": given}]) == both[1:]
    lost = answers([{"many-eyes": given, "many-eyes-bare": made(3, 2, NAN)}])[0]
    assert lost.answer == "many-eyes-bare diverged at step 100: no two losses to compare"
    assert answers([{}]) == []
    several = answers([{"many-eyes": given, "many-eyes-bare": made(3, 2, bare)}] * 4)[0]
    assert "without over 4 seeds: better" in several.answer and several.answer.endswith("seeds alone make 0.044")


def test_what_is_told_holds_every_claim_figure_and_check() -> None:
    folder = TUTORIALS["one-head"]
    seeds: Any = {0: {name: FOUND[name] for name in folder.paper.runs}}
    for run in seeds[0].values():
        run.meta["cost"] = {"seconds": 60.0}
    found = Reproduction(folder, seeds, answers_of(folder.paper, seeds))
    assert "3 trainings, 3.0 minutes" in str(found) and "Of 3 claims: 3 hold." in str(found)
    assert "single-head-unscaled, held-out loss: 6.400; published near 6.4 in training" in str(found)
    assert all(len(line) <= 96 for line in str(found).splitlines())
    assert "| `single-head-residual` | held-out perplexity | 68.28 | 68.28 |" in found.page
    folder = TUTORIALS["post-norm"]
    found = Reproduction(folder, {0: {}}, [])
    assert found.page.startswith("# Multi-head attention and residuals\n") and found.page.count("| yes |") == 3
    assert "nothing is learned: \\|mean\\|" not in str(found) and found.status == 0 and "training" not in str(found)


@pytest.fixture(scope="module")
def kept() -> dict[str, dict[str, Any]]:
    """What the folders keep of the runs that docs/specimens.md tells of, by tutorial."""
    return {one.name: one.told for one in results() if one.name in TUTORIALS}


def test_the_document_is_made_from_the_figures_that_were_kept(kept: dict[str, dict[str, Any]]) -> None:
    document = (ROOT / "docs" / "specimens.md").read_text()
    script: dict[str, Any] = {"__name__": "papers", "__file__": str(ROOT / "scripts" / "papers")}
    exec((ROOT / "scripts" / "papers").read_text(), script)
    assert document == script["specimens"](document) and list(TUTORIALS) == [name for name in TUTORIALS if name in kept]
    drift = json.loads((ROOT / "docs" / "specimens.json").read_text())["drift"]
    assert drift_said([Drift(**one | {"outcome": Outcome(**one["outcome"])}) for one in drift]) in document
    outcomes = {name: of["outcomes"] for told in kept.values() for name, of in told["systems"].items()}
    assert {name for name, of in outcomes.items() if of} == set(TRAINED)
    assert "docs/specimens.md" in (ROOT / "README.md").read_text()


def test_drift_is_measured_with_the_kernels_that_this_cpu_has() -> None:
    assert ways("avx2") == [("default", 1), ("avx2", 1), ("avx2", 2)]
    assert [ways(widest)[-1] for widest in ("avx512", "default", "sve256")] == [("avx512", 2), *[("default", 2)] * 2]


def test_the_figures_that_were_kept_are_those_of_this_version(kept: dict[str, dict[str, Any]]) -> None:
    """Of all that follows from the code: texts of claims, what they expect, checks."""
    for name, told in kept.items():
        folder = TUTORIALS[name]
        now = json.loads(json.dumps(facts(folder, {0: {}}, answers_of(folder.paper, {0: {}}))))
        for old, new in zip(told["claims"], now["claims"], strict=True):
            assert {key: old[key] for key in ("claim", "needs", "within", "published", "place", "unit")} == {
                key: new[key] for key in ("claim", "needs", "within", "published", "place", "unit")
            }
        asked = {system: [(one["asks"], one["holds"]) for one in of["checks"] if one["holds"] is not None]
                 for system, of in told["systems"].items()}  # fmt: skip
        assert asked == {
            system: [(one["asks"], one["holds"]) for one in of["checks"]] for system, of in now["systems"].items()
        }


def test_drift_is_the_range_of_what_came_out() -> None:
    ends = [(3.3, 1.0, 0.5), (3.302, 1.004, 0.5), (3.301, 1.001, 0.41)]
    found = [
        Drift(kernels, 1, "single-head", Outcome("x", "finished", 2000, 1.2, entropy, ((entropy,),), loss, 9, own))
        for kernels, (loss, entropy, own) in zip(("default", "avx2", "avx2"), ends, strict=True)
    ]
    said = drift_said(found).replace("\n", " ")
    assert "trained 3 times for 2,000 steps with the kernels of 2 kinds of CPU" in said
    assert (
        "held-out losses 0.0020 nats apart, entropies 0.0040 nats apart and attention on the token itself 0.0900"
        in said
    )


def test_the_text_of_the_document_says_what_the_figures_say(kept: dict[str, dict[str, Any]]) -> None:
    prose = (ROOT / "docs" / "specimens.md").read_text().replace("\n", " ")
    of = {name: list(one["outcomes"].values()) for told in kept.values() for name, one in told["systems"].items()}
    systems = ("single-head", "multi-head-full", "multi-head", "two-blocks")
    losses = {name: np.array([one["loss"] for one in of[name]], float) for name in of if name != "four-blocks"}
    spread = np.mean([np.var(losses[name], ddof=1) for name in systems]) ** 0.5
    rank = losses["multi-head"] - losses["multi-head-full"]
    first = [one["entropies"][0] for one in of["two-blocks"]]
    sharp = [min(one["entropies"][0]) for one in of["multi-head-full"]]
    without = np.mean(losses["many-eyes"] - losses["many-eyes-bare"])
    assert pytest.approx(2 * math.sqrt(2) * spread, rel=0.1) == NOISE
    assert {claim.noise for claim in CLAIMS} == {None, NOISE}
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


def test_names_are_of_papers_and_of_their_systems() -> None:
    assert [folder.name for folder in named()] == list(TUTORIALS)
    whole, part, other = named(["many-eyes", "two-blocks", "multi-head", "edelman"])
    assert list(whole.paper.runs) == ["many-eyes", "many-eyes-bare"] and other.name == "edelman"
    assert list(part.paper.runs) == ["multi-head", "two-blocks"] and len(part.paper.systems) == 2
    assert [claim.text for claim in part.paper.claims] == ["two-blocks is better than multi-head"]
    (large,) = named(["single-head"], "published", "text.txt")
    run = large.paper.runs["single-head"]
    assert run.preset == "single-head" and run.config.data.corpus == "text.txt" and run.config.model.d_model == 256
    with pytest.raises(ValueError, match="there is no specimen nope; there are: single-head-unscaled"):
        named(["nope"])


def test_trains_what_is_missing_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text"
    text.mkdir()
    for i in range(20):
        (text / f"{i}.txt").write_text(f"def f{i}(self, x):\n    return self.x + {i}\n" * 40)
    whole = PRESETS["single-head-small"]
    config = replace(whole.config, steps=3, device="cpu", optim=replace(whole.config.optim, batch_size=8))
    monkeypatch.setitem(PRESETS, "single-head-small", replace(whole, config=config))

    def reproduced(corpus: str | None = str(text), train: bool = True) -> dict[str, Any]:
        (folder,) = named(["single-head"], corpus=corpus)
        return dict(reproduce(folder, train=train, say=None).told["systems"]["single-head"]["outcomes"])

    monkeypatch.setitem(TRAINED, "single-head", replace(TRAINED["single-head"], config=config))
    assert reproduced(train=False) == {}
    found = reproduced()["0"]
    assert reproduced(train=False)["0"] == found
    assert (found["run"], found["status"], found["step"]) == ("single-head-small", "finished", 3)
    run = open_run("single-head-small")
    assert run.meta["preset"] == "single-head-small"
    assert found["entropy_start"] == pytest.approx(float(run.trace["entropy"][0, 0, 0]), rel=1e-5)
    assert found["loss"] == pytest.approx(float(run.trace["val_loss"][-1]), rel=1e-5)
    created = run.meta["created"]
    reproduced()
    assert open_run("single-head-small").meta["created"] == created
    with pytest.raises(ValueError, match="was trained with other settings"):
        reproduced(corpus=None)
    killed = run.dir / "run.json"  # before its first state: nothing to go on from
    killed.write_text(json.dumps(json.loads(killed.read_text()) | {"status": "stopped"}))
    shutil.rmtree(run.dir / "resume", ignore_errors=True)
    assert open_run("single-head-small").status == "stopped" and reproduced(train=False) == {}
    assert reproduced()["0"] == found


def test_the_command_runs_exercises_and_prints_what_came_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "one-matmul", "post-norm", "--seeds", "0", "1"])
    told = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0 and told.count("; yes") == 8
    assert "2,359,296 with 1, 2, 4, 8, 12 heads; yes" in told
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "--table"])
    told = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0 and told.count("; yes") == 12 and not list(tmp_path.iterdir())
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "post-norm", "--table", "--json"])
    alone = json.loads(capsys.readouterr().out)
    assert alone["paper"] == "post-norm" and len(alone["systems"]["post-norm"]["checks"]) == 3
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "post-norm", "single-head", "--table", "--json"])
    papers = json.loads(capsys.readouterr().out)["papers"]
    assert [one["paper"] for one in papers] == ["post-norm", "many-heads"] and papers[0] == alone
    assert list(papers[1]["runs"]) == ["single-head"] and papers[1]["claims"] == []
