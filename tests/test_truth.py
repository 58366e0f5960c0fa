"""docs/truth.md is what its attacks wrote, and tells of no claim that fell without saying so."""

import json
from pathlib import Path

from benchmarks.truth.attack import page

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_is_written_from_the_figures() -> None:
    areas, mutants = (json.loads((DOCS / name).read_text()) for name in ("truth.json", "mutants.json"))
    assert areas and all(areas.values())
    assert (DOCS / "truth.md").read_text() == page(areas, mutants)
