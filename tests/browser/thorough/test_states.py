"""An empty folder, a run that trains, one that diverged, one that is broken: whole and quiet in a browser."""

import json
import shutil

import pytest
from playwright.sync_api import expect

from tests.browsing import ROOT, findings, photograph, served, sideways, tab, visit
from tracer.store.layout import Lock

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The address of the dashboard over a folder without runs."""
    with served(ROOT / "dashboard" / "app.py", tmp_path_factory.mktemp("empty")) as url:
        yield url


@pytest.fixture(scope="module")
def states(folder):
    """Copies of the toy, each in the state that it is called, for as long as these tests."""
    checkpoints = folder / "checkpoints"
    where = {"step": 300, "where": "blocks.1.attn.hook_q", "layer": 1, "head": 2, "value": None}
    changes = {
        "live": {"status": "training"},
        "diverged": {"status": "diverged", "divergence": {"step": 300, "replayed_from": 0, "non_finite": where}},
        "broken": None,
    }
    for name, facts in changes.items():
        shutil.copytree(checkpoints / "toy", checkpoints / name)
        path = checkpoints / name / "run.json"
        meta = json.loads(path.read_text("utf-8"))
        path.write_text("{" if facts is None else json.dumps({**meta, **facts}), "utf-8")
    lock = Lock(checkpoints / "live")
    yield
    lock.release()
    for name in changes:
        shutil.rmtree(checkpoints / name)


def is_well(page, name):
    photograph(page, name)
    assert findings(page) == []
    assert sideways(page) == []


@pytest.mark.parametrize("name", ["runs", "heads", "specimens"])
def test_an_empty_folder(browser, empty, name):
    """The other pages say what Heads says."""
    with tab(browser, empty) as page:
        visit(page, f"{empty}/{name}")
        expect(page.get_by_text("Train all" if name == "specimens" else "Train the demo").first).to_be_visible()
        is_well(page, f"empty-{name}")


@pytest.mark.parametrize(("name", "run", "words"), [
    ("runs", "live", "diverged"), ("heads", "live", "training"),
    ("training", "diverged", "not a finite number at step 300"), ("heads", "broken", "is not readable JSON"),
])  # fmt: skip
@pytest.mark.usefixtures("states")
def test_a_run_in_this_state(browser, server, name, run, words):
    with tab(browser, server, viewport={"width": 390, "height": 844}) as page:
        visit(page, f"{server}/{name}?run={run}")
        expect(page.get_by_text(words).first).to_be_visible()
        is_well(page, f"{run}-{name}")


def test_the_ends_of_a_scale_stand_clear_of_what_is_said_beside_it(browser, server):
    with tab(browser, server, viewport={"width": 390, "height": 844}) as page:
        visit(page, f"{server}/heads?run=theirs&measure=entropy")
        end, note = page.locator(".atlas .legend .tick").nth(1), page.locator(".atlas .legend .note").first
        one, other = (place.evaluate("node => node.getBoundingClientRect().toJSON()") for place in (end, note))
        assert one["right"] <= other["left"] or one["bottom"] <= other["top"]
