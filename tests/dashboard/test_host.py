"""What leans on how Streamlit builds a page stands in one file of rules and one of script, and means something."""

import re

import pytest

from dashboard.theme import STYLES
from tests.browsing import ROOT
from tracer.pictures.assets import HERE

SCRIPT = HERE / "common" / "streamlit.js"
NAMES = re.compile(r"data-test|dataset\.test|\bst(?:[A-Z][a-z]+)+\b|emotion-cache|element-container|block-container")
CODE = [path for folder in ("dashboard", "tracer/pictures") for kind in ("py", "js", "css")
        for path in (ROOT / folder).rglob(f"*.{kind}") if path not in (STYLES, SCRIPT)]  # fmt: skip
PYTHON = "\n".join(path.read_text("utf-8") for path in CODE if path.suffix == ".py")
KEYS = set(re.findall(r"st-key-([\w-]+)", STYLES.read_text("utf-8"))) - {"NAME"}


def test_no_other_file_names_a_part_of_the_host():
    assert {path.suffix for path in CODE} == {".py", ".js", ".css"} and len(CODE) > 150
    assert NAMES.search(STYLES.read_text("utf-8")) and NAMES.search(SCRIPT.read_text("utf-8"))
    assert {path.name: found[0] for path in CODE if (found := NAMES.search(path.read_text("utf-8")))} == {}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_rule_is_of_a_key(key):
    assert re.search(rf"""["']{re.sub(r"[_-]?(5|narrow)?$", "", key)}""", PYTHON)
