"""Cards of specimens, folded and open: what a folded one says and costs, which are open, and what is taken along."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import loading, state
from dashboard.shared.export import data as taking
from dashboard.shared.export import snippets
from dashboard.shared.mount import DRAWN
from dashboard.state import Selection
from dashboard.views.specimens import data as reading
from dashboard.views.specimens.claims import claimed
from dashboard.views.specimens.fold import line
from tests.dashboard.test_specimens import OPEN, TRAINED, change, elsewhere, made, nothing, the_setting  # noqa: F401
from tests.dashboard.words import labels, sparks, written
from tracer.specimens.paper import Claim
from tracer.specimens.paper_results import results
from tracer.specimens.paper_verdicts import ClaimAnswer, PaperVerdict
from tracer.specimens.system_figures import Outcome, outcome
from tracer.specimens.tutorials import SPECIMENS
from tracer.store import Run, open_run
from tracer.store.layout import Lock

Open = Callable[..., AppTest]


def lines(app: AppTest) -> dict[str, str]:
    """What each folded or opened card's line says; of pages without one, nothing."""
    keys = {f"card_{name}": name for name in SPECIMENS}
    return {keys[one.key]: one.label for one in app.expander if one.key in keys}


def parts(app: AppTest) -> dict[str, Any]:
    return {e.proto.id.rpartition("-")[2]: e.proto for e in app.get("bidi_component")}


def came_to(run: Run, **other: Any) -> Outcome:
    facts: dict[str, Any] = {"status": "finished", "step": 9, "entropy_start": 1.5, "entropy_end": 0.25, "loss": 3.0}
    return replace(outcome(run), **facts | other)


def test_a_folded_card_says_what_came_out_and_sends_nothing_else(open_page: Open, elsewhere: Path) -> None:  # noqa: F811
    app = open_page("specimens")
    claims = {one.claim.needs: claimed(one) for one in reading.readings(the_setting(elsewhere))}
    said = lines(app)
    assert said["single-head-scaled"] == claims["single-head-scaled",]
    assert said["multi-head"].startswith(
        ":gray-badge[○ not tested] &nbsp;“Four heads of a quarter each” is no worse than “"
    )
    assert said["one-matmul"].startswith(":green-badge[✓ 5 of 5 checks] &nbsp;Five claims")
    assert set(said) == {*TRAINED, "many-eyes", "many-eyes-bare", "one-matmul", "post-norm"}
    drawn = {key for key, (part, _) in app.session_state[DRAWN].items() if part not in ("cue", "landing", "taker")}
    assert drawn == {f"chart_{one.name}" for one in results() if "chart" in one.told}
    assert not {"What went wrong", "What its author asks"} & set(written(app).split("**"))


def test_the_small_line_is_the_mean_entropy(open_page: Open, elsewhere: Path) -> None:  # noqa: F811
    app = open_page("specimens")
    wanted = []
    for name in TRAINED:
        first, *_, last = open_run(f"my-{name}").trace["entropy"].values
        wanted.append(f"entropy, from {first.mean():.3f} to {last.mean():.3f}")
    assert [said for said in sparks(app) if said in wanted] == wanted


def test_a_link_opens_a_card_and_no_other(open_page: Open, elsewhere: Path) -> None:  # noqa: F811
    app = open_page("specimens", cards=("multi-head",))
    text = written(app)
    assert text.count("What its attention does at the end") == 1
    assert "multi_head entropy" in parts(app)
    assert labels(app).count("Heads") == labels(app).count("Training") == len(TRAINED)
    app.button(key="all_cards").click().run()  # one is open: this folds
    assert app.session_state["selection"].cards == () and "What its attention does" not in written(app)
    app.button(key="all_cards").click().run()
    assert app.session_state["selection"].cards == tuple(name for name in SPECIMENS if name in lines(app))
    assert written(app).count("What its attention does at the end") == 5  # the two of characters are shipped


@pytest.mark.parametrize(
    ("cards", "text"),
    [((), None), (("two-blocks",), "two-blocks"), (("single-head", "post-norm"), "single-head post-norm")],
)
def test_open_cards_and_their_link(cards: tuple[str, ...], text: str | None) -> None:
    query = {} if text is None else {"cards": text}
    assert state.to_query(Selection(cards=cards)) == query
    assert state.from_query(query) == Selection(cards=cards)


def test_a_damaged_link_opens_nothing_that_is_not_there(open_page: Open, elsewhere: Path) -> None:  # noqa: F811
    found = state.from_query({"cards": "  <b>  multi-head multi-head "})
    assert found.cards == ("<b>", "multi-head")
    app = open_page("specimens", cards=found.cards)
    assert "<b>" not in written(app) and written(app).count("What its attention does at the end") == 1


@pytest.mark.parametrize("status", ["stopped", "training"])
def test_what_is_not_done_is_not_folded(open_page: Open, elsewhere: Path, status: str) -> None:  # noqa: F811
    change("my-multi-head", status=status)  # without a lock: interrupted
    app = open_page("specimens")
    assert "multi-head" not in lines(app) and "What its attention does at the end" in written(app)


def test_a_card_that_was_watched_stays_open_when_its_run_ends(open_page: Open, elsewhere: Path) -> None:  # noqa: F811
    change("my-multi-head", status="training")
    lock = Lock(Path("checkpoints/my-multi-head"))
    try:
        app = open_page("specimens", cards=("single-head-scaled",))
        assert "multi-head" not in lines(app)
    finally:
        lock.release()
    change("my-multi-head", status="finished")
    app.run()
    assert app.session_state["selection"].cards == ("single-head-scaled", "multi-head")
    assert "multi-head" in lines(app) and "multi_head entropy" in parts(app)


