"""The runs below a folder, as rows and as the columns that a person reads."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tracer.store import broken_runs, list_runs


def rows(root: str | None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row of facts for each run, newest first; and why the others cannot be opened, by name."""
    found: list[dict[str, Any]] = []
    broken = broken_runs(root)
    for run in list_runs(root):
        meta = run.meta
        try:
            about = run.about
            found.append({
                "run": run.name, "directory": str(run.dir), "kind": about.kind, "preset": meta.get("preset"),
                "author": about.author, "status": run.status, "step": int(meta["step"]), "planned": about.steps,
                "snapshots": len(run.steps), "n_params": int(meta["n_params"]), "created": str(meta["created"]),
            })  # fmt: skip
        except (TypeError, ValueError) as error:  # run.json was damaged by hand, or has fields of a later version
            broken[run.name] = str(error)
    return found, broken


def table(rows: list[dict[str, Any]], broken: dict[str, str]) -> None:
    """The runs in columns, then why the others cannot be opened."""
    table = Table("run", "preset", "status", "step", "snapshots", "parameters", "created (UTC)", box=None)
    for row in rows:
        what = row["preset"] or "-" if row["kind"] == "trained" else f"{row['kind']} {row['author']}".strip()
        planned = "" if row["planned"] is None else f"/{row['planned']}"
        cells = (
            row["run"], what, row["status"], f"{row['step']}{planned}", str(row["snapshots"]), f"{row['n_params']:,}",
            row["created"][:16].replace("T", " "),
        )  # fmt: skip
        table.add_row(*map(escape, cells))
    for name in broken:
        table.add_row(escape(name), "-", "unreadable")
    Console(width=200).print(table)  # a name cut off at the edge of the terminal could not be typed again
    sys.stdout.writelines(f"{name}: {reason}\n" for name, reason in broken.items())
