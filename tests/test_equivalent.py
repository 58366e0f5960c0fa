"""The mutants argued away: in the first tier, for whoever changes such a line learns it within minutes."""

from pathlib import Path

from benchmarks.mutants.report import entries

ROOT = Path(__file__).parents[1]


def test_each_argument_is_about_a_line_that_is_there() -> None:
    for one in entries():
        assert one["text"] in (ROOT / one["file"]).read_text(), one
        assert one["why"] and " -> " in one.get("change", " -> ")


def test_no_argument_is_made_twice() -> None:
    said = [(one["file"], one["text"], one.get("change")) for one in entries()]
    assert len(said) == len(set(said)), sorted(one for one in set(said) if said.count(one) > 1)
