"""Which files of a folder are pages of a person's own, and how they are addressed."""

from __future__ import annotations

import os
import re
from pathlib import Path

SETTING = "MANYEYES_PAGES"
"""The folder, for the server's process: whoever starts it names it."""
OURS = {"runs", "heads", "find", "training", "phases", "gradients", "ablate", "circuits", "specimens", "landing"}


def asked() -> dict[str, Path]:
    """Of the folder that this process's environment names, as it is now: what cannot be a page is passed by."""
    folder = os.environ.get(SETTING, "")
    return {name: path for name, path in _there(folder).items() if not _why_not(name)} if folder else {}


def files(folder: str | Path) -> dict[str, Path]:
    """Python files by the address of their page, those that begin with _ left out. ValueError for a folder or a name
    that cannot be."""
    if not Path(folder).is_dir():
        raise ValueError(f"--pages {folder}: there is no such folder; name one of files with page(run, selection)")
    found = _there(folder)
    for name in found:
        if why := _why_not(name):
            raise ValueError(f"--pages {folder}: {name}.py {why}: call the file otherwise")
    if not found:
        raise ValueError(f"--pages {folder} holds no .py file: write one with def page(run, selection)")
    return found


def _there(folder: str | Path) -> dict[str, Path]:
    return {path.stem: path.resolve() for path in sorted(Path(folder).glob("[!_]*.py"))}


def _why_not(name: str) -> str:
    if name in OURS:
        return "is the name of one of our pages"
    return "" if re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) else "is no name for a page (a-z, 0-9 and _)"
