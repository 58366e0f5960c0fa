"""One state: the address, the controls and what is computed say the same, whichever way a page was reached."""

import re
import shutil
from dataclasses import replace
from urllib.parse import urlencode, urlparse

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from dashboard.navigation import TITLES
from tests.browsing import STILL, query, settle, tab, visit
from tracer.presets import preset
from tracer.training.loop import train

pytestmark = pytest.mark.slow
PAGES = tuple(TITLES)
CHOSEN = {"run": "toy-1", "step": "20", "prompt": "3 5 7 3 5", "layer": "0", "head": "2", "measure": "previous_token",
          "log": "True"}  # fmt: skip
"""Nothing of it is what a page shows unasked: first run, last step, example, strongest head, induction, linear."""
SHOWN = {
    "runs": (),
    "heads": ("run", "measure", "prompt", "step", "head"),
    "find": ("run", "measure", "step", "head"),
    "training": ("run", "measure", "step", "head", "axis"),
    "phases": ("run", "step", "axis"),
    "gradients": ("run", "step", "head", "axis"),
    "ablate": ("run", "step", "head"),
    "circuits": ("run", "step", "prompt", "head"),
    "specimens": (),
}
"""What each page has a control for, or names in what it drew."""
SIGNS = {
    "run": ["Run=toy-1"],
    "measure": [
        "Colour heads by=Previous-token attention",
        "Rank heads by=Previous-token attention",
        "Second measure=Previous-token attention",
    ],
    "prompt": ["Prompt=3 5 7 3 5"],
    "step": ["Step=20", "step 20"],
    "head": ["L0H2"],
    "axis": ["Step axis=log"],
}
"""How a page says that it goes by a choice: one of these is there."""
SAYS = """() => {
  const said = [];
  const label = (node) => node.getAttribute("aria-label") ?? node.closest("[aria-label]")?.getAttribute("aria-label");
  const walk = (node) => {
    if (node.nodeType === Node.TEXT_NODE) { if (node.data.trim()) said.push(node.data.trim()); return; }
    if (node.nodeType === Node.ELEMENT_NODE) {
      if (["STYLE", "SCRIPT"].includes(node.tagName) || getComputedStyle(node).display === "none") return;
      if (node.ariaValueText) said.push(`${label(node)}=${node.ariaValueText}`);
      else if (node.type === "checkbox") said.push(`${label(node)}=${node.checked}`);
      else if (node.matches("input, textarea")) said.push(`${label(node)}=${node.value}`);
      else if (node.ariaChecked === "true") said.push(`${label(node.parentElement)}=${node.textContent}`);
      else if (node.ariaLabel) said.push(node.ariaLabel);
      if (node.shadowRoot) walk(node.shadowRoot);
    }
    node.childNodes.forEach(walk);
  };
  const main = document.querySelector("[data-testid=stMain]");
  if (main && document.querySelector("[data-testid=stApp]").dataset.testScriptState === "notRunning") walk(main);
  return said;
}"""
"""Every word, value and choice on the page, pictures included."""


CALM = {"reduced_motion": "reduce"}
"""The film on Runs stands still, so that the page says one thing."""
HOLDS = """choices => {
  const address = new URLSearchParams(location.search);
  return Object.entries(choices).every(([name, value]) => address.get(name) === value);
}"""


@pytest.fixture(scope="module")
def two_runs(made_once):
    """Two seeds of the toy, far from trained: every 5th step recorded, a snapshot at every 20th."""

    def make(folder):
        toy = preset("induction").config
        record = replace(toy.record, every=5, snapshot_every=20, val_rows=4, repeat_rows=8)
        quick = replace(toy, device="cpu", steps=60, optim=replace(toy.optim, batch_size=16), record=record)
        for seed in (0, 1):
            train(replace(quick, run=str(folder / f"checkpoints/toy-{seed}"), seed=seed), quiet=True)

    return made_once("two-runs", make)


@pytest.fixture(scope="module")
def one_server(two_runs, folder, server):
    """The address of the dashboard over these too, for as long as these tests."""
    runs = [shutil.copytree(run, folder / "checkpoints" / run.name) for run in (two_runs / "checkpoints").iterdir()]
    yield server
    for run in runs:
        shutil.rmtree(run)


@pytest.fixture
def page(browser, one_server):
    with tab(browser, one_server, **CALM) as page:
        yield page


@pytest.fixture(scope="module")
def said(browser, one_server):
    """What every page says to somebody who opens the link."""
    found = {}
    with tab(browser, one_server, **CALM) as page:
        for name in PAGES:
            visit(page, link(one_server, name))
            page.wait_for_function(STILL, arg=[1500, 8000])  # a busy machine pauses between two parts of a page
            found[name] = page.evaluate(SAYS)
            for choice in SHOWN[name]:
                assert any(sign in line for line in found[name] for sign in SIGNS[choice]), (name, choice, found[name])
    return found


