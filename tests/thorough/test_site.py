"""The documentation site builds without a warning, has no broken link, and loads nothing from elsewhere."""

import subprocess
import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import tracer
from tests.documents import ROOT
from tracer.diagnosis import RULES
from tracer.measures import MEASURES

WATCHED = {
    "tokens_per_second", "same_batch", "unmoved", "unigram_loss", "bigram_loss", "copy_loss", "common_token",
    "silent_rows", "shifted_loss", "future_effect", "row_effect",
}  # fmt: skip
LOADED = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src", "object": "data"}
"""What a browser fetches by itself, by element."""


class Page(HTMLParser):
    """Where a page leads, what it loads, which places in it can be linked to, and how many drawings it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.loaded, self.anchors, self.drawings = set[str](), set[str](), {""}, 0
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value for name, value in attrs if value}
        self.anchors |= {said["id"]} if "id" in said else set()
        self.links |= {said["href"]} if tag == "a" and "href" in said else set()
        self.loaded |= {said[LOADED[tag]]} if tag in LOADED and LOADED[tag] in said else set()
        self.drawings += tag == "svg" and said.get("role") == "img"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", made / "doctrees", ROOT / "docs"]
    built = subprocess.run([*command, made / "html"], capture_output=True, text=True)
    assert built.returncode == 0 and not built.stderr, built.stderr
    return made / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_of_docs_is_in_the_menu(pages: dict[Path, Page], site: Path) -> None:
    listed = {(site / urlsplit(link).path).resolve() for link in pages[site / "index.html"].links}
    names = {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")} - {"index.html"}
    assert len(names) >= 15 and [name for name in names if site / name not in listed] == []


def test_no_link_is_broken(pages: dict[Path, Page], site: Path) -> None:
    checked, broken = 0, defaultdict(set)
    for path, page in pages.items():
        for link in page.links | page.loaded:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            known = pages[target].anchors if target in pages else {""}
            checked += 1
            if not target.is_file() or (target.suffix == ".html" and unquote(url.fragment) not in known):
                broken[str(path.relative_to(site))].add(link)
    assert checked > 1000 and broken == {}


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    loaded = {link for page in pages.values() for link in page.loaded}
    assert any(link.startswith("_static/") for link in loaded)
    assert {link for link in loaded if urlsplit(link).netloc or urlsplit(link).scheme not in ("", "data")} == set()
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert (
        styles and [style for style in styles if "url(http" in style or "url(//" in style or "@import" in style] == []
    )


def test_every_public_name_has_an_entry(site: Path) -> None:
    found = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    known = {name for kind in found if kind.startswith("py:") for name in found[kind]}
    offered = {name: getattr(tracer, name) for name in tracer.__all__}
    asked = {one.__name__ if isinstance(one, ModuleType) else f"tracer.{name}" for name, one in offered.items()}
    assert len(asked) == len(tracer.__all__) and asked - known == set()


def test_every_measure_is_told_and_drawn(pages: dict[Path, Page], site: Path) -> None:
    page, text = pages[site / "measures.html"], (site / "measures.html").read_text("utf-8")
    labels = [one.label.replace("'", "’") for one in MEASURES.values()]
    assert [label for label in labels if f"{label}<a" not in text] == []
    assert "<!-- picture" not in text
    # the pattern is drawn twice, what only watched trainings record not at all; else run scripts/measures anew
    assert page.drawings == len(MEASURES) + 1 - len(WATCHED)
    assert text.count("Recorded of watched trainings only") == len(WATCHED)


def test_every_rule_of_diagnosis_is_told(site: Path) -> None:
    text = (site / "diagnosis.html").read_text("utf-8")
    assert [rule.name for rule in RULES.values() if f"{rule.name[1:]}<a" not in text] == []


def test_docstrings_become_restructured_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from building.docstrings import restructured

    said = restructured([
        "What `a *b*` is, *args and W_ too.", "Such as:", "    x = `1`  # an example", "Source: ours.", "",
        "1. one", "   and on", "2. two",
    ])  # fmt: skip
    assert said == [
        r"What \ ``a *b*``\  is, \*args and W\_ too.", "",
        "Such as:", "",
        "::", "", "    x = `1`  # an example", "",
        "Source: ours.", "",
        "1. one", "   and on", "",
        "2. two", "",
    ]  # fmt: skip
