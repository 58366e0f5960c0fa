"""`tracer ls`: which runs there are, and which cannot be opened."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tracer.cli.output import say, say_json

if TYPE_CHECKING:
    from tracer.store import Run


def ls(root: str | None = None, /, find: str = "", json: bool = False) -> int:
    """List the runs below a folder, newest first.

    Args:
        root: The folder, or its URL (s3://, gs://, hf://, ssh://, https://). Default: checkpoints/, or those of
            MANYEYES_RUNS.
        find: Only runs that hold all of these words, or what `or` and `not` make of them: "lr>0.01 accuracy>0.4
            tag=mine demo" compares settings of a run, the last of what it recorded (of heads, any) and its tags, and
            looks for other words in its name, preset, status, note and tags.
        json: Print them as JSON.
    """
    from tracer.store import PLACES, broken_runs, list_runs
    from tracer.store.choosing import found_by, names_in, values_of
    from tracer.store.copies import is_url, origin
    from tracer.store.housekeeping import note
    from tracer.store.remote import mirror_all

    holds, names = found_by(find), names_in(find)
    folder, elsewhere = root, {}
    for url in filter(is_url, (root,) if root else PLACES):
        try:
            at, reasons = mirror_all(url)
        except (OSError, ValueError) as error:
            if root:
                raise
            elsewhere[url] = str(error)  # the other folders are listed all the same
        else:
            folder, elsewhere = at if root else None, elsewhere | reasons
    runs, broken = list_runs(folder), broken_runs(folder) | elsewhere
    rows: list[dict[str, Any]] = []
    for run in runs:
        meta = run.meta
        try:
            if find and not holds(run):
                continue
            about = run.about
            rows.append({
                "run": run.name, "directory": origin(run.dir) or str(run.dir), "kind": about.kind,
                "preset": meta.get("preset"),
                "author": about.author, "status": run.status, "step": int(meta["step"]), "planned": about.steps,
                "snapshots": len(run.steps), "n_params": int(meta["n_params"]), "created": str(meta["created"]),
                "settings": meta.get("settings") or {}, "tags": meta.get("tags") or [], "note": note(run),
                "asked": {name: values_of(run, name) for name in names},
            })  # fmt: skip
        except (TypeError, ValueError) as error:  # run.json was damaged by hand, or has fields of a later version
            broken[run.name] = str(error)
    if json:
        say_json(runs=rows, broken=broken)
    elif find and not rows:
        unknown = [name for name in names if not any(map(functools.partial(_knows, name), runs))]
        why = f"; no run has {' or '.join(unknown)}{_meant(unknown, runs)}" if unknown else ""
        say(f"none of {len(runs)} runs below {root or ', '.join(PLACES)} holds {find!r}{why}")
    elif not rows and not broken:
        say(f"no runs below {root or ', '.join(PLACES)}; `tracer demo` trains one")
    else:
        _table(rows, broken, names)
    return 0


def _knows(name: str, run: Run) -> bool:
    from tracer.store.choosing import values_of

    try:
        return bool(values_of(run, name))
    except (TypeError, ValueError):
        return False


def _meant(unknown: list[str], runs: list[Run]) -> str:
    """Names that there are and that are written nearly so, as the end of a sentence."""
    from difflib import get_close_matches

    from tracer.measures import MEASURES
    from tracer.store.choosing import settings

    known = set(MEASURES)
    for run in runs:
        try:
            found = settings(run)
        except (TypeError, ValueError):
            continue
        known |= {*found, *(name.rpartition(".")[2] for name in found)}
    near = [name for one in unknown for name in get_close_matches(one, sorted(known), 1)]
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _words(held: list[Any]) -> str:
    """One value, or from the least to the largest."""
    if len(held) > 1 and all(isinstance(one, int | float) for one in held):
        return f"{min(held):.4g} to {max(held):.4g}"
    return ", ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in held)


def _table(rows: list[dict[str, Any]], broken: dict[str, str], names: list[str]) -> None:
    """The runs in columns, then why the others cannot be opened. By hand: rich takes 2 ms a row."""
    lines = [("run", "preset", "status", "step", "snapshots", "parameters", "created (UTC)", *names)]
    for row in rows:
        what = row["preset"] or "-" if row["kind"] == "trained" else f"{row['kind']} {row['author']}".strip()
        planned = "" if row["planned"] is None else f"/{row['planned']}"
        lines.append((
            row["run"], what, row["status"], f"{row['step']}{planned}", str(row["snapshots"]), f"{row['n_params']:,}",
            row["created"][:16].replace("T", " "), *(_words(row["asked"][name]) for name in names),
        ))  # fmt: skip
    lines += [(name, "-", "unreadable", "", "", "", "", *("" for _ in names)) for name in broken]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        say("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in f" {cells}"))
    for name, reason in broken.items():
        say(f"{name}: {reason}")
