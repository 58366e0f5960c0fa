"""Run all attacks, or those of the areas named, and write docs/truth.json and docs/truth.md."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import truth
from benchmarks.truth.attack import page

DOCS = Path(__file__).parents[2] / "docs"
AREAS = sorted(one.name for one in pkgutil.iter_modules(truth.__path__) if one.name not in {"__main__", "attack"})


def main(wanted: list[str]) -> None:
    if unknown := set(wanted) - set(AREAS):
        sys.exit(f"there is no area {', '.join(sorted(unknown))}; there are: {', '.join(AREAS)}")
    file = DOCS / "truth.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    for area in wanted or AREAS:
        known[area] = []
        for attack in importlib.import_module(f"benchmarks.truth.{area}").attacks():
            print(f"{area}: {attack.claim}: {attack.figure}", flush=True)
            known[area].append(asdict(attack))
    known = {area: known[area] for area in AREAS if area in known}
    file.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    (DOCS / "truth.md").write_text(page(known, json.loads((DOCS / "mutants.json").read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
