"""docs/mutants.json of all verdicts, its section of the page, and the mutants that somebody argued away."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.mutants.run import Judged

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
NOTHING = {"drawn": 0, "killed": 0, "argued": 0}
ASKED = 0.95
"""The share of mutants that tests should notice."""


def argued(judged: Judged, entries: list[dict[str, str]]) -> str:
    """Why it need not be noticed, or nothing: file, line of text and change have to be listed, or file and line."""
    mutant = judged.mutant
    change = f"{mutant.before} -> {mutant.after}"
    for one in entries:
        if (one["file"], one["text"], one.get("change", change)) == (mutant.file, mutant.text, change):
            return one["why"]
    return ""


def entries() -> list[dict[str, str]]:
    return tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])


def report(judged: list[Judged], commit: str, seed: str, entries: list[dict[str, str]]) -> dict[str, Any]:
    """What docs/mutants.json holds."""
    rooms: dict[str, dict[str, Any]] = {}
    for one in judged:
        by = {} if seed == commit else {"seed": seed}
        room = rooms.setdefault(one.mutant.room, {"commit": commit, **by, **NOTHING, "survivors": []})
        room["drawn"] += 1
        if one.verdict in {"killed", "timeout"}:
            room["killed"] += 1
        elif argued(one, entries):
            room["argued"] += 1
        else:
            mutant = one.mutant
            room["survivors"].append({
                "where": f"{mutant.file}:{mutant.line}", "operator": mutant.operator,
                "change": f"{mutant.before} -> {mutant.after}",
                "why": "no test reaches it" if one.verdict == "not reached" else f"{one.ran} tests pass",
            })  # fmt: skip
    return {"rooms": rooms}


def write(docs: Path, said: dict[str, Any]) -> None:
    """With the rooms of an earlier report, where this one is of some rooms only."""
    file = docs / "mutants.json"
    before = json.loads(file.read_text()) if file.exists() else {"rooms": {}}
    said = {"rooms": before["rooms"] | said["rooms"]}
    file.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def section(said: dict[str, Any]) -> str:
    """The section of the page."""
    rooms = said["rooms"]
    lines = [
        "\n## mutants\n",
        "Written by `make mutants`: small wrong changes to the code of the commit beside each, drawn by its hash (a "
        "comparison, a sign, a constant, an axis, one more or less, a term dropped, a mean for a median), and whether "
        f"a test of `make test` that runs the line notices; {ASKED:.0%} and over is asked of each room. Argued away: "
        "nobody can see the difference, for the reason in `benchmarks/mutants/equivalent.toml`; these do not count. "
        "Tests are written for what survives, and it is judged again: of a new draw fewer may be killed.\n",
        "| room | drawn | killed | survived | argued away | kill rate | commit |\n|---|---|---|---|---|---|---|",
    ]
    total: dict[str, Any] = {**NOTHING, "survivors": []}
    for name, room in rooms.items():
        lines.append(_row(name, room))
        total = {key: total[key] + room[key] for key in total}
    lines.append(_row("all", total))
    if total["survivors"]:
        lines.append("\nSurvivors:\n\n| where | operator | change | |\n|---|---|---|---|")
        lines += [
            f"| {one['where']} | {one['operator']} | `{_cell(one['change'])}` | {one['why']} |"
            for one in total["survivors"]
        ]
    return "\n".join(lines) + "\n"


def rate(room: dict[str, Any]) -> float:
    return room["killed"] / max(room["drawn"] - room["argued"], 1)


def _row(name: str, room: dict[str, Any]) -> str:
    counts = f"{room['drawn']} | {room['killed']} | {len(room['survivors'])} | {room['argued']}"
    by = f", drawn by {room['seed'][:12]}" if "seed" in room else ""
    return f"| {name} | {counts} | {rate(room):.1%} | {room.get('commit', '')[:12]}{by} |"


def _cell(change: str) -> str:
    """Both sides shortened around where they differ; a bar would end the cell."""
    before, _, after = change.partition(" -> ")
    start = next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    cut = max(0, start - 40)
    shown = " -> ".join(
        ("…" if cut else "") + one[cut:][:90] + ("…" if len(one) > cut + 90 else "") for one in (before, after)
    )
    return shown.replace("|", "\\|").replace("`", "'")
