"""The command line: every command is a function, its help its docstring, its status what it returns.

The functions are in `training_commands`, `run_commands`, `view_command`, `demo`, `ls` and `watch_run`.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import warnings
from importlib.metadata import version

import tyro

from tracer.cli import configs, settings
from tracer.cli.arguments import together, value, values
from tracer.cli.demo import demo
from tracer.cli.ls import ls
from tracer.cli.output import EXIT_OF_RUN, EXIT_STOPPED, EXIT_USAGE, say
from tracer.cli.publish_command import publish
from tracer.cli.remedy_command import remedy
from tracer.cli.rows_command import rows
from tracer.cli.run_commands import check, diagnose, export, open, reproduce, sweep
from tracer.cli.training_commands import fork_command, replay, resume, train_command
from tracer.cli.view_command import view_command
from tracer.cli.watch_run import watch_run
from tracer.presets import PRESETS
from tracer.store.descriptors import raise_descriptors, silence

NARROWEST = 40
"""Columns in which help can be set; of 1 it never ends."""


def main(args: list[str] | None = None) -> None:
    """Train small transformers and watch every attention head: `tracer COMMAND --help`, `tracer --version`."""
    _run(sys.argv[1:] if args is None else args)


def manyeyes(args: list[str] | None = None) -> None:
    """The command `manyeyes`, which is `tracer view`."""
    args = ["view", *(sys.argv[1:] if args is None else args)]
    _run(args[1:] if args[1:] == ["--version"] else args)


def _run(args: list[str]) -> None:
    """Read the words of a command line, do what they say, and end the program with its status."""
    raise_descriptors()
    sys.stdout, sys.stderr = (stream or io.StringIO() for stream in (sys.stdout, sys.stderr))  # `>&-`
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that the locale (LC_ALL=C) lacks ends no list
        sys.stdout.reconfigure(errors="replace")
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so starts what a script runs with &; Stop is sent as Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.showwarning = _warn
    if args == ["--version"]:
        say(f"manyeyes {version('manyeyes')}")
        return
    args = together(args)
    try:
        status = _commands(args).cli(
            prog="tracer", description=main.__doc__, args=args or ["--help"], registry=settings.registry()
        )
    except BrokenPipeError:  # nobody reads on (`tracer ls | head`)
        silence()
        status = 0
    except (settings.WrongSetting, ValueError, OSError, MemoryError) as error:  # mistakes of a user: one line is enough
        sys.stderr.write(f"error: {str(error) or 'not enough memory'}\n".encode("utf-8", "replace").decode())
        status = EXIT_USAGE
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        sys.stderr.write(f"error: not enough memory for that: {str(error).splitlines()[0]}\n")
        status = EXIT_USAGE
    except KeyboardInterrupt:
        say("interrupted; `tracer resume RUN` goes on if training had begun, else start it again the same way")
        status = EXIT_STOPPED
    sys.exit(EXIT_OF_RUN.get(status, 0) if isinstance(status, str) else status)


def _warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """What a command has to say: a line, without the place in its code that says it."""
    sys.stderr.write(f"{message}\n" if issubclass(category, RuntimeWarning) else f"{category.__name__}: {message}\n")


def _commands(args: list[str]) -> tyro.extras.SubcommandApp:
    app, presets = tyro.extras.SubcommandApp(), tyro.extras.SubcommandApp()
    if args[:1] in (["train"], ["fork"]) and (corpus := value(args, "--data.corpus")):
        configs.allow(corpus)
    if args[:1] in (["train"], ["fork"]):
        configs.name_clamps(values(args, "--clamp"))
    # a file or a parent is opened before the options are read: its settings are their defaults
    if args[:1] == ["train"] and (path := value(args, "--config")):
        theirs, preset = configs.read(path)
        said = [one for one in configs.ALONE if value(args, f"--{one}")]
        app.command(name="train", help=f"Train what {path} says; any of its settings can be overridden.")(
            train_command(preset, theirs, from_file=True, code=configs.code(path, said))
        )
    else:
        for name, preset in PRESETS.items():
            presets.command(name=name, help=preset.description)(train_command(name, preset.config))
        app.command(presets, name="train", help="Train a preset, or --config FILE; any setting can be overridden.")
    named = args[1] if args[:1] == ["fork"] and len(args) > 1 and not args[1].startswith("-") else None
    for command in (
        resume, fork_command(named), replay, remedy, rows, sweep, diagnose, watch_run, check, open, ls, export, demo,
        view_command(args), reproduce, publish,
    ):  # fmt: skip
        app.command(command)
    return app
