"""docs/truth.md is what its attacks wrote, and tells of no claim that fell without saying so."""

import json
from pathlib import Path

from benchmarks.truth.attack import page

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_is_written_from_the_figures() -> None:
    areas = json.loads((DOCS / "truth.json").read_text())
    assert areas and all(areas.values())
    assert (DOCS / "truth.md").read_text() == page(areas)
