"""`tracer publish`: runs as a folder of files that any web server serves, or that is opened from a disk.

No weights go out, no page asks another host, and none can run what a name or a token says (see `pictures.page`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tracer.site.index import Card, card_of, index
from tracer.site.run_page import findings_of, run_page
from tracer.store import Run, open_run

INDEX = "index.html"
OURS = '<meta name="generator" content="manyeyes">'
"""Stands in every file that may be written anew."""


def publish(runs: Iterable[Run | str | Path], to: str | Path = "site", *, prompt: str | None = None) -> Path:
    """Write `to`/index.html with a card of each run, and a page of each: its film, heads, what happened, health, proof.

    `prompt`: the text that heads are shown on; by default the one that the dashboard begins with. Pages of other runs
    that are there already stay, and are not listed. Returns the path of the index.
    Errors: ValueError without a run, for two of one name, and for a file in the way that this did not write.
    """
    opened = [one if isinstance(one, Run) else open_run(one) for one in runs]
    if not opened:
        raise ValueError("there is no run to publish: name one at least")
    names = [_file_name(run) for run in opened]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two of these runs would be written to {twice[0]}: publish them to two folders")
    folder = Path(to)
    for name in (*names, INDEX):
        _is_ours(folder / name)
    folder.mkdir(parents=True, exist_ok=True)
    cards: list[Card] = []
    for run, name in zip(opened, names, strict=True):
        found = findings_of(run)
        _write(folder / name, run_page(run, found, prompt))
        cards.append(card_of(run, found, name))
    return _write(folder / INDEX, index(cards))


def _file_name(run: Run) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", run.name).lstrip(".") or "run"
    return f"run-{name}.html" if name == "index" else f"{name}.html"


def _is_ours(path: Path) -> None:
    """ValueError for a file that this did not write."""
    if path.exists() and (not path.is_file() or OURS not in path.read_text("utf-8", errors="replace")[:4096]):
        raise ValueError(f"{path} is there already and is no page of manyeyes: publish to another folder")


def _write(path: Path, text: str) -> Path:
    """At once or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text.replace("<head>\n", f"<head>\n{OURS}\n", 1), "utf-8")
    return beside.replace(path)
