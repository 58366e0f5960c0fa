"""Options that are given several times are given together; nothing is lost without a word."""

from __future__ import annotations

import pytest

from tracer.cli.arguments import together
from tracer.cli.commands import main


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("train x --clamp a --tags p q --clamp b", "train x --clamp a b --tags p q"),
        ("train x --clamp=a --run r --clamp b c", "train x --clamp a b c --run r"),
        ("sweep --json run --json", "sweep --json run"),
        ("train x --set a=1 --set b=2", "train x --set a=1 --set b=2"),
        ("train x --clamp a b", "train x --clamp a b"),
        ("train x --lr=1 --x", "train x --lr=1 --x"),
        ("", ""),
    ],
)
def test_of_an_option_that_is_repeated_all_is_kept(given: str, read: str) -> None:
    assert together(given.split()) == read.split()


def test_two_values_of_an_option_that_takes_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "demo", "--steps", "5", "--run", "never", "--steps", "6"])
    assert ended.value.code == 2 and "6" in capsys.readouterr().err
