"""The command line: `tracer train | resume | ls | demo`."""

from __future__ import annotations

import sys
from collections.abc import Callable

COMMANDS = {
    "train": "train a preset: tracer train PRESET --run NAME --steps N --seed S --device auto",
    "resume": "go on with a run that was stopped or killed: tracer resume RUN",
    "ls": "list the runs under checkpoints/",
    "demo": "train the demo while the dashboard shows it",
}
EXIT_USAGE, EXIT_DIVERGED, EXIT_STOPPED = 2, 3, 130


def main(args: list[str] | None = None) -> None:
    """Entry point of the console script; mistakes of the user end in one line, not in a traceback."""
    args = sys.argv[1:] if args is None else args
    if not args or args[0] in ("-h", "--help"):
        _say("usage: tracer COMMAND [options]\n")
        for name, what in COMMANDS.items():
            _say(f"  {name:8} {what}")
        _say("\n`tracer COMMAND --help` lists the options of a command.")
        return
    run: dict[str, Callable[[list[str]], int]] = {"train": _train, "resume": _resume, "ls": _ls, "demo": _demo}
    if args[0] not in run:
        _fail(f"there is no command {args[0]!r}; there are: {', '.join(COMMANDS)}")
    try:
        status = run[args[0]](args[1:])
    except (ValueError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _say("interrupted; `tracer resume RUN` goes on if training had begun, else start it again the same way")
        status = EXIT_STOPPED
    sys.exit(status)


def _train(args: list[str]) -> int:
    import tyro

    from tracer.presets import PRESETS

    names = {"-h", "--help", *PRESETS}
    if not args or args[0] not in names:
        what = "name a preset" if not args else f"there is no preset {args[0]!r}"
        if args and args[0].startswith("-"):
            what = f"name a preset before {args[0]}"
        _fail(f"{what}; there are:\n" + "\n".join(f"  {name:22} {p.description}" for name, p in PRESETS.items()))
    choices = {name: (p.description, p.config) for name, p in PRESETS.items()}
    config = tyro.extras.overridable_config_cli(choices, prog="tracer train", args=args)

    from tracer.training import train

    return _exit_status(train(config, preset=args[0]).status)


def _resume(args: list[str]) -> int:
    import tyro

    def resume(run: str, /, steps: int | None = None) -> str:
        """Go on with a run from its last resume point, to the bit.

        Args:
            run: A name under checkpoints/, or a directory.
            steps: Train up to this step instead of the planned one.
        """
        from tracer.training import resume as go_on

        return go_on(run, steps).status

    return _exit_status(tyro.cli(resume, prog="tracer resume", args=args))


def _ls(args: list[str]) -> int:
    import tyro
    from rich.console import Console
    from rich.table import Table

    def ls(root: str = "checkpoints", /) -> None:
        """List the runs below a folder, newest first.

        Args:
            root: The folder.
        """
        from tracer.store import list_runs

        runs = list_runs(root)
        if not runs:
            _say(f"no runs below {root}; `tracer demo` trains one")
            return
        table = Table("run", "preset", "status", "step", "snapshots", "parameters", "created (UTC)", box=None)
        for run in runs:
            meta = run.meta
            try:
                cells = (
                    meta["preset"] or "-", run.status, f"{meta['step']}/{run.config.steps}", str(len(run.steps)),
                    f"{meta['n_params']:,}", meta["created"][:16].replace("T", " "),
                )  # fmt: skip
            except (TypeError, ValueError):  # run.json was damaged by hand, or has fields of a later version
                cells = ("-", "unreadable")
            table.add_row(run.name, *cells)
        Console(width=200).print(table)  # a name cut off at the edge of the terminal could not be typed again

    tyro.cli(ls, prog="tracer ls", args=args)
    return 0


def _demo(args: list[str]) -> int:
    import tyro

    from tracer.demo import demo

    return _exit_status(tyro.cli(demo, prog="tracer demo", args=args))


def _exit_status(status: str) -> int:
    return {"diverged": EXIT_DIVERGED, "stopped": EXIT_STOPPED}.get(status, 0)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _fail(text: str) -> None:
    sys.stderr.write(f"error: {text}\n")
    sys.exit(EXIT_USAGE)
