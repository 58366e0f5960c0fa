"""A paper's folder is read or refused in words, trained, and told."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracer
from tests.test_imports import imports
from tracer.cli.commands import main
from tracer.specimens.paper_folder import load, shipped
from tracer.specimens.paper_tables import as_markdown, as_text, facts
from tracer.specimens.paper_verdicts import SeedAnswer, answers_of, exit_status

ROOT = Path(__file__).parents[2]
SMALL = """
import tracer
config = tracer.TrainConfig(steps=2)
paper = tracer.Paper(
    "t", "s", {"a": tracer.PaperRun("for a", config)},
    (tracer.Claim("c", ("a",), lambda runs: 1.0, (0, 2)),),
)
"""


def paper_at(directory: Path, code: str = SMALL, page: str | None = "# Words\n") -> str:
    directory.mkdir(exist_ok=True)
    (directory / "paper.py").write_text(code)
    if page is not None:
        (directory / "page.md").write_text(page)
    return str(directory)


def test_a_folder_is_loaded_as_it_is_now_with_its_neighbours(tmp_path: Path) -> None:
    name = paper_at(tmp_path / "mine-1", "from .near import TITLE\n" + SMALL.replace('"t"', "TITLE"))
    (tmp_path / "mine-1" / "near.py").write_text("TITLE = 'one'\n")
    first = load(name)
    assert (first.name, first.paper.title, first.page) == ("mine-1", "one", "# Words\n")
    (tmp_path / "mine-1" / "near.py").write_text("TITLE = 'another'\n")
    (tmp_path / "mine-1" / "page.md").unlink()
    (tmp_path / "mine-1" / "paper.py").write_text(
        '"""More words."""\nfrom .near import TITLE\n' + SMALL.replace('"t"', "TITLE")
    )
    assert load(name).page == "More words."
    assert load(name).paper.title == "another" and load(name).digest != first.digest


@pytest.mark.parametrize(
    ("code", "page", "words"),
    [
        (SMALL, None, ["has no words: write page.md, or begin paper.py with a docstring"]),
        ("x = 1 / 0", "", ["paper.py cannot be loaded: ZeroDivisionError: division by zero"]),
        ("paper = 3", "", ["makes no paper: it needs paper = tracer.Paper(...)"]),
        (SMALL.replace("(0, 2)", "(3, 2)"), "", ["cannot be loaded: ValueError: claim 'c': (3, 2)"]),
    ],
)
def test_a_folder_that_is_none_is_refused_in_words(
    code: str, page: str | None, words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as error:
        load(paper_at(tmp_path / "bad_paper", code, page))
    assert all(word in str(error.value) for word in words)


def test_what_a_folder_may_not_be(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match="there is no paper 'nobody'; there are: bietti, edelman, grokking, kawata, logits, many-eyes, "
        "many-heads, olsson, one-head, one-matmul, post-norm, singh, sinks, or a folder, as ./nobody",
    ):
        load("nobody")
    with pytest.raises(ValueError, match="is no folder: a paper is a folder with a paper.py"):
        load(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no paper.py, in which a paper's runs and claims stand"):
        load(str(tmp_path / "empty"))
    with pytest.raises(ValueError, match="also the name of an installed package: rename"):
        load(paper_at(tmp_path / "numpy"))
    name = paper_at(tmp_path / "a_run", "raise SystemExit('code of a run ran')")
    (tmp_path / "a_run" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="is a run, and code is never taken from a run directory"):
        load(name)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["edelman", "two-blocks", "--quick"], "--quick is of one paper"),
        (["edelman", "--size", "published"], "--size and --corpus are of specimens"),
        (["--quick"], "--quick is of one paper"),
        (["./nowhere"], "is no folder"),
        (["nobody"], "there is no specimen nobody"),
    ],
)
def test_mistakes_end_in_words(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", *args])
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_nothing_is_tested_where_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "edelman", "--table", "--json", "--seeds", "0", "1"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == told["status"] == 3
    assert (told["paper"], told["seeds"]) == ("edelman", [0, 1])
    assert {one["verdict"] for one in told["claims"]} == {"not tested"}
    assert list(tmp_path.iterdir()) == []


def test_claims_are_asked_of_the_seeds_that_have_their_runs_and_told(tmp_path: Path) -> None:
    folder = load(paper_at(tmp_path / "told", SMALL.replace("lambda runs: 1.0", "lambda runs: runs['a'].figure")))
    found: dict[int, Any] = {
        seed: {"a": SimpleNamespace(figure=value, meta={"cost": {"seconds": 30.0}})}
        for seed, value in enumerate((0.5, 1.5))
    } | {2: {}}
    answers = answers_of(folder.paper, found)
    assert [(one.verdict, one.supporting, one.counted) for one in answers] == [("holds", 2, 2)]
    told = json.loads(json.dumps(facts(folder, found, answers)))
    assert told["claims"][0]["figures"] == {"0": 0.5, "1": 1.5} and told["runs"]["a"]["seconds"] == 60
    text, page = as_text(told), as_markdown(told, folder.page)
    assert "2 trainings, 1.0 minutes" in text and "Of 1 claim: 1 holds." in text
    assert all(len(line) <= 96 for line in text.splitlines()) and "our prediction, not published" in text
    assert page.startswith("# Words\n") and "| **holds** |" in page


RAISES = """
import json
import tracer

