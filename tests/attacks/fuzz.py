"""Command lines and calls that nobody would write: each ends in words, not in a traceback, and soon."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.attacks.forks import Forks
from tests.attacks.table import Tally

HERE = "tests.attacks.fuzz"
STATUSES = (0, 2, 3, 4, 5, 6, 130)
WORDS = [
    "", "-", "--", "x" * 300, "\udcff", "\u202e", "a/b", "/", "/dev/null", "/etc", "..", "0", "-1", "1e400", "nan",
    "1000000007", "9" * 400, "None", "True", "[]", "{}", "L0H1 off", "runs", "run", "broken", "text", "'", "\n",
]  # fmt: skip
SMALL = ["--steps", "2", "--device", "cpu", "--optim.batch-size", "2", "--model.d-model", "16"]
OPTIONS = [
    "--run", "--seed", "--steps", "--clamp", "--device", "--model.n-layers", "--model.n-heads", "--model.d-model",
    "--model.d-head", "--model.n-ctx", "--model.d-vocab", "--model.mlp-hidden", "--model.norm", "--model.positions",
    "--model.dropout", "--data.corpus", "--data.vocab-size", "--data.mix-share", "--data.val-share",
    "--data.period-min", "--optim.lr", "--optim.name", "--optim.clip", "--optim.batch-size", "--optim.accumulate",
    "--record.every", "--record.pattern-ctx", "--record.icl-rows", "--record.snapshot-mb", "--overwrite",
]  # fmt: skip
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "train": (["train", "induction", *SMALL], OPTIONS), "resume": (["resume"], ["--steps"]),
    "fork": (["fork", "run", "--step", "3", *SMALL], ["--step", *OPTIONS]),
    "sweep": (["sweep"], ["--modes", "--steps", "--draws", "--frozen"]), "diagnose": (["diagnose"], ["--why"]),
    "check": (["check"], []), "open": (["open"], ["--run", "--revisions", "--bos"]), "ls": (["ls"], []),
    "export": (["export"], ["--step", "--to"]),
    "reproduce": (["reproduce", "--table"], ["--size", "--seeds", "--corpus"]),
    "": ([], ["--version", "--help", "--nothing"]),
}  # fmt: skip


def command(*args: str) -> int:
    from tracer.cli.commands import main

    main(list(args))
    return 0


def lines(n: int, seed: int) -> list[list[str]]:
    """Command lines, each with a few odd words and options."""
    draw, made = random.Random(seed), []
    for i in range(n):
        start, options = COMMANDS[sorted(COMMANDS)[i % len(COMMANDS)]]
        line = list(start)
        for _ in range(draw.randrange(4)):
            if options and draw.random() < 0.6:
                line += [draw.choice(options), *([draw.choice(WORDS)] if draw.random() < 0.9 else [])]
            else:
                line.insert(draw.randrange(len(line) + 1), draw.choice(WORDS))
        made.append([word.replace("\0", "") for word in line])
    return made


def commands(forks: Forks, folder: Path, run: Path, n: int, seed: int = 0) -> Tally:
    tally = Tally("command line")
    for line in lines(n, seed):
        shutil.rmtree(folder, ignore_errors=True)
        place = folder / "checkpoints"
        shutil.copytree(run, place / "run")
        (place / "broken").mkdir()
        (place / "broken" / "run.json").write_text('{"format": 1')
        (folder / "text").write_text("one two three. " * 400)
        out = forks.call(f"{HERE}:command", *line, cwd=folder, timeout=120)
        problems = []
        if out.late or out.status not in STATUSES or "Traceback" in out.output:
            problems.append(f"status {out.status}, late {out.late}: {out.output[-1200:]}")
        tally.case(repr(line)[:300], *problems, seconds=out.seconds)
    return tally


VALUES: list[Any] = [
    None, True, -1, 0, 3, 10**400, 1.5, float("nan"), "", "x", "\udcff", b"x", [], [1], {}, {"a": 1}, (), (1, 2),
    object(), int, len, Path("/nowhere"), Path("/etc/passwd"), {1, 2}, range(3), "\0",
]  # fmt: skip


def calls(run: str, first: int, n: int, seed: int) -> int:
    """Call public functions with one wrong argument each; what is neither refused in words nor done is printed."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    import tracer
    from tracer import ablate, probes

    opened = tracer.open_run(run)
    model: Any = opened.model()
    tokens = torch.randint(65, (2, 12), generator=torch.Generator().manual_seed(0))
    good: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "open_run": (tracer.open_run, {"name": run}), "list_runs": (tracer.list_runs, {"root": str(Path(run).parent)}),
        "Run.model": (opened.model, {"step": 3, "clamps": True}), "load_hf": (tracer.load_hf, {"model": run}),
        "preset": (tracer.preset, {"name": "induction"}), "diagnose": (tracer.diagnose, {"run": opened}),
        "repeated": (probes.repeated, {"d_vocab": 65, "n_ctx": 40}),
        "sweep": (ablate.sweep, {"model": model, "tokens": tokens, "mode": "zero"}),
        "effect": (ablate.effect, {"model": model, "tokens": tokens, "heads": [(0, 1)]}),
        "resume": (tracer.resume, {"name": run, "steps": 3}), "watch": (tracer.watch, {"model": model}),
        "ModelConfig": (tracer.ModelConfig, {"n_layers": 2, "n_heads": 4, "d_model": 16, "norm": "rms"}),
        "OptimConfig": (tracer.OptimConfig, {"lr": 0.1, "name": "sgd", "batch_size": 4, "clip": 1.0}),
        "DataConfig": (tracer.DataConfig, {"corpus": "markov", "mix_share": 0.0, "period_min": 8}),
        "RecordConfig": (tracer.RecordConfig, {"every": 5, "snapshot_mb": 10.0}),
        "TrainConfig": (tracer.TrainConfig, {"run": "x", "steps": 4, "seed": 0, "device": "cpu", "clamp": ()}),
        "clamp.edits": (tracer.clamp.edits, {"config": opened.config, "step": 0}),
        "sweep_run": (tracer.sweep_run, {"run": opened, "modes": ("zero",), "steps": ()}),
        "to_tokens": (model.to_tokens, {"text": "3 4 5"}), "forward": (model, {"tokens": tokens}),
    }  # fmt: skip
    failed = 0
    for i in range(first, first + n):
        draw = random.Random(f"{seed} {i}")
        name = sorted(good)[i % len(good)]
        function, arguments = good[name]
        wrong = draw.choice(sorted(arguments))
        value = draw.choice(VALUES)
        try:
            found = function(**{**arguments, wrong: value})
            if name == "watch":
                found.__exit__(None, None, None) if hasattr(found, "__exit__") else None
        except (ValueError, TypeError, OSError) as error:
            if str(error):
                continue
            print(f"FAILED {name}({wrong}={value!r:.60}): no words")  # noqa: T201
        except Exception as error:
            print(f"FAILED {name}({wrong}={value!r:.60}): {type(error).__name__}: {str(error)[:150]!r}")  # noqa: T201
        else:
            continue
        failed += 1
    return 1 if failed else 0


def wrong_calls(forks: Forks, folder: Path, run: Path, n: int, seed: int = 0) -> Tally:
    tally, block = Tally("call with a wrong argument"), 50
    for first in range(0, n, block):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder / "checkpoints" / "run")
        size = min(block, n - first)
        out = forks.call(f"{HERE}:calls", folder / "checkpoints" / "run", first, size, seed, cwd=folder, timeout=300)
        said = [line for line in out.output.splitlines() if line.startswith("FAILED")]
        if not said and not out.clean:
            said = [f"status {out.status}, late {out.late}: {out.output[-1000:]}"]
        for i in range(size):
            tally.case(f"block {first}", *said[i : i + 1], seconds=out.seconds / size)
    return tally
