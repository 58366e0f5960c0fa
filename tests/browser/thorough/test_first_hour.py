"""What a live run does while somebody looks at it: it begins, moves on, is removed."""

import json
import shutil
from contextlib import contextmanager

import pytest
import zarr
from playwright.sync_api import expect

from tests.browsing import settle, visit
from tests.waiting import wait
from tracer.store.layout import UNCOMMITTED, Lock

pytestmark = pytest.mark.slow
IN_STEP = """(() => { // what rings every 150 ms rings at once, as it also does by chance
  const { setInterval, clearInterval } = window, rings = new Map();
  let last = -1;
  window.setInterval = (ring, every, ...more) => {
    if (every !== 150) return setInterval(ring, every, ...more);
    rings.set(--last, ring);
    return last;
  };
  window.clearInterval = (one) => rings.delete(one) || clearInterval(one);
  setInterval(() => { for (const ring of [...rings.values()]) ring(); }, 150);
})()"""
HIGH = "document.querySelector('[data-testid=stMain]').scrollHeight"


@contextmanager
def training(folder, name):
    """The toy as a run that this process trains, up to the last but one of its snapshots."""
    directory = shutil.copytree(folder / "checkpoints" / "toy", folder / "checkpoints" / name)
    meta = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**meta, "name": name, "status": "training"}))
    last = sorted((directory / "snapshots").iterdir())[-1].rename(directory / "last")
    lock = Lock(directory)
    try:
        yield directory, lambda: last.rename(directory / "snapshots" / f"{meta['step']:06}.safetensors")
    finally:
        lock.release()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("view", ["heads", "training"])
def test_a_live_run_is_removed_while_it_is_open(page, server, folder, view):
    with training(folder, "gone") as (directory, _):
        visit(page, f"{server}/{view}?run=gone")
        expect(page.get_by_text("training", exact=False).first).to_be_visible()
        shutil.rmtree(directory)
        expect(page.get_by_text("This cannot be shown.")).to_be_visible()
        settle(page)
        assert page.get_by_test_id("stException").count() == 0


def test_passages_stand_still_while_a_run_trains(page, server, folder):
    """The page's two pulses, of its bar and of what it draws, ask at the same moment: both are answered."""
    page.add_init_script(IN_STEP)
    with training(folder, "going") as (_, go_on):
        visit(page, f"{server}/find?run=going")
        newest = page.locator(".st-key-read_newest").get_by_role("button")
        expect(newest).to_be_disabled()
        passages = page.locator(".st-key-me-passages li")
        expect(passages).to_have_count(16)
        settle(page)
        read, high = passages.all_inner_texts(), page.evaluate(HIGH)
        go_on()
        expect(newest).to_be_enabled()
        settle(page)
        assert passages.all_inner_texts() == read and page.evaluate(HIGH) == high
        for name in ("Training", "Find"):  # who comes back reads what is newest
            page.get_by_test_id("stTopNavLink").filter(has_text=name).click()
            expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
            settle(page)
        expect(newest).to_be_disabled()
        wait(lambda: passages.all_inner_texts() not in ([], read))


def test_a_page_before_the_first_record_is_whole_once_it_comes(page, server, folder):
    with training(folder, "new") as (directory, _):
        trace = directory / "trace.zarr"
        later = shutil.copytree(trace, directory / "later")
        zarr.open_array(trace / "step").with_config({"write_empty_chunks": True})[:] = UNCOMMITTED
        page.goto(f"{server}/heads?run=new")
        expect(page.get_by_text("Nothing is recorded yet")).to_be_visible()
        find, share = page.get_by_role("textbox", name="Find heads"), page.get_by_role("button", name="Share")
        expect(find).to_have_count(0)
        expect(share).to_have_count(0)
        shutil.rmtree(trace)
        later.rename(trace)
        expect(find).to_be_enabled()
        expect(share).to_be_visible()
