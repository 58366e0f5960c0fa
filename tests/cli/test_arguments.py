"""Options that are given several times are given together; nothing is lost without a word."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tracer.cli.arguments import SEVERAL, SEVERAL_OF, together
from tracer.cli.publish_command import publish
from tracer.cli.remedy_command import remedy
from tracer.cli.rows_command import rows
from tracer.cli.run_commands import diagnose, export, open, reproduce, sweep
from tracer.cli.training_commands import fork_command, replay, resume, train_command
from tracer.cli.view_command import view_command
from tracer.cli.watch_run import watch_run
from tracer.config import TrainConfig


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("train x --clamp a --tags p q --clamp b", "train x --clamp a b --tags p q"),
        ("train x --clamp=a --run r --clamp b c", "train x --clamp a b c --run r"),
        ("sweep run --steps 1 --json --steps 2 3", "sweep run --steps 1 2 3 --json"),
        ("view --build a:b --build c:d", "view --build a:b c:d"),
        ("train x --steps 5 --steps 6", "train x --steps 5 --steps 6"),
        ("train x --set a=1 --set b=2", "train x --set a=1 --set b=2"),
        ("train x --clamp a b", "train x --clamp a b"),
        ("train x --lr=1 --x", "train x --lr=1 --x"),
        ("", ""),
    ],
)
def test_of_an_option_that_is_repeated_all_is_kept(given: str, read: str) -> None:
    assert together(given.split()) == read.split()


def test_every_option_that_takes_several_words_is_known() -> None:
    commands: dict[str, Any] = {
        "train": train_command(None, TrainConfig(), from_file=True), "resume": resume, "fork": fork_command(None),
        "replay": replay, "remedy": remedy, "rows": rows, "view": view_command([]), "sweep": sweep,
        "diagnose": diagnose, "open": open, "reproduce": reproduce, "watch-run": watch_run, "export": export,
        "publish": publish,
    }  # fmt: skip
    for command, function in commands.items():
        taken = {
            f"--{name.replace('_', '-')}" for name, one in inspect.signature(function).parameters.items()
            if "tuple[" in str(one.annotation) and "Positional" not in str(one.annotation)
        }  # fmt: skip
        assert taken <= SEVERAL | SEVERAL_OF.get(command, set()), command
