"""A page as one file: every block in its place, what it says is text, and what it cannot hold is named."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.pictures.test_page import HOSTILE, Read
from tracer.pictures import taken
from tracer.pictures.page import Note
from tracer.pictures.picture import Picture

IMAGE = "data:image/svg+xml;base64,PHN2Zy8+"

ABOUT = {"run": "demo", "step": 3, "head": [0, 1]}
DRAWN = {
    "loss": Picture("curves", {"value": "L0H1"}, b"bytes"),
    "window": Picture("overview", {"value": []}, None),
    "keys": Picture("keys", {}, None),
}


def file(*blocks: dict[str, Any], notes: tuple[Note, ...] = (), drawn: Mapping[str, Picture] = DRAWN) -> str:
    placed = [{"at": None, **block} for block in blocks]
    return taken.taken("Page · demo", "step 3", placed, drawn, notes, about=ABOUT, foot="Made here.")


def body(text: str) -> str:
    found = re.search(r"<body>(.*?)<script", text, re.DOTALL)
    assert found
    return found[1]


def part(key: str) -> dict[str, Any]:
    return {"kind": "part", "key": key}


def test_a_picture_goes_in_as_it_was_drawn() -> None:
    found = json.loads(Read(file(part("loss"), part("loss"), part("keys"))).whole("script"))
    assert found["about"] == {**ABOUT, "taken": True}
    (mount,) = found["mounts"]
    assert base64.b64decode(mount["blob"]) == b"bytes" and mount["cue"] == {"value": "L0H1", "seen": 0}
    assert (mount["part"], mount["key"]) == ("curves", "loss")


@pytest.mark.parametrize(
    ("block", "html"),
    [
        ({"kind": "heading", "level": 3, "text": "A & B"}, "<h3>A &amp; B</h3>"),
        ({"kind": "heading", "level": 1, "text": "x"}, "<h2>x</h2>"),
        ({"kind": "heading", "level": 2, "text": "**a** :material/check: `b`"},
         "<h2><strong>a</strong>  <code>b</code></h2>"),
        ({"kind": "note", "text": "x"}, '<div class="note"><p>x</p>'),
        ({"kind": "markdown", "text": ":red-badge[✓ is] [there](http://a/b) <b>"}, "<p>✓ is  there  &lt;b&gt;</p>"),
        ({"kind": "markdown", "text": "- a\n- b"}, "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ({"kind": "markdown", "text": "|a|\n|-|\n|b|"}, "<td>b</td>"),
        ({"kind": "text", "text": "**x**"}, '<p class="text">**x**</p>'),
        ({"kind": "markup", "text": "<style>a{}</style><ol class=x><li onclick=y><span>1</span><b>c</b></ol>"},
         "<ol><li> 1 <b>c</b></ol>"),
        ({"kind": "markup", "text": "<table><tr><td>a<br><img src=x></table>"}, "<table><tr><td>a<br> </table></div>"),
        ({"kind": "markup", "text": f'<td class=x><img onload=x src="{IMAGE}" style=y>'},
         f'<td><img class="drawing" alt="" src="{IMAGE}">'),
        ({"kind": "markup", "text": '<b><img src="https://x.y/z.svg">a'}, "<b> a"),
        ({"kind": "markup", "text": '<b><img src="data:text/html;base64,PHN2Zy8+">a'}, "<b> a"),
        ({"kind": "code", "text": "\nx"}, '<pre tabindex="0">\n<code>\nx</code></pre>'),
        ({"kind": "fact", "label": "Loss", "text": "2.1", "note": ""},
         '<dl class="facts"><div><dt>Loss</dt><dd>2.1</dd></div></dl>'),
        ({"kind": "table", "rows": [["a", "w"], ["b", "0.00619500083848834"]], "more": 0},
         '<td class="number">0.006195</td>'),
        ({"kind": "table", "rows": [["a"], ["1.2.3.4.5.6.7"]], "more": 4}, "<td>1.2.3.4.5.6.7</td>"),
        ({"kind": "table", "rows": [["a"], ["1517412348329984"]], "more": 0}, ">1.517e+15</td>"),
        ({"kind": "table", "rows": [["a"], ["6,500,608"]], "more": 0}, ">6,500,608</td>"),
        ({"kind": "table", "rows": [["a"], ["b"]], "more": 4}, "And 4 more rows"),
        ({"kind": "still", "svg": "<svg/>", "alt": "a chart"}, 'base64,PHN2Zy8+" alt="a chart"'),
        ({"kind": "still", "svg": "<svg/>", "alt": "a chart"}, taken.STILL),
        ({"kind": "still", "svg": None, "alt": ""}, taken.ONLY_THERE),
        (part("window"), taken.ASKING["overview"]),
        (part("window"), '<div class="mount st-key-window" inert>'),
        ({"kind": "button", "text": "Search"}, "Not asked for. On the page: “Search”."),
    ],
)  # fmt: skip
def test_a_block_in_words(block: dict[str, Any], html: str) -> None:
    assert html in body(file(block))


def test_a_button_is_named_where_nothing_else_is_shown() -> None:
    heading, button = {"kind": "heading", "level": 2, "text": "x"}, {"kind": "button", "text": "Search"}
    for inside, named in ([], 1), ([part("loss")], 0), ([{"kind": "note", "text": "x"}], 1):
        assert body(file(heading, *inside, button, heading, part("loss"))).count("Not asked for") == named


def test_when_and_where_stand_in_one_line() -> None:
    places = [{"kind": "place", "text": text} for text in ("Since step 75", "L0H1", "<b>")]
    html = body(file({"kind": "text", "text": "x"}, *places, {"kind": "text", "text": "y"}))
    assert '<p class="text">x</p><p class="place">Since step 75 · L0H1 · &lt;b&gt;</p><p class="text">y</p>' in html


def test_columns_stay_side_by_side() -> None:
    def text(word: str, at: list[int] | None) -> dict[str, Any]:
        return {"kind": "text", "text": word, "at": at}

    html = body(file(text("a", None), text("b", [0, 0]), text("c", [0, 2]), text("d", [0, 0]), text("e", [1, 1])))
    rows = re.findall(r'<div class="row (of\d)">(.*?)</div></div>', html, re.DOTALL)
    assert [name for name, _ in rows] == ["of1", "of2", "of1"]
    assert [re.findall(r">(\w)</p>", row) for _, row in rows] == [["a"], ["b", "d", "c"], ["e"]]
    assert rows[1][1].split('<div class="column">')[1].count("<p") == 2


def test_choices_stand_in_one_line() -> None:
    choices = [
        {"kind": "choice", "label": "Steps", "value": "log"},
        {"kind": "choice", "label": "A", "value": "\u202eb"},
    ]
    html = body(file(*choices, {"kind": "prompt", "text": "not here"}))
    assert "<p>step 3 · Steps: \u2068log\u2069 · A: \u2068\u202eb\u2069</p>" in html and "not here" not in html


@pytest.mark.parametrize("text", HOSTILE)
def test_what_it_says_is_text(text: str) -> None:
    named = {**DRAWN, "loss": Picture("curves", {"value": text}, None)}
    kinds = ("heading", "note", "markdown", "markup", "text", "code", "fact", "choice", "button", "place")
    blocks = [{"kind": kind, "level": 2, "text": text, "label": text, "value": text, "note": text} for kind in kinds]
    table = {"kind": "table", "rows": [[text], [text]], "more": 0}
    found = Read(file(*blocks, table, part("loss"), {"kind": "still", "svg": text, "alt": text}, drawn=named))
    assert found.count("script") == 2 and found.count("style") == 1
    assert all(not name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert [attributes["src"] for name, attributes in found.tags if name == "img"] == [
        f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"
    ]
    assert json.loads(found.whole("script"))["mounts"][0]["cue"] == {"value": text, "seen": 0}


@pytest.mark.parametrize(("shown", "taken_along"), [("line", ["line", "line-reel-0"]), ("a", ["a"])])
def test_the_pieces_of_a_film_go_along_with_its_timeline(shown: str, taken_along: list[str]) -> None:
    drawn = {
        "line": Picture("scrubber", {}, b""),
        "line-reel-0": Picture("reel", {}, b"ab"),
        "a": Picture("atlas", {}, b""),
    }
    found = json.loads(Read(file(part(shown), drawn=drawn)).whole("script"))
    assert [mount["key"] for mount in found["mounts"]] == taken_along
