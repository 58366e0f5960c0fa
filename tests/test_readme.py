"""Every line of README runs as it is written: on small models, in a folder of its own, from one process."""

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
from tracer.cli.commands import main

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.M | re.S)
COMMANDS = [line for kind, block in BLOCKS if not kind for line in block.splitlines() if line.startswith("tracer ")]
OPENED = [line for kind, block in BLOCKS if not kind for line in block.splitlines() if line.startswith("manyeyes")]
PYTHON = [block for kind, block in BLOCKS if kind == "python"]
SMALL = ["--device", "cpu", "--model.d-model", "32", "--optim.batch-size", "4", "--record.val-rows", "4",
         "--record.repeat-rows", "8", "--record.log-every", "1000"]  # fmt: skip
HUB = "hf:", "EleutherAI/"


def command(args: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code in (None, 0)


@pytest.fixture(scope="module")
def folder(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
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


@pytest.fixture(scope="module")
def here(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    own = tmp_path_factory.mktemp("readme")
    shutil.copytree(folder, own, dirs_exist_ok=True)
    with chdir(own):
        yield own


def test_the_lines_are_found() -> None:
    assert len(COMMANDS) >= 11 and len(PYTHON) >= 5 and len(OPENED) >= 3


@pytest.mark.parametrize("line", [line for line in COMMANDS if not any(name in line for name in HUB)])
def test_commands(here: Path, line: str) -> None:
    """In the order of README: what one line writes, another one reads."""
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
    assert re.match(rf"manyeyes: http://\S+:{free_port}/", said) and ("token=" in said) == ("--host" in line)


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
    exec(compile(code, f"README, block {nth}", "exec"), names)