def deep(run):
    return json.loads(run.text)

def figure(runs):
    return deep(runs["a"])

def small(runs):
    return True

config = tracer.TrainConfig(steps=2)
paper = tracer.Paper(
    "t", "s", {"a": tracer.PaperRun("for a", config)},
    (
        tracer.Claim("raises", ("a",), figure, (0, 2)),
        tracer.Claim("stands", ("a",), lambda runs: 1.0, (0, 2)),
        tracer.Claim("controlled", ("a",), lambda runs: 1.0, (0, 2),
                     control=tracer.Control("k", lambda runs: runs["b"], (0, 2))),
        tracer.Claim("sized", ("a",), lambda runs: 1.0, (0, 2), too_small=small),
    ),
)
"""


def test_a_claim_whose_code_raises_is_an_error_and_the_others_stand(tmp_path: Path) -> None:
    folder = load(paper_at(tmp_path / "raising", RAISES))
    texts = ("x|\n", "1.5", "[]")
    found: dict[int, Any] = {
        seed: {"a": SimpleNamespace(text=text, meta={"cost": {"seconds": 30.0}})} for seed, text in enumerate(texts)
    }
    answers = answers_of(folder.paper, found)
    assert [one.verdict for one in answers] == ["error", "holds", "error", "error"] and exit_status(answers) == 3
    of = {one.claim.text: one for one in answers}
    assert of["raises"].seeds[1] == SeedAnswer(1.5) and math.isnan(of["raises"].seeds[0].figure)
    assert of["raises"].seeds[0].error == (
        "figure: deep() in paper.py, line 6, raised JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    )
    assert of["raises"].seeds[2].error == "figure: figure() in paper.py, line 8, gives [], which is no number"
    assert "(seed 0 of 3); figure:" in of["raises"].why
    assert of["controlled"].why == (
        "the paper's own code: control: a lambda in paper.py, line 21, raised KeyError: 'b' (seeds 0, 1, 2 of 3)"
    )
    assert "small() in paper.py, line 11, gives True: a sentence that says why" in of["sized"].why
    told = json.loads(json.dumps(facts(folder, found, answers), allow_nan=False))
    assert told["status"] == 3 and told["claims"][1]["errors"] == {} and set(told["claims"][0]["errors"]) == {"0", "2"}
    text, page = as_text(told), as_markdown(told, folder.page)
    assert "Of 4 claims: 1 holds, 3 error." in text and " ".join(text.split()).count("raised KeyError: 'b'") == 1
    assert page.count("| **error** |") == 3 and "| **holds** | stands" in page


CHART = """
import numpy as np
import tracer

def curves(runs):
    return runs["a"].curves

paper = tracer.Paper(
    "t", "s", {name: tracer.PaperRun("r", tracer.TrainConfig(steps=2)) for name in "ab"},
    (tracer.Claim("c", ("a",), lambda runs: 1.0, (0, 2)),),
    chart=tracer.PaperChart("It rises.", ("a",), curves, "loss, nats", levels={"guess": 2.0}, log="x"),
)
"""


def test_a_chart_is_kept_as_points_of_the_first_seed_that_has_its_runs(tmp_path: Path) -> None:
    folder = load(paper_at(tmp_path / "charted", CHART))
    steps = np.arange(1001)

    def told(**curves: Any) -> dict[str, Any]:
        runs = {"a": SimpleNamespace(curves=curves, meta={})}
        found: dict[int, Any] = {3: {"b": SimpleNamespace(meta={})}, 5: runs}
        return json.loads(json.dumps(facts(folder, found, []), allow_nan=False))["chart"]

    drawn = told(loss=(steps, np.where(steps == 1000, np.nan, 2.0 * steps)), empty=([0], [1.0]))
    assert (drawn["seed"], drawn["text"], drawn["y"], drawn["x"], drawn["log"]) == (
        5,
        "It rises.",
        "loss, nats",
        "step",
        "x",
    )
    x, y = drawn["curves"]["loss"]
    assert (x[0], x[-1], len(x)) == (1, 999, 80) and y == [2 * one for one in x]
    assert drawn["curves"]["empty"] == [[], []] and drawn["levels"] == {"guess": 2.0}
    wrong = told(loss=([1, 2], [1.0]))
    assert wrong["curves"] == {} and wrong["error"].startswith("chart: curves() in paper.py, line 5, gives {'loss': ")
    assert "(x, y) by name, two lists of one length, is asked for" in wrong["error"]
    others: dict[int, Any] = {3: {"b": SimpleNamespace(meta={})}}
    assert facts(folder, others, [])["chart"] is None
    others = {5: {"a": SimpleNamespace(curves=3, meta={})}}
    assert "chart: curves() in paper.py, line 5, gives 3" in " ".join(as_text(facts(folder, others, [])).split())


TINY = """
import signal
from pathlib import Path
import numpy as np
import tracer

