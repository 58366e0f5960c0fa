"""Tokens, prompts and names that would like to be markup, on every page: they are text, in its place."""

import json
import shutil
import warnings
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
import zarr
from playwright.sync_api import Page, expect
from zarr.errors import ZarrUserWarning

from dashboard.navigation import TITLES
from tests.browsing import SIZES, query, settle, sideways, tab
from tracer.pictures.payload import visible
from tracer.presets import preset
from tracer.training.loop import train

pytestmark = pytest.mark.slow
SCRIPT, IMAGE = "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>"
MARKDOWN = [
    "**b**",
    "[x](javascript:alert(1))",
    "![x](http://elsewhere.test/x.png)",
    "$x$",
    ":material/home:",
    ":red[x]",
]
TOKENS = [
    SCRIPT,
    IMAGE,
    "</div></style></textarea>",
    "\u202egnp.exe",
    "\0",
    "\n",
    "👩‍🚀",
    "x" * 300,
    "&amp;",
    "`c`",
    *MARKDOWN,
]
NAME = "<img src=x onerror=alert(1)> **b** $x$ :material-home: [x](javascript:alert(1))"
"""A run's directory cannot hold a slash."""
ALIVE = """() => {
  const found = [], images = "[onerror], img[src=x], img[src*=elsewhere]";
  const alive = `script:not([src]):not([type]), ${images}, a[href^=javascript], .katex`;
  const walk = (root) => {
    found.push(...[...root.querySelectorAll(alive)].map((node) => node.outerHTML));
    for (const node of root.querySelectorAll("*")) {
      if (node.shadowRoot) walk(node.shadowRoot);
      if (node.matches("strong, em") && node.textContent === "b") found.push(node.outerHTML);
      if (node.dataset.testid === "stIconMaterial" && node.textContent === "home") found.push(node.outerHTML);
    }
  };
  walk(document.querySelector("[data-testid=stApp]"));
  return found;
}"""


def poison(run) -> None:
    """Give the last tokens that this run learnt, its kept prompts and their names other texts."""
    path = run.dir / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    first = len(tokenizer["model"]["vocab"]) - len(TOKENS)
    tokenizer["model"]["vocab"] = {piece: i for piece, i in tokenizer["model"]["vocab"].items() if i < first}
    del tokenizer["model"]["merges"][-len(TOKENS) :]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tokenizer["added_tokens"] += [{"id": first + i, "content": token, **plain} for i, token in enumerate(TOKENS)]
    path.write_text(json.dumps(tokenizer), "utf-8")
    told = json.loads((run.dir / "run.json").read_text("utf-8"))
    (run.dir / "run.json").write_text(json.dumps({**told, "digests": {}}), "utf-8")  # a stranger's has none, or others
    trace: Any = zarr.open_group(run.dir / "trace.zarr", mode="r+")
    prompts, strings = trace["prompt"], trace["prompt_tokens"].attrs["strings"]
    prompts[:] = [f"{token} {i}" for i, token in enumerate(TOKENS[: prompts.shape[0]])]
    trace["prompt_tokens"].attrs["strings"] = [[*TOKENS, *row][: len(row)] for row in strings]
    with warnings.catch_warnings(action="ignore", category=ZarrUserWarning):  # not in the specification yet
        zarr.consolidate_metadata(trace.store)


@pytest.fixture(scope="module")
def hostile(folder, server, tmp_path_factory):
    """The address of the dashboard over one such run, as it was trained and without its weights, beside others."""
    texts = tmp_path_factory.mktemp("hostile")
    words = [f"{'abcdefgh'[i % 8]}{'aeiou'[i % 5]}{'mnrst'[i // 5 % 5]}" for i in range(40)]
    for i in range(30):
        text = " ".join(words[(i + j * j) % 40] for j in range(400))
        (texts / f"{i}.txt").write_text(text, "utf-8")
    toy = preset("induction").config
    run = train(
        replace(
            toy, run=str(folder / "checkpoints" / NAME), steps=4, device="cpu",
            model=replace(toy.model, n_ctx=2048, d_model=16, n_heads=2),
            data=replace(toy.data, corpus=str(texts), vocab_size=257 + 2 * len(TOKENS), val_share=0.3),
            optim=replace(toy.optim, batch_size=1),
            record=replace(toy.record, val_rows=1, every=2, snapshot_every=2, log_every=2),
        ), quiet=True,
    )  # fmt: skip
    poison(run)
    shutil.copytree(run.dir, folder / "checkpoints" / "kept")
    shutil.rmtree(folder / "checkpoints" / "kept" / "snapshots")
    yield server
    for name in (NAME, "kept"):
        shutil.rmtree(folder / "checkpoints" / name)


@pytest.fixture
def page(browser, hostile):
    """A narrow tab, where what is too long would stick out."""
    with tab(browser, hostile, viewport={"width": 390, "height": SIZES[390]}) as page:
        yield page


def is_harmless(page: Page) -> None:
    settle(page)
    assert page.get_by_test_id("stException").all_inner_texts() == []
    assert page.evaluate(ALIVE) == []
    assert sideways(page) == []


def test_every_page_shows_them_as_text(browser, hostile):
    """One link, and the menu from there, which keeps every choice."""
    prompt = "".join(TOKENS) + "bam " + "".join(TOKENS)
    with tab(browser, hostile) as page:
        page.goto(f"{hostile}/?run={quote(NAME)}&prompt={quote(prompt)}&off=L0H1&token=2&compare={quote(NAME)}")
        for name, title in TITLES.items():
            if name != "runs":
                page.get_by_test_id("stTopNavLink").filter(has_text=title).click()
                page.wait_for_url(f"**/{name}?**")
            for width, height in reversed(SIZES.items()):  # wide last, where the menu is not folded
                page.set_viewport_size({"width": width, "height": height})
                is_harmless(page)
            assert query(page)["run"] == [NAME] and {"prompt", "off", "token"} <= query(page).keys()
            if name == "heads":
                for token in TOKENS:
                    expect(page.get_by_text(visible(token)).first).to_be_attached()


@pytest.mark.parametrize("name", ["heads", "ablate"])
def test_what_a_run_without_weights_kept(page, hostile, name):
    page.goto(f"{hostile}/{name}?run=kept")
    is_harmless(page)
    if name == "heads":
        expect(page.get_by_text(visible(IMAGE)).first).to_be_attached()


def test_two_thousand_tokens(page, hostile):
    page.goto(f"{hostile}/heads?run={quote(NAME)}")
    settle(page)
    typed = "".join(token for token in TOKENS if token != "\0")
    times = -(-2000 // (len(TOKENS) - 1))
    page.get_by_role("textbox", name="Prompt").fill(typed * times)
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    is_harmless(page)
    expect(page.get_by_role("application", name=f"{times * (len(TOKENS) - 1) + 1} queries")).to_be_visible()


@pytest.mark.parametrize("links", ["run", "compare prompt", "other_prompt kept measure find view"])
def test_links_of_strangers(page, hostile, links):
    """One that is refused does not hide the others beside it."""
    known = "" if links == "run" else f"run={quote(NAME)}&"
    words = quote(IMAGE + " ".join(MARKDOWN) + chr(0x202E))
    page.goto(f"{hostile}/heads?{known}{'&'.join(f'{link}={words}' for link in links.split())}")
    is_harmless(page)