def link(server: str, name: str) -> str:
    return f"{server}/{name.removeprefix('runs')}?{urlencode(CHOSEN)}"


def turn(page: Page, name: str) -> None:
    page.get_by_test_id("stTopNavLink").filter(has_text=TITLES[name]).click()


def comes_to_say(page: Page, said: list[str]) -> None:
    try:
        page.wait_for_function(f"said => JSON.stringify(({SAYS})()) === JSON.stringify(said)", arg=said, polling=50)
    except TimeoutError:
        settle(page)
        assert page.evaluate(SAYS) == said


def reaches(page: Page, name: str, said: dict[str, list[str]]) -> None:
    """The page, at the address of the choices, says what it says to somebody who opens that address."""
    comes_to_say(page, said[name])
    assert urlparse(page.url).path == urlparse(link("", name)).path
    assert {key: value for key, (value,) in query(page).items()} == CHOSEN


def test_a_way_through_the_menu_keeps_every_choice(page, one_server, said):
    """Round the menu, four pages further each time: every page is left, and reached."""
    page.goto(link(one_server, PAGES[0]))
    way = [PAGES[4 * turns % len(PAGES)] for turns in range(len(PAGES) + 1)]
    reaches(page, way[0], said)
    for there in way[1:]:
        turn(page, there)
        reaches(page, there, said)
    for there in (way[-2], way[-3]):
        page.go_back()
        reaches(page, there, said)


def choose(page: Page, label: str, option: str) -> None:
    """One option of a select box, as a person does it."""
    box = page.get_by_role("combobox", name=label).first
    box.scroll_into_view_if_needed()
    settle(page)  # scrolling closes the list
    box.click()
    page.get_by_role("option", name=option, exact=True).click()


def slide(page: Page, key: str, step: str) -> None:
    """The step of the page's timeline, one key further; a page that has just been turned to draws it anew."""
    settle(page)
    page.get_by_role("slider", name="Step of training").press(key)
    at(page, step)


def at(page: Page, step: str) -> None:
    """The timeline stands at this step."""
    slider = page.get_by_role("slider", name="Step of training")
    expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^step {step},"))


def holds(page: Page, **choices: str) -> None:
    """The address says these choices."""
    page.wait_for_function(HOLDS, arg=choices)
    settle(page)


def follows(page: Page, **choices: str) -> None:
    """So does the page, which says what it says to somebody who opens that address."""
    holds(page, **choices)
    now, address = page.evaluate(SAYS), page.url
    page.reload()
    comes_to_say(page, now)
    assert page.url == address


def test_what_is_chosen_by_hand_on_one_page_holds_on_the_next(page, one_server):
    visit(page, one_server)
    turn(page, "heads")
    settle(page)
    choose(page, "Run", "toy-1")
    holds(page, run="toy-1")
    choose(page, "Colour heads by", "Previous-token attention")
    follows(page, run="toy-1", measure="previous_token")
    turn(page, "find")
    slide(page, "ArrowLeft", "40")
    follows(page, step="40", measure="previous_token")
    turn(page, "ablate")
    page.get_by_role("tab", name="Your text").click()
    page.get_by_role("textbox", name="Prompt").fill("3 5 7 3 5")
    page.get_by_role("textbox", name="Prompt").blur()
    slide(page, "ArrowLeft", "20")
    follows(page, step="20", prompt="3 5 7 3 5")
    turn(page, "training")
    page.get_by_role("radio", name="log").click()
    follows(page, step="20", log="True")
    turn(page, "gradients")
    choose(page, "Head", "L0H2")
    follows(page, **CHOSEN)
    turn(page, "circuits")
    follows(page, **CHOSEN)


def test_back_undoes_a_choice_by_hand(page, one_server):
    visit(page, f"{one_server}/ablate?run=toy-1&step=60")
    entries = page.evaluate("history.length")
    for step in ("40", "20"):
        slide(page, "ArrowLeft", step)
        holds(page, step=step)
    assert page.evaluate("history.length") == entries + 2
    for step in ("40", "60"):
        page.go_back()
        follows(page, step=step)
        at(page, step)


def test_a_page_without_the_chosen_step_says_which_one_it_shows(page, one_server):
    visit(page, f"{one_server}/training?run=toy-1&step=35")
    entries = page.evaluate("history.length")
    turn(page, "heads")
    follows(page, step="40")
    assert page.evaluate("history.length") == entries + 1  # no entry for the step that is not there
    page.go_back()
    follows(page, step="35")


def test_clicks_that_cut_a_page_short_leave_its_controls_as_they_were(page, one_server, said):
    visit(page, link(one_server, "find"))
    for there in ("ablate", "heads", "training", "find", "circuits", "training"):
        turn(page, there)
        page.wait_for_function("name => location.pathname === '/' + name", arg=there)
    reaches(page, "training", said)
    turn(page, "find")
    reaches(page, "find", said)
