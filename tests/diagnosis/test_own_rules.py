"""A user's rule: found beside ours, not measured where its numbers are not, refused in words."""

from __future__ import annotations

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
        ([broken], "rules=.*:broken raised AttributeError"), ("math:pi", "rules=math:pi: make it with tracer.rule"),
        ([too_sharp, too_sharp], "two are called too_sharp"), (["math:nothing"], "math has no nothing"),
        (5, "rules=5: make each with tracer.rule, or name it as module:name"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(rules: Any, why: str, short_toy: Path) -> None:
    with pytest.raises(ValueError, match=why):
        tracer.diagnose(tracer.open_run(short_toy), rules)


def test_a_name_of_ours_and_a_word_for_nothing_are_refused() -> None:
    def dead(trace: Any) -> Any: ...

    def mine(trace: Any) -> Any: ...

    with pytest.raises(ValueError, match="rule dead: the name is taken"):
        tracer.rule(dead)
    with pytest.raises(ValueError, match="severity='worse' is neither 'bad' nor 'watch'"):
        tracer.rule(mine, severity="worse")  # type: ignore[arg-type]
