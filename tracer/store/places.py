"""Where runs are: `checkpoints/`, other folders and URLs, and which runs are there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tracer.store import copies, remote
from tracer.store.meta import read_meta
from tracer.store.run import Run

PLACES = tuple(copies.split(os.environ.get("MANYEYES_RUNS", ""))) or ("checkpoints",)
"""Where runs are looked for: checkpoints/, or the folders and URLs of MANYEYES_RUNS, with ":" between them."""
ROOTS = tuple(copies.below(place) if copies.is_url(place) else Path(place) for place in PLACES)
"""Their folders; of a URL that of the copies, which `tracer ls` and `manyeyes` bring up to date."""
ROOT = next((Path(place) for place in PLACES if not copies.is_url(place)), Path("checkpoints"))
"""The one that new runs go to."""


def is_path(name: str | Path) -> bool:
    """Is it a path rather than the name of a run?"""
    path = Path(name)
    said = isinstance(name, str) and name.startswith("./")  # which Path drops
    return said or path.is_absolute() or len(path.parts) != 1 or path.name == ".."


def resolve(name: str | Path, root: Path | None = None) -> Path:
    """A path (`a/b`, `./a`, `/a`) as given, or a name under `checkpoints/` (or the first of `ROOTS` that has it)."""
    if copies.is_url(name):
        copies.refuse_writing(name)
    path = Path(name)
    if is_path(name) or (path / "run.json").is_file():
        return path
    places = [one / path for one in ((root,) if root else ROOTS)]
    if (run := next((one for one in places if (one / "run.json").is_file()), None)) is not None:
        return run  # a folder of this name that is none hides no run
    return path if path.is_dir() else next((one for one in places if one.exists()), places[0])


def open_run(name: str | Path) -> Run:
    """Open a run by its directory, its name under checkpoints/ or its URL (s3://, gs://, hf://, ssh://, https://).

    Of a URL a copy is made here, of weights when they are asked for; `run.refresh()` brings it up to date.
    """
    return Run(remote.mirror(name) if isinstance(name, str) and copies.is_url(name) else resolve(name))


def list_runs(root: str | Path | None = None) -> list[Run]:
    """Every readable run below a folder or URL (default: `ROOTS`), newest first; `broken_runs` names the others.

    A URL that is given is fetched; of those of MANYEYES_RUNS the copies are listed that `tracer ls` or `manyeyes` made.
    """
    if isinstance(root, str) and copies.is_url(root):
        root, _ = remote.mirror_all(root)
    runs = []
    for directory in _named(root).values():
        try:
            directory.name.encode()
            run = Run(directory)
            runs.append((str(run.meta["created"]), run.name, run))
        except (OSError, ValueError):
            continue
    return [run for *_, run in sorted(runs, key=lambda entry: entry[:2], reverse=True)]


def broken_runs(root: str | Path | None = None) -> dict[str, str]:
    """Why each directory below a folder that has a run.json cannot be opened, by its name."""
    reasons, named = {}, _named(root)
    for directory in _directories(root):
        name = _shown(directory.name)
        if directory != (first := named[directory.name]):
            reasons[_shown(directory)] = f"{_shown(first)} has the same name: rename one of the two"
            continue
        try:
            directory.name.encode()
            read_meta(directory)
        except UnicodeEncodeError:
            reasons[name] = (
                "the folder's name is no text (UTF-8): rename it"
                if "\N{REPLACEMENT CHARACTER}" in name
                else f"the folder's name has letters that {sys.getfilesystemencoding()}, the encoding of this locale, "
                f"lacks: set PYTHONUTF8=1"
            )
        except (OSError, ValueError) as error:
            reasons[name] = _shown(str(error))
    return reasons


def _shown(path: str | Path) -> str:
    """A path as text; what is none of it (UTF-8) as replacement characters."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _directories(root: str | Path | None) -> list[Path]:
    """Every folder below another that has something called run.json."""
    found = (path for one in ((Path(root),) if root else ROOTS) for path in sorted(one.glob("*")))
    return [path for path in found if os.path.lexists(path / "run.json")]


def _named(root: str | Path | None) -> dict[str, Path]:
    """The directory of each name: the first of `ROOTS` that has it, as `resolve` finds it."""
    return {directory.name: directory for directory in reversed(_directories(root))}
