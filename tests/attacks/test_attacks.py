"""A seeded slice of every attack; `make attack` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks import attacks
from tests.attacks.forks import Forks
from tests.attacks.table import Tally, table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as server:
        yield server


@pytest.fixture(scope="module")
def honest(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacks.honest_run(forks, tmp_path_factory.mktemp("honest"))


@pytest.mark.parametrize("name", [name for name, (_, quick, _) in attacks.ATTACKS.items() if quick])
def test_nothing_is_lost_wrong_or_loud(name: str, forks: Forks, honest: Path, tmp_path: Path) -> None:
    if why := attacks.why_not(name):
        pytest.skip(why)
    tally = attacks.run(name, forks, tmp_path, honest, "quick", seed=0)
    assert tally.cases and tally.failures == []


def test_a_failure_is_told() -> None:
    tally = Tally("a test")
    tally.case("one", seconds=1.25)
    tally.case("two", "broke", megabytes=7)
    assert tally.failures == ["two: broke"]
    assert table([tally]).splitlines()[-1] == "| a test | 2 | 1 | 1.2 s, 7 MB |"


def test_an_attack_that_succeeds_is_seen(forks: Forks, tmp_path: Path) -> None:
    """A case that raises, one that hangs and one that dies are failures, each with its reason."""
    raised = forks.call("tests.attacks.forks:nothing_of_that_name")
    assert raised.status == 99 and "AttributeError" in raised.output
    assert forks.call("time:sleep", 60, timeout=0.2).late
    assert forks.call("os:abort").status == -6
    assert forks.call("os:getcwd", cwd=tmp_path).clean
