"""The command line as a person types it: what it prints, and with which exit status."""

import io
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracer.cli import commands
from tracer.store import open_run

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "train", "resume", "fork", "replay", "remedy", "rows", "sweep", "diagnose", "watch-run", "check", "open", "ls",
    "export", "demo", "view", "reproduce", "publish",
)  # fmt: skip


def tracer(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "tracer", *args], capture_output=True, text=True, cwd=cwd, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **env},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("trian",), ["Unrecognized options: trian", "train, resume", "ls, export, demo"]),
        (("train",), ["Expected one of", "demo", "four-blocks-rms"]),
        (("train", "--seed", "3", "demo"), ["ordering can matter", "tracer train demo --help"]),
        (("train", "demo", "--optim.lr", "nan"), ["error: --optim.lr=nan must be positive and finite"]),
        (("train", "nope"), ["Unrecognized options: nope", "induction-natural"]),
        (
            ("train", "demo", "--model.n-heads", "3"),
            ["--model.d-model=128 is not divisible by --model.n-heads=3", "2, 4"],
        ),
        (("train", "demo", "--model.init.embed", "-1"), ["error: --model.init.embed=-1.0 must not be negative"]),
        (("train", "demo", "--record.val-rows", "0"), ["error: --record.val-rows=0 must be at least 1"]),
        (("train", "demo", "--steps", "0"), ["error: --steps=0 must be at least 1"]),
        (("train", "demo", "--optim.name", "sdg"), ["sgd", "adamw", "muon"]),
        (("train", "demo", "--data.corpus", "nope"), ["unknown corpus 'nope'", "python-stdlib", "hf:NAME"]),
        (("train", "demo", "--device", "tpu"), ["auto", "cpu", "cuda"]),
        (("train", "demo", "--no-such-field", "3"), ["no-such-field"]),
        (("fork", "--step", "3"), ["Required options", "tracer fork --help"]),
        (("fork", "--step", "3", "mine"), ["name the parent first", "tracer fork mine --step 3"]),
        (("fork", "nowhere", "--step", "3"), ["checkpoints/nowhere does not exist", "tracer ls"]),
        (("replay", "nowhere", "5-9"), ["'5-9' is no stretch", "as 540:664"]),
        (("replay", "nowhere", "5:9"), ["checkpoints/nowhere does not exist", "tracer ls"]),
        (("rows", "nowhere", "5", "--head", "5"), ["'5' is no head: write it as L1H2"]),
        (("rows", "nowhere", "5-7"), ["'5-7' is neither a step nor a stretch: give 112, 540:664 or change"]),
        (("rows", "nowhere", "5", "--beside", "other"), ["--beside are asked of a stretch, as 540:664"]),
        (("rows", "nowhere", "5", "--head", "L0H0"), ["checkpoints/nowhere does not exist", "tracer ls"]),
        (("remedy", "nowhere"), ["checkpoints/nowhere does not exist", "tracer ls"]),
        (("resume", "nowhere"), ["checkpoints/nowhere does not exist", "tracer ls"]),
        (("export", "nowhere", "out"), ["checkpoints/nowhere does not exist", "tracer ls"]),
        (("export", "nowhere", "out", "--to", "elsewhere"), ["elsewhere", "huggingface"]),
        (("train", "--config", "nowhere.yaml"), ["nowhere.yaml", "No such file"]),
        (("train", "demo", "--set", "optim.lrr=1"), ["OptimConfig has no field lrr"]),
        (("train", "demo", "--track", "wandbb"), ["wandbb", "tensorboard"]),
        (("view", "nowhere"), ["checkpoints/nowhere is neither a run nor a folder of runs", "tracer ls"]),
    ],
)
def test_mistakes_end_in_words(args, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        commands.main(list(args))
    output = "".join(capfd.readouterr())
    assert ended.value.code == 2, output
    assert "Traceback" not in output
    for word in words:
        assert word in output


def test_a_process_ends_with_the_status_of_a_mistake(tmp_path):
    done = tracer("train", "demo", "--optim.lr", "nan", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "lr=nan must be positive and finite" in done.stderr


def test_help_lists_the_commands_and_the_options(tmp_path):
    overview = tracer("--help", cwd=tmp_path)
    assert overview.returncode == 0
    assert overview.stdout == tracer(cwd=tmp_path).stdout
    for command in COMMANDS:
        assert re.search(rf"• {command} +[A-Z]", overview.stdout), "a docstring says what it does"
    done = tracer("train", "demo", "--help", cwd=tmp_path)
    for option in ("--run", "--steps", "--seed", "--device", "--model.n-layers", "--optim.lr", "--record.every"):
        assert option in done.stdout


def test_nothing_to_write_to_and_no_room_to_write_in(tmp_path):
    """`tracer ls >&-`, and a terminal of one column, in which setting the help never ended."""
    closed = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'tracer', 'ls'])"
    done = subprocess.run([sys.executable, "-c", closed], stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    done = tracer("--help", cwd=tmp_path, COLUMNS="1")
    assert done.returncode == 0 and "diagnose" in done.stdout


def test_version(tmp_path):
    assert tracer("--version", cwd=tmp_path).stdout == f"manyeyes {version('manyeyes')}\n"


def test_train_ls_resume(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)

    def refused(*args):
        """In this process, which has torch already."""
        capfd.readouterr()  # what else was said before
        with pytest.raises(SystemExit) as ended:
            commands.main(list(args))
        assert ended.value.code == 2
        return capfd.readouterr().err

    small = ["--model.d-model", "16", "--optim.batch-size", "4", "--record.val-rows", "2", "--device", "cpu"]
    done = tracer("train", "induction", "--run", "mine", "--steps", "3", "--seed", "5", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished at step 3" in done.stdout and "recording took" in done.stdout
    assert "already holds a run" in refused("train", "induction", "--run", "mine", "--steps", "3", *small)
    longer = tracer("resume", "mine", "--steps", "5", cwd=tmp_path)
    assert longer.returncode == 0 and "finished at step 5" in longer.stdout
    assert "is finished at step 5" in refused("resume", "mine")
    exported = tracer("export", "mine", "out", "--step", "3", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout == "GPT2LMHeadModel written: AutoModelForCausalLM.from_pretrained('out') opens it\n"
    run, prompt = open_run(tmp_path / "checkpoints" / "mine"), "5 6 7 5 6"
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "out")
    tokens = tokenizer(prompt, return_tensors="pt")["input_ids"]
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "out")(tokens).logits
    difference = {step: (theirs - run.model(step)(tokens)).abs().max() for step in (3, 5)}
    assert difference[3] < 2e-5 < difference[5]
    assert refused("export", "mine", "out").startswith("error: out exists and is not an empty directory")
    assert "no snapshot of step 9; the nearest is 5" in refused("export", "mine", "new", "--step", "9")
    assert not (tmp_path / "new").exists()
    (tmp_path / "checkpoints" / "mine").rename(tmp_path / "checkpoints" / "mine-with-a-name-that-is-long")
    (tmp_path / "checkpoints" / "broken").mkdir()
    meta = json.loads((tmp_path / "checkpoints" / "mine-with-a-name-that-is-long" / "run.json").read_text())
    (tmp_path / "checkpoints" / "broken" / "run.json").write_text(json.dumps({**meta, "config": None}))
    (tmp_path / "checkpoints" / "newer").mkdir()
    (tmp_path / "checkpoints" / "newer" / "run.json").write_text('{"format": 99}')
    listing = tracer("ls", cwd=tmp_path, COLUMNS="60")
    assert listing.returncode == 0, listing.stderr
    for word in (
        "mine-with-a-name-that-is-long ",
        "induction",
        "finished",
        "5/5",
        "broken",
        "unreadable",
        "upgrade manyeyes",
    ):
        assert word in listing.stdout


def test_a_list_of_runs_loads_no_arrays(tmp_path):
    """They take longer to load than all the rest of `tracer ls`."""
    (tmp_path / "a").mkdir()
    meta = {"format": 2, "kind": "watched", "created": "2026-01-01", "n_params": 5, "status": "finished", "step": 3}
    (tmp_path / "a" / "run.json").write_text(json.dumps({**meta, "layers": []}))
    code = (
        "import sys\nfrom tracer.cli.commands import main\n"
        "try: main(['ls', '.', '--json'])\n"
        "finally: print(*sorted({'numpy', 'torch', 'xarray', 'zarr'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert [one["run"] for one in json.loads(done.stdout)["runs"]] == ["a"] and done.stderr == "\n"


def test_a_background_job_of_a_script_can_be_stopped(tmp_path):
    """A shell that is not interactive starts `tracer ... &` deaf to SIGINT, which is what Stop sends."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from tracer.cli.commands import main\n"
        "try: main(['ls', 'nowhere'])\n"
        "except SystemExit: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "True"


def test_an_error_without_words_is_told_in_some(monkeypatch, capsys):
    monkeypatch.setattr(commands, "_commands", Mock(side_effect=MemoryError))
    with pytest.raises(SystemExit) as ended:
        commands.main(["ls"])
    assert ended.value.code == 2 and capsys.readouterr().err == "error: not enough memory\n"


def test_the_shell_completes(tmp_path):
    assert tracer("--tyro-write-completion", "bash", "completion.sh", cwd=tmp_path).returncode == 0
    assert "induction-natural" in (tmp_path / "completion.sh").read_text()


def test_a_name_beyond_the_locale_is_listed(tmp_path, monkeypatch):
    """Where output is ASCII (LC_ALL=C), and of a folder whose name is no text."""
    for name in ("könig", os.fsdecode(b"\xff")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit, match="0"):
        commands.main(["ls", str(tmp_path)])
    out.seek(0)
    assert out.read().count("unreadable") == 2
