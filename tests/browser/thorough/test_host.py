"""How Streamlit builds a page, as the rules and the scripts lean on it: each selector meets something."""

import json
import shutil

import pytest

from dashboard.navigation import TITLES
from dashboard.shared.tour.deeds import story
from dashboard.theme import STYLES
from tests.browsing import settle, tab
from tests.dashboard.test_host import SCRIPT
from tests.watching import headless
from tracer.store import Run

pytestmark = pytest.mark.slow
WATCH = """(css, script) => { // `met`: what has matched something in this tab, even for a moment
  const sheet = new CSSStyleSheet(), found = script.match(/[[]data-testid=[^']*/g);
  const visit = (rules) => {
    for (const rule of rules) {
      found.push(...(rule.selectorText?.split(/,(?![^(]*[)])/) ?? []));
      visit(rule.cssRules ?? []);
    }
  };
  sheet.replaceSync(css);
  visit(sheet.cssRules);
  window.wanted = [...new Set(found.map((one) => one.trim()).filter((one) => one.includes("data-testid")))];
  window.met = new Set(JSON.parse(sessionStorage.met ?? "[]")); // on the pages before
  const look = () => {
    const before = met.size;
    for (const one of wanted) if (!met.has(one) && document.querySelector(one)) met.add(one);
    if (met.size > before) sessionStorage.met = JSON.stringify([...met]);
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true, attributeFilter: ["data-drawn"] });
}"""


def everything_on_runs(page):
    """Python in colours, what is wrong with a form, and the welcome of those who have runs."""
    page.locator(".st-key-way_watch button").first.click()
    settle(page)  # a dialog that is still being drawn loses what is typed into it
    page.locator("[data-testid=stCode] .token.string").first.wait_for()
    page.keyboard.press("Escape")
    settle(page)
    page.locator(".st-key-way_train button").first.click()
    settle(page)
    heads = page.get_by_role("spinbutton", name="Heads")
    heads.fill("7")
    heads.press("Enter")
    page.locator("[class*=st-key-problem_]").get_by_text("7").first.wait_for()
    page.keyboard.press("Escape")
    settle(page)
    page.locator(".st-key-welcome_band [data-drawn]").first.wait_for()


WAITS = ' [data-testid="stSkeleton"]'
"""What stands in for a part until it is there: of a quick machine nobody sees it, so where it would be is enough."""


@pytest.fixture
def states(folder):
    """A run of a model without heads."""
    path = folder / "checkpoints" / "states"
    with pytest.warns(RuntimeWarning, match="records states without heads"):
        headless.train(headless.language(), headless.rows(4), path, every=2)
    yield path
    shutil.rmtree(path)


@pytest.mark.usefixtures("states")
def test_every_selector_meets_something(browser, server, folder):
    told = story(Run(folder / "checkpoints" / "toy"))
    assert told
    addresses = ["", f"ablate?run=toy&tour=5&off={told.label}", "heads?run=none-such"]  # a deed done; a refusal
    addresses += ["heads?run=states", "heads?run=toy&cell=5.2", "heads?run=toy&off=L0H1"]
    addresses += [
        f"heads?run=long&prompt={'%20'.join(str(5 + i % 40) for i in range(400))}"
    ]  # too long for one picture
    files = ", ".join(json.dumps(path.read_text("utf-8")) for path in (STYLES, SCRIPT))
    with tab(browser, server) as page:
        page.add_init_script(f"({WATCH})({files})")
        met = set[str]()

        def look_round():
            settle(page)
            met.update(page.evaluate("[...met]"))
            waits = [one for one in page.evaluate("wanted") if WAITS in one and one not in met]
            met.update(one for one in waits if page.locator(one.split(WAITS)[0]).count())

        page.goto(f"{server}/runs?run=toy")
        settle(page)
        everything_on_runs(page)
        look_round()
        for name, title in list(TITLES.items())[1:]:
            page.get_by_test_id("stTopNavLink").filter(has_text=title).click()
            page.wait_for_url(f"**/{name}?**")
            settle(page)
            if name == "training":
                page.locator(".st-key-health_chip button").first.click()
                page.locator(".st-key-health").wait_for()
            look_round()
        for address in addresses:
            page.goto(f"{server}/{address}")
            look_round()
        page.set_viewport_size({"width": 390, "height": 844})
        page.get_by_role("button", name="Menu", exact=True).wait_for()
        look_round()
        wanted = page.evaluate("wanted")
    unmet = [one for one in wanted if one not in met]
    assert len(wanted) > 20
    assert unmet == []
