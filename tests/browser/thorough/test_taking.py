"""Pictures to take away, in a browser: files of every picture, and the whole view without a server or a network."""

import base64
import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import tracer
from tests.browsing import settle
from tests.pictures.test_page import made, seen
from tracer.pictures.page import Mount
from tracer.pictures.page import page as page_of
from tracer.pictures.picture import Picture
from tracer.pictures.scales import Scale

pytestmark = pytest.mark.slow

PROMPT = "5 7 9 11 13 5 7 9 11 13 5 7"
HOSTILE = [
    "=cmd()",
    "+1+1",
    "-2",
    "@x",
    "a,b",
    'say "no"',
    "new\nline",
    "</script><img src=x onerror=alert(1)>",
    "\u202eevil",
]
SVG = "{http://www.w3.org/2000/svg}"
PNG = "data:image/png;base64,"
PAINTED = "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
FITS = """() => new Promise((done) => {
  const look = () => (document.documentElement.scrollWidth <= innerWidth ? done() : requestAnimationFrame(look));
  look();
})"""
BECOMES = """(c, url) => new Promise((done) => {
  const look = () => (c.toDataURL() === url ? done() : requestAnimationFrame(look));
  look();
})"""
CHANGES = BECOMES.replace("===", "!==")
APART = """async (urls) => { // mean difference of two pictures, drawn at one size and seen as 48 x 48 blocks
  const images = await Promise.all(urls.map(async (src) => {
    const image = Object.assign(new Image(), { src });
    await image.decode();
    return image;
  }));
  const { naturalWidth: w, naturalHeight: h } = images.at(-1);
  const [a, b] = images.map((image) => {
    let from = image;
    for (const [width, height] of [[w, h], [48, 48]]) {
      const canvas = Object.assign(document.createElement("canvas"), { width, height }), ctx = canvas.getContext("2d");
      ctx.imageSmoothingQuality = "high"; ctx.drawImage(from, 0, 0, width, height);
      from = canvas;
    }
    return from.getContext("2d").getImageData(0, 0, 48, 48).data;
  });
  return a.reduce((sum, v, i) => sum + Math.abs(v - b[i]), 0) / a.length / 255;
}"""


