"""What is written into docs/ from elsewhere is what stands there, for people who read the repository."""

import re
from pathlib import Path

import pytest

from tests.documents import ROOT
from tracer.diagnosis import RULES
from tracer.measures import MEASURES

DOCS = ROOT / "docs"


def test_lists_of_pages_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from building.measures import pictures, written

    pages = {path: path.read_text("utf-8") for path in DOCS.glob("*.md")}
    kept = DOCS / "measures.json"
    stale = [path.name for path, page in pages.items() if written(page, kept) != page]
    assert stale == [], "PYTHONPATH=. scripts/pages writes them"
    found = {path.name: path.read_text("utf-8") for path in (DOCS / "pictures/measures").iterdir()}
    assert found == pictures(kept), "PYTHONPATH=. scripts/pages writes them"
    assert all(f"### {measure.label}\n\n{measure.note}" in pages[DOCS / "measures.md"] for measure in MEASURES.values())
    assert all(rule.text in pages[DOCS / "diagnosis.md"] for rule in RULES.values())
    with pytest.raises(ValueError, match="nothing -->.* means no list; pages may have rules, attention"):
        written("<!-- nothing -->x<!-- /nothing -->", Path())


def test_a_page_that_only_the_site_fills_says_so_on_a_forge() -> None:
    pages = [path.read_text("utf-8") for path in DOCS.rglob("*.md")]
    filled = [page for page in pages if "{eval-rst}" in page]
    assert len(filled) >= 4 and [page[:40] for page in filled if "*On a forge: " not in page] == []
    assert [page[:40] for page in pages if re.search(r"{(?!eval-rst)[\w-]+}`|```{(?!eval-rst)", page)] == []
