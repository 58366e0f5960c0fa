"""Which files of a folder are pages of a person's own, and how they are addressed."""

from __future__ import annotations

import os
import re
from pathlib import Path

SETTING = "MANYEYES_PAGES"
"""The folder, for the server's process: whoever starts it names it."""
OURS = {"runs", "heads", "find", "training", "phases", "gradients", "ablate", "circuits", "specimens", "landing"}


def asked() -> dict[str, Path]:
    """Of the folder that this process's environment names; none where it names none."""
    folder = os.environ.get(SETTING, "")
    return files(folder) if folder else {}


def files(folder: str | Path) -> dict[str, Path]:
    """Python files by the address of their page, those that begin with _ left out. ValueError for a folder or a name
    that cannot be."""
    if not Path(folder).is_dir():
        raise ValueError(f"--pages {folder}: there is no such folder; name one of files with page(run, selection)")
    found = {path.stem: path.resolve() for path in sorted(Path(folder).glob("[!_]*.py"))}
    for name in found:
        if name in OURS or not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
            why = "is the name of one of our pages" if name in OURS else "is no name for a page (a-z, 0-9 and _)"
            raise ValueError(f"--pages {folder}: {name}.py {why}: call the file otherwise")
    if not found:
        raise ValueError(f"--pages {folder} holds no .py file: write one with def page(run, selection)")
    return found
