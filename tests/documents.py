"""Blocks of code in a page of text, and the small things they are run on."""

import re
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from tracer.cli.commands import main

ROOT = Path(__file__).parents[1]
SMALL = ["--device", "cpu", "--model.d-model", "32", "--optim.batch-size", "4", "--record.val-rows", "4",
         "--record.repeat-rows", "8", "--record.log-every", "1000"]  # fmt: skip
SICK = 5
"""The status of `tracer diagnose` when something went wrong."""


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of each block of a page below the repository, in order; no language: what a shell is given."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


def commands(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.startswith("tracer ")]


def command(args: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code in (None, 0) or (args[0] == "diagnose" and ended.value.code == SICK)


def small_demo(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A short and narrow `tracer train demo`, a text to train on, and its model as Hugging Face has it."""

    def make(here: Path) -> None:
        text = here / "path/to/text/one.txt"
        text.parent.mkdir(parents=True)
        text.write_text("the cat sat on the mat and the dog sat on the cat. " * 2000)
        with chdir(here):
            command(["train", "demo", *SMALL, "--run", "demo-0", "--steps", "750", "--data.corpus", "path/to/text",
                     "--data.vocab-size", "280", "--optim.name", "adamw", "--record.every", "250",
                     "--record.snapshot-every", "250"])  # fmt: skip
            command(["export", "demo-0", "path/to/model"])

    return made_once("readme", make)