@pytest.fixture
def offline(browser, tmp_path):
    """offline(html): a tab with this file, cut off from everything; it must ask for nothing and log no error."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, offline=True, reduced_motion="reduce")
    asked, problems = [], []

    def opened(text: str):
        (tmp_path / "view.html").write_text(text, "utf-8")
        tab = context.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.goto(f"file://{tmp_path / 'view.html'}")
        return tab

    yield opened
    assert asked == [f"file://{tmp_path / 'view.html'}"] and problems == []
    context.close()


@pytest.fixture(scope="module")
def shown(folder):
    return tracer.show(folder / "checkpoints" / "toy", PROMPT)


def saved(tab, part, kind: str) -> tuple[str, bytes]:
    """Name and bytes of what a part saves."""
    part.hover()
    with tab.expect_download() as download:
        part.get_by_role("button", name=f"Save as {kind}").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def safe(data: bytes) -> list[str]:
    """The texts of an SVG, which holds nothing that runs or is fetched."""
    nodes = list(ElementTree.fromstring(data).iter())
    tags = {node.tag.removeprefix(SVG) for node in nodes}
    assert tags.isdisjoint({"script", "style", "foreignObject", "iframe", "a", "use", "animate", "set"})
    for node in nodes:
        assert not [name for name in node.attrib if name.lower().startswith("on")]
        for name in ("href", "{http://www.w3.org/1999/xlink}href"):
            assert node.get(name, PNG).startswith(PNG)
    return ["".join(node.itertext()) for node in nodes if node.tag == f"{SVG}text"]


def apart(tab, svg: bytes, png: bytes) -> float:
    kinds = (("svg+xml", svg), ("png", png))
    return tab.evaluate(APART, [f"data:image/{kind};base64,{base64.b64encode(data).decode()}" for kind, data in kinds])


def touch(view) -> None:
    """What a reader does with a view: choose a head in the atlas, then another one by a key, then play back."""
    atlas, pattern = view.locator(".atlas canvas"), view.locator(".pattern canvas").first
    expect(pattern).to_have_attribute("aria-label", re.compile(r"L1H\d: 13 query rows, 13 key columns"))
    assert atlas.evaluate(PAINTED) > 20 and pattern.evaluate(PAINTED) > 20
    before = pattern.evaluate("(c) => c.toDataURL()")
    atlas.click(position={"x": 40, "y": 60})
    expect(pattern).to_have_attribute("aria-label", re.compile("L0H0"))
    expect(view.get_by_role("heading", name="L0H0 on this prompt")).to_be_visible()
    pattern.evaluate(CHANGES, before)
    atlas.press("ArrowRight")
    expect(pattern).to_have_attribute("aria-label", re.compile("L0H1"))
    expect(view.locator(".token_view").get_by_role("button", name="L0H1")).to_be_visible()
    now, strip = pattern.evaluate("(c) => c.toDataURL()"), view.get_by_role("slider", name="Step of training")
    strip.press("Home")
    expect(view.locator(".scrubber .step")).to_have_text("step 0")
    pattern.evaluate(CHANGES, now)
    strip.press("End")
    expect(view.locator(".scrubber .step")).not_to_have_text("step 0")
    pattern.evaluate(BECOMES, now)


def test_a_file_works_without_a_network(offline, shown):
    tab = offline(shown.html)
    touch(tab)
    for width in (1300, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate(FITS)
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.emulate_media(color_scheme="dark")
    assert (light, tab.evaluate("getComputedStyle(document.body).backgroundColor")) == (
        "rgb(255, 255, 255)",
        "rgb(15, 18, 24)",
    )
    expect(tab.locator(".atlas")).to_have_attribute("data-mode", "dark")


def test_a_notebook_shows_the_same(offline, shown):
    tab = offline(f"<!DOCTYPE html><body>{shown._repr_html_()}</body>")
    view = tab.frame_locator("iframe")
    expect(view.get_by_role("heading", name="Every head of toy")).to_be_visible()
    frame = tab.frames[1]
    touch(frame)
    name, data = saved(tab, frame.locator(".part.atlas"), "CSV")
    assert name.startswith("atlas-toy-step-") and len(rows(data)) == 9


def test_a_picture_is_the_same_as_svg_and_as_png(offline, shown):
    tab = offline(shown.html)
    for part, labels in [
        ("atlas", ["L0H0", "L1H3"]),
        ("pattern", ["5", "13", "Attention"]),
        ("scrubber", ["0"]),
        ("token_view", ["L1", "H3"]),
    ]:
        place = tab.locator(f".part.{part}")
        (svg_name, svg), (png_name, png) = saved(tab, place, "SVG"), saved(tab, place, "PNG")
        texts = safe(svg)
        assert set(labels) <= set(texts), (part, texts)
        assert svg_name.removesuffix(".svg") == png_name.removesuffix(".png")
        assert apart(tab, svg, png) < 0.005, part
    assert apart(tab, svg, saved(tab, tab.locator(".part.atlas"), "PNG")[1]) > 0.02  # another picture is told apart


def test_the_numbers_are_those_of_the_picture(offline):
    shown = seen(2, 2, 6)
    tab = offline(made(shown, focus=(1, 0)))
    name, data = saved(tab, tab.locator(".part.pattern"), "CSV")
    top, *table = rows(data)
    assert name == "pattern-demo-step-400.csv" and top == ["query \\ key", *[f"{i} ·t{i}" for i in range(6)]]
    values = np.array([[float(cell or 0) for cell in row[1:]] for row in table])
    assert np.abs(values - shown.thumbs[1, 0]).max() < 1e-4
    assert [[cell == "" for cell in row[1:]] for row in table] == [[k > q for k in range(6)] for q in range(6)]


def test_hostile_tokens_stay_text_in_every_file(offline):
    scale = Scale("Change", lo=-1, palette="change")
    cue = {
        "tokens": HOSTILE, "breaks": [], "before": [0.5] * 9, "after": [-0.25, *[None] * 8], "scale": scale.payload(),
        "names": ["before", "after"], "value": 0, "seen": 0,
    }  # fmt: skip
    about = {"run": "a/../b", "step": 3, "head": [0, 0]}
    text = page_of("Tokens", "", [Mount("tokens", Picture("tokens", cue))], about=about, foot="")
    tab = offline(text)
    name, data = saved(tab, tab.locator(".part.tokens"), "CSV")
    top, *table = rows(data)
    assert name == "tokens-a-..-b-step-3.csv" and top == ["position", "token", "before", "after", "Change"]
    started = ["'=cmd()", "'+1+1", "-2", "'@x", *HOSTILE[4:]]
    assert [row[1] for row in table] == started and [row[2] for row in table] == ["0.5"] * 9
    assert [row[3] for row in table] == ["-0.25", *[""] * 8] and [row[4] for row in table] == ["-0.75", *[""] * 8]
    texts = safe(saved(tab, tab.locator(".part.tokens"), "SVG")[1])
    assert {"=cmd()", 'say "no"', "</script><img src=x onerror=alert(1)>"} <= set(texts)


@pytest.mark.parametrize("name", ["heads", "training", "gradients", "ablate"])
def test_every_picture_of_a_page_can_be_saved(page, server, name):
    page.goto(f"{server}/{name}?run=toy&step=0")
    settle(page)
    if name == "gradients":
        expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    parts = page.locator(".part:has(.save)")
    expect(parts.first).to_be_visible()
    expect(parts.nth(2)).to_be_attached()
    for part in parts.filter(visible=True).all():
        bar = part.get_by_role("toolbar", name="Save this picture").bounding_box()
        for canvas in part.locator("canvas").all():
            box = canvas.bounding_box()
            if box and box["height"]:
                beside = bar["x"] >= box["x"] + box["width"] or bar["x"] + bar["width"] <= box["x"]
                above = bar["y"] + bar["height"] <= box["y"]
                assert beside or above or bar["y"] >= box["y"] + box["height"]
        (svg_name, svg), (_, png), (_, data) = (saved(page, part, kind) for kind in ("SVG", "PNG", "CSV"))
        assert safe(svg) and svg_name.endswith("-toy-step-0.svg")
        assert png.startswith(b"\x89PNG") and len(rows(data)) > 1
        assert apart(page, svg, png) < 0.02, svg_name  # the fonts differ


def test_the_bar_is_one_stop_for_a_keyboard(page, server):
    page.goto(f"{server}/heads?run=toy")
    settle(page)
    bar = page.locator(".part.atlas").get_by_role("toolbar", name="Save this picture")
    page.mouse.move(0, 0)
    assert bar.evaluate("(bar) => getComputedStyle(bar).opacity") == "0"
    bar.get_by_role("button", name="Save as PNG").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert bar.evaluate("(bar) => bar.getRootNode().activeElement.textContent") == "CSV"
    page.wait_for_function("(bar) => getComputedStyle(bar).opacity === '1'", arg=bar.element_handle())
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "atlas-toy.csv"
    assert bar.locator("[tabindex='0']").count() == 1


def test_the_view_is_taken_from_the_page(page, server, offline):
    page.goto(f"{server}/heads?run=toy")
    settle(page)
    page.get_by_role("textbox", name="Prompt").fill(PROMPT)
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    settle(page)
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download this view").click()
    assert re.fullmatch(r"heads-toy-step-\d+\.html", download.value.suggested_filename)
    touch(offline(Path(download.value.path()).read_text("utf-8")))
    link = page.get_by_test_id("stCode").first.inner_text()
    assert link.startswith(f"{server}/heads?run=toy&step=") and "prompt=5+7+9" in link
    page.goto(link)
    settle(page)
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value(PROMPT)


def test_two_outputs_of_a_notebook_keep_apart(offline, shown, folder):
    other = tracer.show(folder / "checkpoints" / "toy", "1 2 3 1 2 3", step=0, head=(0, 1))
    tab = offline(f"<!DOCTYPE html><body>{shown._repr_html_()}{other._repr_html_()}</body>")
    expect(tab.frame_locator("iframe >> nth=1").locator(".pattern canvas").first).to_be_visible()
    one, two = tab.frames[1:]
    touch(one)
    expect(two.locator(".pattern canvas").first).to_have_attribute("aria-label", re.compile("L0H1: 7 query rows"))
    expect(two.locator(".scrubber .step")).to_have_text("step 0")
    two.get_by_role("slider", name="Step of training").press("End")
    expect(two.locator(".scrubber .step")).not_to_have_text("step 0")
    expect(one.locator(".pattern canvas").first).to_have_attribute("aria-label", re.compile("L0H1: 13 query rows"))
