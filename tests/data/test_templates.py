"""Prompts by template: the same words in the same places, but for the one that decides the answer."""

from __future__ import annotations

import re

import pytest

from tracer.data import templates


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def test_years_of_a_century_that_end_after_they_began() -> None:
    """Of the four centuries whose years are two tokens in GPT-2, as of Hanna et al. 2023."""
    pairs = templates.greater_than(200)
    centuries, years = set(), set()
    for clean, corrupted, right, wrong in zip(pairs.clean, pairs.corrupted, pairs.right, pairs.wrong, strict=True):
        found = re.fullmatch(r"The (\w+) lasted from the year (\d\d)(\d\d) to the year (\d\d)", clean)
        assert found and found[1] in templates.EVENTS and found[2] == found[4]
        assert corrupted == f"The {found[1]} lasted from the year {found[2]}01 to the year {found[2]}"
        assert (int(right), int(wrong)) == (int(found[3]) + 1, int(found[3]) - 1)
        centuries.add(found[2])
        years.add(int(found[3]))
    assert centuries == {"11", "13", "15", "17"} and 12 <= min(years) < 16 and 84 < max(years) <= 88


def test_who_was_given_something() -> None:
    pairs = templates.ioi(60)
    for clean, corrupted, right, wrong in zip(pairs.clean, pairs.corrupted, pairs.right, pairs.wrong, strict=True):
        found = re.fullmatch(r"When (\w+) and (\w+) went to the (\w+), (\w+) gave a (\w+) to", clean)
        assert found and found[1] != found[2] == found[4] and {found[1], found[2]} <= set(templates.NAMES)
        assert found[3] in templates.PLACES and found[5] in templates.THINGS
        assert corrupted == clean.replace(f", {found[2]} gave", f", {found[1]} gave")
        assert (right, wrong) == (f" {found[1]}", f" {found[2]}")
    assert len(set(pairs.clean)) > 50


def test_which_argument_is_described_next() -> None:
    pairs = templates.docstring(30)
    for clean, corrupted, right, wrong in zip(pairs.clean, pairs.corrupted, pairs.right, pairs.wrong, strict=True):
        a, b, c = re.findall(r"\w+", clean.partition("(self, ")[2])[:3]
        assert len({a, b, c, wrong.strip()}) == 4 and right == f" {c}"
        assert clean.split(":param ")[1:] == [f"{a}: the {a}\n    ", f"{b}: the {b}\n    :param"]
        assert corrupted == clean.replace(f"{c}):", f"{wrong.strip()}):")
    assert templates.docstring(30) == pairs != templates.docstring(30, seed=1)


def test_as_many_as_are_asked_for() -> None:
    assert len(templates.ioi(1).clean) == 1
    assert [len(make().clean) for make in (templates.ioi, templates.greater_than, templates.docstring)] == [8, 8, 8]
    with pytest.raises(ValueError, match="n=0: at least one pair is needed"):
        templates.ioi(0)


class Words:
    """Each word a token, by its length."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [len(word) for word in words(text)]


def test_tokens_of_both_sides_and_of_the_answers() -> None:
    pairs = templates.Pairs(["a bb", "cc d"], ["a c", "cc e"], [" eee f", " g"], [" h", " iiii"])
    found = pairs.tokens(Words(), bos=7)
    assert found.clean.tolist() == [[7, 1, 2], [7, 2, 1]] and found.corrupted.tolist() == [[7, 1, 1], [7, 2, 1]]
    assert (found.right.tolist(), found.wrong.tolist()) == ([3, 1], [1, 4])
    assert pairs.tokens(Words()).clean.tolist() == [[1, 2], [2, 1]]
    with pytest.raises(ValueError, match="'a b c' has 3 tokens and 'a bb' has 2"):
        templates.Pairs(["a bb"], ["a b c"], [" x"], [" y"]).tokens(Words())
