"""README is short, and every line of it and of the pages that go on from it runs as it is written.

On small models, in a folder of its own, from one process.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import tracer
from tests.documents import ROOT, SMALL, blocks, command, commands, small_demo

PAGES = ("README.md", "docs/dashboard.md", "docs/training.md", "docs/python.md")
BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMANDS = [line for kind, block in BLOCKS if not kind for line in commands(block)]
OPENED = [line for kind, block in BLOCKS if not kind for line in block.splitlines() if line.startswith("manyeyes")]
PYTHON = [block for kind, block in BLOCKS if kind == "python"]
HUB = "hf:", "EleutherAI/"


@pytest.fixture(scope="module")
def folder(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    return small_demo(made_once)


@pytest.fixture(scope="module")
def here(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    own = tmp_path_factory.mktemp("readme")
    shutil.copytree(folder, own, dirs_exist_ok=True)
    with chdir(own):
        yield own


def test_the_lines_are_found() -> None:
    assert len(COMMANDS) >= 16 and len(PYTHON) >= 6 and len(OPENED) >= 4


def test_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 900
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"", text)
    paths = [ROOT / (link or source) for link, source in linked]
    assert len(paths) >= 20 and [path for path in paths if not path.is_file()] == []
    assert all(path.stat().st_size < 1_000_000 for path in paths if path.suffix == ".webp")


@pytest.mark.parametrize("line", [line for line in COMMANDS if not any(name in line for name in HUB)])
def test_commands(here: Path, line: str) -> None:
    """In the order of the pages: what one line writes, another one reads."""
    args = shlex.split(re.sub(r"--steps \d+", "", line), comments=True)[1:]
    options = {"train": ["--steps", "8", *SMALL], "fork": ["--steps", "760"], "resume": ["--steps", "10"]}
    args += options.get(args[0], [])  # without its own, resume says rightly that this short training is finished
    command(args)


@pytest.mark.parametrize("line", OPENED)
def test_the_dashboard_opens(here: Path, line: str, free_port: int) -> None:
    args = shlex.split(re.sub(r"--port \d+", "", line), comments=True)[1:]
    code = "from tracer.cli.commands import manyeyes; manyeyes()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *args, "--port", str(free_port)], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        said = started.stdout.readline()
        started.terminate()
    assert re.match(rf"manyeyes: http://\S+:{free_port}/", said), said
    assert ("asks for the token in /" in said) == ("--host" in line) and "token=" not in said  # this is no terminal


@pytest.mark.parametrize("nth", range(len(PYTHON)))
def test_python(here: Path, nth: int, trained_toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names that a reader has by then: a run and its model, or a model, its data and its loss."""
    run = tracer.open_run("checkpoints/demo-0")
    names: dict[str, object] = {"tracer": tracer, "run": run, "model": run.model(750)}
    if "build_up" in PYTHON[nth]:  # the short training has learned to copy nothing that could be built up
        run = tracer.open_run(trained_toy)
        names |= {"run": run, "model": run.model()}
    if "watch" in PYTHON[nth]:
        config = GPT2Config(n_layer=4, n_head=6, n_embd=24, n_positions=64, vocab_size=64)
        model, ids = GPT2LMHeadModel(config), torch.randint(64, (2, 16))
        names |= {"model": model, "ids": ids, "tokenizer": None, "loader": [ids] * 3}
        names["loss"] = model(ids, labels=ids).loss
    open_hub = tracer.load_hf
    monkeypatch.setattr(tracer, "load_hf", lambda name: open_hub(here / "path/to/model" if name == "gpt2" else name))
    code = PYTHON[nth].replace(
        "    ...  # forward, backward", "    loss = model(batch, labels=batch).loss; loss.backward()  #"
    )
    exec(compile(code, f"block {nth} of {PAGES}", "exec"), names)
