"""A user's rule: found beside ours, not measured where its numbers are not, refused in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracer
from tracer.cli.commands import main
from tracer.diagnosis import examine, report


@tracer.rule(needs=("entropy",), severity="bad", title="a head that is too sharp", remedy="wait", source="a test")
def too_sharp(trace: Any) -> Any:
    """Found when a head's entropy ends below 10 nats."""
    last = trace.entropy.isel(step=-1)
    for layer, head in np.argwhere(last.values < 10):
        yield int(last.step), [(layer, head)], f"{float(last[layer, head]):.1f} nats"


@tracer.rule(needs=("nowhere",))
def unseen(trace: Any) -> Any:
    yield 0, [], "found where nothing is measured"


@tracer.rule
def broken(trace: Any) -> Any:
    yield 0, [], trace.nowhere


def test_it_is_looked_for_beside_ours(short_toy: Path) -> None:
    run = tracer.open_run(short_toy)
    ours, found = examine(run), examine(run, [too_sharp, unseen])
    new = [one for one in found.findings if one.kind == "too_sharp"]
    assert [one for one in found.findings if one not in new] == ours.findings
    assert [one.heads for one in new] == [((a, b),) for a in range(2) for b in range(4)]
    assert {(one.severity, one.title, one.step, one.advice.remedy, one.source) for one in new} == {
        ("bad", "a head that is too sharp", 30, "wait", "a test")
    }
    entropy = float(run.trace.entropy[-1, 1, 3])
    assert new[-1].evidence == f"{entropy:.1f} nats"
    assert found.looked_for == [*ours.looked_for, "a head that is too sharp"] and "unseen" in found.not_measured
    assert "why: Found when a head's entropy ends below 10 nats." in report("r", found, why=True)
    assert tracer.diagnose(run, too_sharp) == found.findings


def test_it_is_named_on_the_command_line(short_toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(short_toy), "--rules", f"{__name__}:too_sharp"])
    assert ended.value.code == 5 and "bad: a head that is too sharp, since step 30, L1H3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("math:pi", "rules=math:pi: make it with tracer.rule"),
        ([too_sharp, too_sharp], "two are called too_sharp"), (["math:nothing"], "math has no nothing"),
        (5, "rules=5: make each with tracer.rule, or name it as module:name"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(rules: Any, why: str, short_toy: Path) -> None:
    with pytest.raises(ValueError, match=why):
        tracer.diagnose(tracer.open_run(short_toy), rules)


@tracer.rule(needs="induction")
def one_need(trace: Any) -> Any:
    yield int(trace.step[-1]), [], "there"


def gives_none(trace: Any) -> Any:
    return None


def gives(*found: Any) -> Any:
    """A rule that yields these."""

    def given(trace: Any) -> Any:
        yield from found

    return tracer.rule(given)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (broken, "rules=.*:broken raised AttributeError"),
        (gives((7, [], "x")), "gave step 7, which the trace does not hold: the last recorded is 30"),
        (gives((31, [], "x")), "gave step 31"), (gives((float("nan"), [], "x")), "gave step nan"),
        (gives((30, [], "x"), (30.5, [], "x")), "gave step 30.5"),
        (gives((30, [(9, 9)], "x")), "gave head L9H9, which the run has not: it has 2 layers of 4 heads"),
        (gives((30, [(0, -1)], "x")), "gave head L0H-1"), (gives((30, (0, 1), "x")), r"gave heads=\(0, 1\); write"),
        (gives(30), "gave something else than"), (tracer.rule(gives_none), "something else than"),
    ],
)  # fmt: skip
def test_one_that_goes_wrong_is_said_and_the_rest_is_diagnosed(rule: Any, why: str, short_toy: Path) -> None:
    run = tracer.open_run(short_toy)
    with pytest.warns(RuntimeWarning, match=why) as said:
        found = examine(run, [rule, too_sharp])
    assert len(said) == 1 and found.findings == examine(run, too_sharp).findings
    assert len(found.wrong) == 1 and "Went wrong: rules=" in report("r", found)
    assert found.looked_for == examine(run, too_sharp).looked_for


def test_one_name_that_it_needs_is_one_name(short_toy: Path) -> None:
    assert one_need.row.needs == ("induction",)
    kinds: list[str] = [one.kind for one in tracer.diagnose(tracer.open_run(short_toy), one_need)]
    assert kinds.count("one_need") == 1
    with pytest.raises(ValueError, match="needs=5 is no name"):
        tracer.rule(needs=(5,))(gives_nothing)
    unread = tracer.rule(needs="prompt")(gives_nothing)  # of text: no number, and no error
    assert "gives nothing" in examine(tracer.open_run(short_toy), unread).not_measured


def gives_nothing(trace: Any) -> Any:
    return ()


ROW = {"step": 30, "kind": "born", "severity": "bad", "title": "a \x1b[31mtitle", "heads": [[1, 3]], "evidence": "0.5",
       "source": "mine:born"}  # fmt: skip


def test_what_was_found_as_it_trained_is_told_without_the_code(
    short_toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(short_toy, tmp_path / "run")
    wrong: list[Any] = [
        {"kind": "a b"}, {"kind": "dead"}, {"kind": "c", "severity": "worse"}, {"kind": "d", "step": 7},
        {"kind": "e", "heads": [[9, 9]]}, {"kind": "f", "heads": [0]}, {"kind": "g", "heads": None}, {"kind": ["h"]},
        {"kind": "i", "step": 10**30},
    ]  # fmt: skip
    rows = [ROW, *(ROW | one for one in wrong), ROW | {"kind": "too_sharp", "evidence": "x" * 10**6, "source": 5}]
    (tmp_path / "run" / "findings.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"kind": "torn')
    run, ours = tracer.open_run(tmp_path / "run"), tracer.diagnose(tracer.open_run(short_toy))
    first, second = (one for one in tracer.diagnose(run) if one not in ours)
    assert (first.kind, first.severity, first.step, first.heads, first.evidence) == (
        "born",
        "bad",
        30,
        ((1, 3),),
        "0.5",
    )
    assert first.title == "a \ufffd[31mtitle" and first.source == "mine:born, as told while the run trained"
    assert second.kind == "too_sharp" and len(second.evidence) == 1000 and "somebody" in second.source
    now = examine(run, too_sharp).findings
    assert [one for one in now if one.kind == "too_sharp"] == [
        one for one in tracer.diagnose(tracer.open_run(short_toy), too_sharp) if one.kind == "too_sharp"
    ]
    assert first in now and first not in examine(run, before=False).findings
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(run.dir), "--why"])
    assert ended.value.code == 5 and "as told while the run trained" in capsys.readouterr().out


def test_a_name_of_ours_and_a_word_for_nothing_are_refused() -> None:
    def dead(trace: Any) -> Any: ...

    def mine(trace: Any) -> Any: ...

    with pytest.raises(ValueError, match="rule dead: the name is taken"):
        tracer.rule(dead)
    with pytest.raises(ValueError, match="severity='worse' is neither 'bad' nor 'watch'"):
        tracer.rule(mine, severity="worse")  # pyrefly: ignore[bad-argument-type]
