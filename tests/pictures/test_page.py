"""One HTML file: what it says cannot break out of it, what it holds is what was put in, and it stays small."""

import base64
import hashlib
import json
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracer.pictures import assets, page, payload, portable, token_view
from tracer.pictures.colours import FONTS, SURFACES
from tracer.pictures.page import Note
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.scales import Scale

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\u202eevil",
    "a\nb",
    "'\"&amp;",
    "{head}",
    "\u2028",
]


class Read(HTMLParser):
    """Every tag with its attributes, and the text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.inside.append((self.cdata_elem, data))
        else:
            self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def whole(self, tag: str, nth: int = 0) -> str:
        return [text for name, text in self.inside if name == tag][nth]


def attention(n_layers: int, n_heads: int, n: int, seed: int = 0) -> np.ndarray:
    """Heads that look at the first token, the one before, nearby ones, a copy, or nowhere much."""
    draw = np.random.default_rng(seed)
    q, k = np.indices((n, n))
    kinds = [
        np.where(k == 0, 6.0, 0),
        np.where(k == q - 1, 8.0, 0),
        -0.15 * (q - k),
        np.where(k == q - 20, 6.0, 0),
        0 * q,
    ]
    out = np.empty((n_layers, n_heads, n, n))
    for at in np.ndindex(n_layers, n_heads):
        scores = kinds[draw.integers(5)] + draw.normal(size=(n, n)) * draw.choice([0.5, 1.5, 3.0])
        weights = np.exp(np.where(k > q, -np.inf, scores))
        out[at] = weights / weights.sum(1, keepdims=True)
    return out


def seen(n_layers: int, n_heads: int, n: int, strings: list[str] | None = None) -> PromptPatterns:
    patterns, strings = attention(n_layers, n_heads, n), strings or [f" t{i}" for i in range(n)]
    return PromptPatterns(
        (), 0, strings, [True] * n_layers, [(n, n)] * n_layers, [], patterns,
        lambda layer, head, rows, cols: patterns[layer, head, rows, cols], lambda *_: patterns[0, 0],
    )  # fmt: skip


def made(shown: PromptPatterns, told: portable.Told | None = None, **options: Any) -> str:
    shape = shown.thumbs.shape[:2]
    measures = {"induction": np.linspace(0, 1, np.prod(shape)).reshape(shape)}
    given: dict[str, Any] = {"measures": measures, "scales": {"induction": Scale("Induction score")}, "focus": (0, 0)}
    return portable.heads_file(shown, told or portable.Told("demo", "1.0", 400), measure="induction", **given | options)


def held(text: str) -> dict[str, dict]:
    """The mounts of a file by their keys."""
    return {one["key"]: one for one in json.loads(Read(text).whole("script"))["mounts"]}


def test_the_dashboard_has_the_same_theme() -> None:
    theme = tomllib.loads((ROOT / "dashboard/.streamlit/config.toml").read_text())["theme"]

    def named(name: str) -> str:
        return re.sub(r"-(.)", lambda m: m[1].upper(), name)

    assert {m: {named(k): v for k, v in SURFACES[m].items()} for m in SURFACES} == {
        mode: {named(k): theme[mode][named(k)] for k in SURFACES[mode]} for mode in ("light", "dark")
    }
    assert {named(k): v for k, v in FONTS.items()} == {named(k): theme[named(k)] for k in FONTS}
    for mode in SURFACES:
        assert set(SURFACES[mode]) | set(FONTS) >= {m for m in re.findall(r"--st-([a-z-]+)", used()) if m}


def used() -> str:
    styles = "".join(path.read_text() for path in assets.HERE.rglob("*.css"))
    assert "var(--st-" in styles
    return styles


@pytest.mark.parametrize("name", sorted(assets.folders()))
def test_every_part_has_one_entry(name: str) -> None:
    entry = assets.entry(name)
    assert entry.count("entry = ") == 1 and "export default" not in entry and "</script" not in entry


def test_only_the_script_and_the_style_of_the_file_are_allowed() -> None:
    read = Read(made(seen(2, 2, 8)))
    policy = next(a["content"] for t, a in read.tags if t == "meta" and "http-equiv" in a) or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == digest(read.whole("script", 1))
    assert rules["style-src"] == digest(read.whole("style"))
    assert (read.count("script"), read.count("style"), read.count("link"), read.count("img")) == (2, 1, 0, 0)
    assert not [a for _, a in read.tags if {"src", "style", "onclick"} & set(a)]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out(text: str) -> None:
    told = portable.Told(text, "1.0", 400, text, text, f"https://x/?{text}", [(text, text)])
    shown = replace(seen(2, 2, 6, [text] * 6), names=[text, text])
    plain, hostile = (
        Read(made(seen(2, 2, 6), portable.Told("a", "1.0", 400, "a", "a", "https://x", [("a", "a")]))),
        Read(made(shown, told)),
    )
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    said = json.loads(hostile.whole("script"))
    assert said["about"]["run"] == text and text in "".join(hostile.words)
    assert "<" not in hostile.whole("script")
    head, _ = payload.unpack(base64.b64decode(held(made(shown))["reading"]["blob"]))
    assert head["tokens"] == [payload.visible(text)] * 6


@pytest.mark.parametrize(
    ("link", "anchors"),
    [("https://a.b/c", 1), ("http://a.b", 1), ("javascript:alert(1)", 0), ("/heads?run=a", 0)],
)
def test_only_addresses_are_links(link: str, anchors: int) -> None:
    read = Read(made(seen(1, 1, 4), portable.Told("demo", "1.0", 400, link=link)))
    assert read.count("a") == anchors and link in "".join(read.words)


@pytest.mark.parametrize(
    ("link", "local"),
    [("http://127.0.0.1:8501/x", True), ("http://localhost/", True), ("http://[::1]:1/", True),
     ("https://runs.org/127.0.0.1", False), ("", False)],
)  # fmt: skip
def test_a_link_that_others_cannot_follow_says_so(link: str, local: bool) -> None:
    assert page.is_local(link) == local
    assert ("only there)" in page.notes_html([Note("x", link=link)])) == local


def test_the_cells_are_the_patterns() -> None:
    shown = seen(2, 3, 9)
    text = made(shown, focus=(1, 2))
    mounts = held(text)
    head, arrays = payload.unpack(base64.b64decode(mounts["reading"]["blob"]))
    q, k = np.tril_indices(9)
    assert np.abs(arrays["shares"] / 65534 - shown.thumbs[:, :, q, k]).max() <= 1 / 131068 + 1e-6
    assert mounts["atlas"]["template"]["values"] == [[[0.0, 0.2, 0.4], [0.6, 0.8, 1.0]]]
    assert mounts["pattern"]["template"]["tokens"] == head["tokens"] == [f"·t{i}" for i in range(9)]
    assert mounts["atlas"]["cue"]["value"] == mounts["pattern"]["cue"]["head"] == [1, 2]
    assert "8 bits" not in text


def test_rough_cells_are_half_as_large_and_near() -> None:
    patterns = attention(2, 2, 40)
    blob = token_view.pack(
        lambda layer, head: patterns[layer, head], ["a"] * 40, there=np.ones((2, 2)), causal=[True, True]
    )
    rough = portable.rough(blob)
    (one, exact), (two, near) = payload.unpack(blob), payload.unpack(rough)
    assert len(rough) < 0.7 * len(blob) and near["shares"].dtype == np.uint8
    assert np.abs((near["shares"] / 255.0) ** 2 - exact["shares"] / 65534).max() <= 0.004
    assert one["version"] != two["version"] and portable.rough(rough) == rough


def test_144_heads_on_64_tokens_are_700_kb() -> None:
    norms = np.random.default_rng(1).random((12, 12, 64)) + 0.5
    text = made(seen(12, 12, 64), norms=norms)
    assert len(text.encode()) <= 700_000 and "Shares are kept in 8 bits" in text
    assert len(payload.unpack(base64.b64decode(held(text)["reading"]["blob"]))[0]["tokens"]) == 64


def test_of_a_long_prompt_the_end_is_held() -> None:
    shown = seen(12, 12, 200)
    head, arrays = payload.unpack(base64.b64decode(held(text := made(shown))["reading"]["blob"]))
    n = len(head["tokens"])
    assert 64 <= n < 200 and head["start"] == 200 - n and f"The last {n} of 200 tokens." in text
    assert held(text)["pattern"]["template"]["starts"] == [200 - n, 200 - n]
    last = np.asarray(shown.thumbs[3, 4, -1, 200 - n :])
    row = arrays["shares"][3, 4, -n:]
    value = (row / 255.0) ** 2 if row.dtype == np.uint8 else row / 65534
    assert np.abs(value - last).max() <= 0.004
    assert "scrubber" in held(made(seen(1, 1, 4), film=b"film")) and "scrubber" not in held(made(shown, film=b"film"))


def test_layers_of_different_widths_and_what_was_not_measured() -> None:
    shown = seen(2, 3, 6)
    shown.thumbs[1, 2] = np.nan
    values = np.array([[1.0, np.nan, 0.5], [0.25, np.inf, np.nan]])
    mounts = held(made(shown, measures={"induction": values}))
    assert mounts["atlas"]["template"]["exist"] == [[1, 1, 1], [1, 1, 0]]
    assert mounts["atlas"]["template"]["values"] == [[[1.0, None, 0.5], [0.25, None, None]]]
    for focus in ((1, 2), (2, 0), (0, 3), (-1, 0)):
        with pytest.raises(ValueError, match="there is no head L"):
            made(shown, focus=focus)
