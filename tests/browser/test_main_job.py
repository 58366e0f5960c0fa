"""The main job in a real browser: train a run, look at a head, find where it looks, switch it off, put it to the tests.

The run that is looked at is the toy, whose heads have formed.
"""

import re
import shutil

import pytest
from playwright.sync_api import expect
from streamlit.proto.Delta_pb2 import Delta
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

import tracer
from tests.browsing import losses, query, settle, visit
from tests.waiting import wait
from tracer.store import Run

pytestmark = pytest.mark.slow
TICK = 2000
"""Bytes that a tick of a live run may take; it takes 900 to 1,600, by how many numbers have changed."""


def drawn(frame: bytes) -> Delta:
    """What a message of the server draws anew; empty where it says something else."""
    message = ForwardMsg()
    message.ParseFromString(frame)
    return message.delta


def is_tick(frame: bytes) -> bool:
    """Does it draw the line that counts?"""
    return "tokens/s" in str(drawn(frame))


def test_train_watch_stop_and_resume(page, server, folder):
    directory = folder / "checkpoints" / "stopped-often"
    visit(page, f"{server}/runs")
    page.locator(".st-key-way_train").get_by_role("button", name="Train").click()
    page.get_by_role("combobox", name="Preset").click()
    page.get_by_role("option", name="induction", exact=True).click()
    settle(page)
    page.get_by_label("Steps", exact=True).fill("100000")
    page.get_by_label("Name", exact=True).fill("stopped-often")
    page.locator(".st-key-train_new").get_by_role("button", name="Train").click()
    wait(lambda: (directory / "trace.zarr").exists() and len(tracer.open_run(directory).steps) > 1)

    # It counts on while somebody types, and neither the letters nor the button are lost.
    with page.expect_websocket() as opened:
        page.goto(f"{server}/heads?run=stopped-often")
    bar = page.locator(".st-key-heading")
    line = page.locator(".st-key-run_line").get_by_test_id("stCaptionContainer")
    expect(line).to_contain_text("tokens/s")
    settle(page)
    box = page.get_by_role("textbox", name="Prompt")
    box.fill("5 7 9")
    box.press("End")
    first, handle = line.inner_text(), line.element_handle()
    stop = bar.get_by_role("button", name="Stop", exact=True).element_handle()
    frames: list[bytes] = []
    opened.value.on("framereceived", lambda frame: frames.append(frame))  # playwright wraps no builtin
    for letters in (" 11", " 5", " 7"):
        page.keyboard.type(letters)
        opened.value.wait_for_event("framereceived", is_tick)
    expect(box).to_be_focused()
    assert box.input_value() == "5 7 9 11 5 7"
    expect(line).not_to_have_text(first)
    assert handle.evaluate("node => node.isConnected") and stop.evaluate("node => node.isConnected")
    ticks = list(filter(is_tick, frames))
    part = drawn(ticks[0]).fragment_id
    sizes = [len(frame) for frame in frames if drawn(frame).fragment_id == part]
    assert part
    assert len(ticks) >= 3 and sum(sizes) / len(ticks) <= TICK

    # The bar offers what can be done after each click.
    expect(page.get_by_role("button", name="Share")).to_be_visible()
    bar.get_by_role("button", name="Stop", exact=True).click()
    for name in ("Resume", "Stop"):  # by key: a pointer can miss what the line beside it has just moved
        bar.get_by_role("button", name=name, exact=True).press("Enter")
    expect(bar.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    expect(bar.get_by_text("stopped")).to_be_visible()
    assert query(page)["run"] == ["stopped-often"] and not Run(directory).live
    shutil.rmtree(directory)


def test_look_find_and_switch_off(page, server):
    visit(page, f"{server}/heads?run=toy")
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()

    # The strongest induction head is in focus; the arrow keys move to another one, and the address remembers it.
    atlas = page.get_by_role("application", name=re.compile("attention heads"))
    atlas.focus()
    expect(page.get_by_role("heading", name=re.compile(r"L1H\d on this prompt"))).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("heading", name=re.compile(r"L0H\d on this prompt"))).to_be_visible()
    settle(page)
    assert query(page)["layer"] == ["0"]
    label = f"L0H{query(page)['head'][0]}"

    # `o` takes it out of the model: the guesses say what they were before, and later patterns are computed anew.
    guesses = page.locator(".st-key-next_token")
    expect(guesses).not_to_contain_text("→")
    page.keyboard.press("o")
    expect(page.locator(".st-key-of_a_step")).to_contain_text(f"Without {label}, ")
    expect(guesses).to_contain_text("→")
    settle(page)
    assert query(page)["off"] == [label]
    page.get_by_role("button", name="All heads on").click()
    expect(guesses).not_to_contain_text("→")
    settle(page)
    assert "off" not in query(page)

    # A word outside the vocabulary, and a hostile one: said in words, never run.
    box = page.get_by_role("textbox", name="Prompt")
    box.fill('5 <img src=x onerror="alert(1)"> 7')
    box.press("Control+Enter")
    settle(page)
    expect(page.get_by_text("not in the vocabulary")).to_be_visible()
    assert page.locator("img[src=x]").count() == 0

    # A prompt of one's own: every token is there, and the pattern is of that length.
    box.fill("5 7 9 11 5 7 9")
    box.press("Control+Enter")
    settle(page)
    expect(page.get_by_role("application", name=re.compile("8 query rows, 8 key columns"))).to_be_visible()
    assert query(page)["prompt"] == ["5 7 9 11 5 7 9"]

    # Find: where in text the same head looks; the run and the timeline stand as they stood, and are not drawn anew.
    stage = [page.locator(".st-key-run_box input"), page.get_by_role("slider", name="Step of training")]
    for part in stage:
        part.evaluate("(part) => part.dataset.stays = 'yes'")
    page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    tops = [part.bounding_box()["y"] for part in stage]
    page.get_by_role("link", name="Find").click()
    expect(page.get_by_role("heading", name=f"Where {label} looks")).to_be_visible()
    for part in stage:
        expect(part).to_have_attribute("data-stays", "yes")
    assert [part.bounding_box()["y"] for part in stage] == tops
    expect(page.locator(".passages li")).to_have_count(16)
    settle(page)

    # Ablate: everything is on; off go the induction heads, and the loss on repeated tokens goes up.
    page.get_by_role("link", name="Ablate").click()
    settle(page)
    (loss,) = losses(page)
    page.get_by_role("button", name="Induction heads").click()
    settle(page)
    before, after = losses(page)
    assert before == loss < 1.5  # of ln 64 = 4.2; its rows have fillers that training had not
    assert after > before + 1
    assert query(page)["off"][0].startswith("L1H")

    # One more by hand, in the strip above: the numbers change again.
    page.get_by_role("application", name=re.compile("attention heads")).focus()
    for key in ("Home", "o"):
        page.keyboard.press(key)
        settle(page)
    assert "L0H0" in query(page)["off"][0]
    assert losses(page)[1] != after

    # The link opens the same view in another tab.
    link, shown = page.url, losses(page)
    page.goto("about:blank")
    page.goto(link)
    settle(page)
    assert losses(page) == shown