class Rows:
    d_vocab = 9
    def __init__(self, n_ctx, seed): self.n = n_ctx + 1
    def rows(self, rng, n): return rng.integers(1, 9, (n, self.n))
    def held_out(self, n): return np.resize(np.arange(1, 9), (n, self.n))

def width(model, step):
    if step == 30 and Path("stop").exists(): signal.raise_signal(signal.SIGINT)
    return {"width": float(model.embed.W_E.shape[1])}

config = tracer.TrainConfig(
    steps=60, device="cpu", model=tracer.ModelConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=8),
    optim=tracer.OptimConfig(batch_size=2), record=tracer.RecordConfig(every=30, val_rows=2, repeat_rows=2, icl_rows=2),
)
paper = tracer.Paper(
    "t", "s", {"one run": tracer.PaperRun("r", config, {"corpus": Rows, "scalars": (width,)})},
    (tracer.Claim("c", ("one run",), lambda runs: float(runs["one run"].trace["width"][-1]), (8, 8)),),
)
"""


def test_what_is_finished_stays_and_what_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paper_at(tmp_path / "tiny", TINY)

    def reproduce(*args: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", "./tiny", *args])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    assert reproduce()[0] == 0
    Path("stop").touch()
    status, said = reproduce("--seeds", "0", "1")
    assert status == 130 and "stopped; `tracer reproduce ./tiny --seeds 0 1` goes on where it stopped" in said
    assert tracer.open_run("tiny-one-run-1").status == "stopped"
    with pytest.raises(SystemExit):
        main(["reproduce", "./tiny", "--seeds", "2", "--json", "--quick"])
    said = capsys.readouterr()
    assert said.out == "" and "`tracer reproduce ./tiny --seeds 2 --quick --json` goes on" in said.err
    Path("stop").unlink()
    status, said = reproduce("--seeds", "0", "1")
    assert status == 0 and "tiny-one-run-1: r; 60 steps, on from step 31" in said and "tiny-one-run:" not in said
    assert "2 of 2" in said and tracer.open_run("tiny-one-run-1").meta["cost"]["jobs"] == 2
    assert sorted(one.name for one in Path("checkpoints").iterdir()) == [
        "tiny-one-run",
        "tiny-one-run-1",
        "tiny-one-run-2",
    ]
    assert reproduce("--table", "--seeds", "0", "1", "--page", "told.md")[0] == 0
    Path("mine.md").write_text("my notes")
    for place, why in {"tiny/page.md": "overwritten", "mine.md": "overwritten", "no/told.md": "that is there",
                       "tiny": "that is there"}.items():  # fmt: skip
        status, refused = reproduce("--page", place)
        assert status == 2 and why in refused
    assert Path("mine.md").read_text() == "my notes"
    assert reproduce("--table", "--seeds", "0", "1", "--page", "told.md")[0] == 0, "its own page is written anew"
    heard: list[str] = []
    found = tracer.reproduce("./tiny", seeds=[0, 1], say=heard.append)
    assert Path("told.md").read_text() == found.page and found.page.startswith("# Words\n\nSeeds 0, 1;")
    assert "| **holds** | c (our prediction, not published) |" in found.page
    assert heard == [] and found.status == 0 and f"{found}\n" in said
    assert [one.verdict for one in found.claims] == ["holds"] and found.told["claims"][0]["figures"]["1"] == 8
    assert found.runs[1]["one run"].dir.name == "tiny-one-run-1"
    assert tracer.reproduce(tmp_path / "tiny", seeds=[3], train=False).claims[0].verdict == "not tested"
    for changed, words in {
        TINY.replace("steps=60", "steps=61"): "was trained with other settings",
        TINY.replace("def width", "def wide").replace("(width,)", "(wide,)"): "was trained with other code",
        TINY.replace("arange(1, 9)", "arange(2, 9)"): "was trained on other rows than tiny.paper:Rows gives now",
    }.items():
        paper_at(tmp_path / "tiny", changed)
        status, said = reproduce("--table")
        assert status == 2 and words in said


def test_the_page_of_papers_is_what_the_results_say() -> None:
    """Of the figures that are kept; PYTHONPATH=. scripts/papers writes it."""
    made: dict[str, Any] = {"__name__": "papers", "__file__": str(ROOT / "scripts" / "papers")}
    exec((ROOT / "scripts" / "papers").read_text(), made)
    assert (ROOT / "docs" / "papers.md").read_text() == made["page"]()


def test_papers_use_doors_alone() -> None:
    """What anybody can import: names of `tracer`, numpy, torch, four modules of Python and their own neighbours."""
    known = {f"tracer.{name}" for name in tracer.__all__} | {"tracer"}
    allowed = {"numpy", "torch", "dataclasses", "itertools", "math", "re"}
    files = [one for folder in shipped().values() for one in sorted(folder.glob("*.py"))]
    assert files
    for one in files:
        package = f"{one.parent.name}.{one.stem}"
        for name in imports(one.read_text(), package):
            if name.split(".")[0] not in allowed | {one.parent.name}:
                assert name in known, f"{one.relative_to(ROOT)} imports {name}"
