"""Links at the names of a stranger's run, for everything that writes to it: nothing elsewhere may change or appear."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.attacks.forks import Forks
from tests.attacks.table import Tally
from tracer.store.writer import FILES

HERE = "tests.attacks.links"
NAMES = (*sorted(FILES - {"run.json"}), "run.json", "effects.zarr", "trace.zarr/zarr.json", "trace.zarr/step",
         "snapshots/000002.safetensors", "states/000004.safetensors", "resume/000004.safetensors", ".lock",
         ".log.jsonl.lock")  # fmt: skip
"""Where the link stands: at every name that we write, at some below them, and where ours are hidden."""
KINDS: dict[str, Callable[[Path, Path, Path], None]] = {
    "a file of mine": lambda link, mine, name: link.symlink_to(mine / "letter"),
    "a folder of mine": lambda link, mine, name: link.symlink_to(mine / "letters"),
    "the same of another run": lambda link, mine, name: link.symlink_to(mine / "run" / name),
    "the same, from here": lambda link, mine, name: link.symlink_to(
        os.path.relpath(mine / "run" / name, link.parent.resolve())
    ),
    "what is not there yet": lambda link, mine, name: link.symlink_to(mine / "new"),
    "a link to a file of mine": lambda link, mine, name: _chain(link, mine),
    "a second name of a file": lambda link, mine, name: os.link(mine / "letter", link),
}


def _chain(link: Path, mine: Path) -> None:
    (link.parent / "between").symlink_to(mine / "letter")
    link.symlink_to("between")


def deed(what: str, folder: str) -> None:
    """Do it to the run; in words it may say that it does not."""
    from dataclasses import replace

    from tracer.analysis.run_sweep import sweep_run
    from tracer.analysis.survey import survey
    from tracer.files.disk import Damaged
    from tracer.store import Run, housekeeping
    from tracer.training import loop

    def overwrite(run: Run) -> Any:
        return loop.train(replace(run.config, run=str(run.dir), steps=2), overwrite=True, quiet=True)

    deeds: dict[str, Callable[[Run], Any]] = {
        "resume": lambda run: loop.resume(run.dir, steps=run.config.steps + 1, quiet=True),
        "overwrite": overwrite,
        "sweep": lambda run: sweep_run(run, modes=["zero"], steps=run.steps[:1]),
        "survey": lambda run: survey(run, tokens=64),
        "rename": lambda run: housekeeping.rename(run, "renamed"),
        "discard": lambda run: housekeeping.discard(housekeeping.remove(run)),
        "note": lambda run: housekeeping.write_note(run, "mine"),
        "no note": lambda run: housekeeping.write_note(run, ""),
    }
    try:
        deeds[what](Run(Path(folder)))
    except (Damaged, ValueError, OSError) as error:
        print(error)  # noqa: T201 - what was refused


DEEDS = ("resume", "overwrite", "sweep", "survey", "rename", "discard", "note", "no note")


def cases(seed: int) -> Iterator[tuple[str, str, str]]:
    every = list(itertools.product(NAMES, KINDS, DEEDS))
    random.Random(seed).shuffle(every)
    yield from every


def attack(forks: Forks, folder: Path, run: Path, n: int, seed: int = 0) -> Tally:
    tally = Tally("link in a run x what is done with it")
    for what in DEEDS:  # each is done where there is no link
        place = shutil.copytree(run, folder / "checkpoints" / "case")
        done = forks.call(f"{HERE}:deed", what, place, timeout=120)
        assert done.clean and not done.output, (what, done)
        shutil.rmtree(folder)
    for name, kind, what in itertools.islice(cases(seed), n):
        place, mine = folder / "checkpoints" / "case", folder / "mine"
        shutil.copytree(run, place)
        shutil.copytree(run, mine / "run")
        (mine / "letters").mkdir()
        for file in (mine / "letter", mine / "letters" / "first"):
            file.write_text("dear")
        _make(place / name, KINDS[kind], mine, name)
        before = _content(mine)
        out = forks.call(f"{HERE}:deed", what, place, timeout=120)
        problems = [] if out.clean else [f"status {out.status}, late {out.late}: {out.output[-1500:]}"]
        if (now := _content(mine)) != before:
            changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
            problems.append(f"changed {', '.join(changed)}")
        tally.case(f"{what}, {name} leads to {kind}", *problems, seconds=out.seconds)
        shutil.rmtree(folder)
    return tally


def _make(link: Path, kind: Callable[[Path, Path, Path], None], mine: Path, name: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    kind(link, mine, Path(name))


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
