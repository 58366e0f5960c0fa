"""Every block of the guides runs as it stands, from the first to the last of a page: Python, and lines for a shell."""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import torch

from tests import own_gpt
from tests.documents import SMALL, blocks, command, commands, small_demo
from tracer.analysis.run_sweep import sweep_run
from tracer.store import Run

pytestmark = pytest.mark.slow

GUIDES = ("docs/index.md", "docs/student.md", "docs/researcher.md", "docs/practitioner.md", "docs/recording.md",
          "docs/own.md", "checkpoints/README.md")  # fmt: skip
FILE = re.compile(r"# ([\w/]+\.py)\n")
"""Begins a block that a reader saves in a file of that name."""
LATER = "# not run "
"""Begins a block that cannot run here, and says why."""
OPTIONS = {
    "train": ["--steps", "8", *SMALL], "fork": ["--steps", "110"], "demo": ["--steps", "750"],
    "sweep": ["--steps", "100"], "resume": ["--steps", "30"],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(
    made_once: Callable[[str, Callable[[Path], object]], Path], trained_toy: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """The runs that the guides speak of: a narrow demo, the toy whose heads have formed, a training of the reader's."""
    demo, kept = small_demo(made_once) / "checkpoints/demo-0", tmp_path_factory.mktemp("guides")
    for source, names in ((demo, ("demo-0", "demo", "my-run")), (trained_toy, ("toy-0", "toy-1"))):
        for name in names:
            shutil.copytree(source, kept / name)
    sweep_run(Run(kept / "demo"), ["zero"], [250])
    return kept


@pytest.fixture
def here(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of them, which a page may change."""
    shutil.copytree(runs, tmp_path / "checkpoints")
    shutil.copy(own_gpt.__file__, tmp_path / "my_gpt.py")  # the reader's own model
    monkeypatch.syspath_prepend(str(tmp_path))
    with chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize("page", GUIDES)
def test_a_page_runs_from_top_to_bottom(page: str, here: Path) -> None:
    names: dict[str, object] = {"torch": torch}
    found = [(kind, code) for kind, code in blocks(page) if kind == "python" or commands(code)]
    assert found
    if any('run="my-run"' in code and not code.startswith(LATER) for _, code in found):
        shutil.rmtree(here / "checkpoints/my-run")  # the page makes its own
    for nth, (kind, code) in enumerate(found):
        if kind == "python":
            if saved := FILE.match(code):
                Path(saved[1]).parent.mkdir(exist_ok=True)
                Path(saved[1]).write_text(code)
            compiled = compile(code, f"{page}, block {nth}", "exec")
            if not code.startswith(LATER):
                exec(compiled, names)
        else:
            for line in commands(code):
                args = shlex.split(line, comments=True)[1:]
                if "--seeds" in args and "--run" in args:
                    args[args.index("--run") + 1] = "short"  # toy-0 has been trained to its end already
                command([*args, *OPTIONS.get(args[0], [])])


def test_what_does_not_run_says_why() -> None:
    left = [code.splitlines()[0] for page in GUIDES for kind, code in blocks(page) if code.startswith(LATER)]
    assert len(left) == 2 and all(": needs " in line for line in left)