def judged(text: str, needs: tuple[str, str], verdict: PaperVerdict, why: str = "x") -> ClaimAnswer:
    return ClaimAnswer(Claim(text, needs, lambda _: 0.0, (0, 1)), verdict, why, {}, 0, 0)


VERDICTS = {
    "fails": judged("a is better than b", ("two-blocks", "single-head"), "fails"),
    "close": judged("a is no worse than c", ("two-blocks", "multi-head"), "too close to tell"),
    "holds": judged("a is better than d", ("two-blocks", "multi-head"), "holds"),
    "other": judged("a is better than e", ("two-blocks", "single-head"), "holds"),
    "waits": judged("a is better than f", ("two-blocks", "multi-head"), "not tested", "waits for f"),
    "not its own": judged("g is better than a", ("four-blocks-rms", "two-blocks"), "fails"),
}


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (["holds", "other", "close", "fails"], "fails"),
        (["holds", "other", "close"], "close"),
        (["other", "holds"], "holds"),  # the one over the specimen before it
        (["waits", "other"], "other"),
        (["waits", "not its own"], "waits"),
    ],
)
def test_of_several_claims_the_worst_is_told(small_run: Run, known: list[str], told: str) -> None:
    readings = [VERDICTS[name] for name in known]
    said = line(SPECIMENS["two-blocks"], small_run, readings, {"two-blocks": came_to(small_run)})
    assert said == claimed(VERDICTS[told])


@pytest.mark.parametrize(
    ("name", "found", "told"),
    [
        ("single-head", {}, "Part of 1 claim: held-out loss 3.000, entropy 1.500 at the start, 0.250 at the end."),
        ("single-head", {"status": "diverged", "loss": float("nan")},
         "Part of 1 claim: diverged at step 9, entropy 1.500 at the start, 0.250 at the end."),
        ("many-eyes-bare", {}, "Held-out loss 3.000, entropy 1.500 at the start, 0.250 at the end."),
    ],
)  # fmt: skip
def test_where_nothing_is_claimed_its_figures_are_told(
    small_run: Run, name: str, found: dict[str, Any], told: str
) -> None:
    readings = [VERDICTS["other"]] if name == "single-head" else []
    said = line(SPECIMENS[name], small_run, readings, {name: came_to(small_run, **found)})
    assert said == told


def test_the_lines_of_python_judge_the_same_claims(elsewhere: Path) -> None:  # noqa: F811
    runs = the_setting(elsewhere)
    code = snippets.series(runs, "tracer reproduce")
    *before, last = code.splitlines()
    assert before[0] == "# trained by: tracer reproduce"
    scope: dict[str, Any] = {}
    exec("\n".join(before), scope)
    tested = [(one.claim.text, one.verdict, one.why) for one in reading.readings(runs) if one.seeds]
    found = eval(last, scope)
    assert [(text, verdict, why) for text, verdict, _, why in found] == tested and len(tested) == 2


def test_without_a_run_the_exercises_are_run() -> None:
    *before, last = snippets.series({}, "tracer reproduce").splitlines()
    scope: dict[str, Any] = {}
    exec("\n".join(before), scope)
    assert list(eval(last, scope)) == [name for name, one in SPECIMENS.items() if one.exercise]


@pytest.mark.parametrize(
    ("names", "changes", "command"),
    [
        ([], {}, "tracer reproduce"),
        (["two-blocks", "post-norm"], {}, "tracer reproduce two-blocks post-norm"),
        (["multi-head"], {"preset": "multi-head"}, "tracer reproduce multi-head --size published"),
        (["multi-head"], {"seed": 2}, "tracer reproduce multi-head --seeds 2"),
    ],
)
def test_the_command_that_trains_them(
    elsewhere: Path, names: list[str], changes: dict[str, Any], command: str  # noqa: F811
) -> None:  # fmt: skip
    seed = changes.pop("seed", 0)
    config = json.loads(Path("checkpoints/my-multi-head/run.json").read_text())["config"]
    change("my-multi-head", config={**config, "seed": seed}, **changes)
    assert snippets.reproduce(names, {"multi-head": loading.run("my-multi-head")}) == command


def test_of_two_seeds_there_is_no_one_command(elsewhere: Path) -> None:  # noqa: F811
    config = json.loads(Path("checkpoints/my-multi-head/run.json").read_text())["config"]
    change("my-multi-head", config={**config, "seed": 1})
    runs = {name: loading.run(f"my-{name}") for name in TRAINED}
    assert snippets.reproduce([], runs) == ""


def test_the_page_is_taken_with_its_link_and_its_lines(open_page: Open, elsewhere: Path) -> None:  # noqa: F811
    app = open_page("specimens", cards=("multi-head",))
    code = [one.value for one in app.code if "--seeds" not in one.value]  # those of papers
    assert code[0].endswith("?cards=multi-head") and "runs = {'multi-head': 'my-multi-head'}" in code[1]
    assert len(code) == 2  # trained in a setting of its own, which no command makes
    given = app.session_state[DRAWN]
    blocks = [{"kind": "part", "key": key, "at": None} for key in ("multi_head-entropy",)]
    text = taking.story("Papers", "a line", blocks, given, setting=None, code=code[1], link="http://a/b?c")
    assert "<title>Papers</title>" in text and 'href="http://a/b?c"' in text and "runs = {" in text
    assert text.count('"part":"curves"') == 1


def test_of_nothing_trained_the_page_can_be_taken_too(open_page: Open, nothing: Path) -> None:  # noqa: F811
    app = open_page("specimens")
    assert app.code[1].value == "tracer reproduce" and "one.exercise()" in app.code[2].value
