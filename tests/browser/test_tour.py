"""The tour done by hand in a real browser, the keys of every page, and a run that trains while somebody types."""

import re
import sys

import pytest
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

import tracer
from tests import children
from tests.browsing import ROOT, SCHEMES, SIZES, in_both_schemes, photograph, query, settle, sideways, tab
from tests.waiting import wait

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width", SIZES)
def test_the_six_steps(browser, server, folder, width):
    trace = tracer.open_run(folder / "checkpoints" / "toy").trace
    scores = trace["induction"].values[-1]
    best = "L{}H{}".format(*divmod(int(scores.argmax()), scores.shape[1]))
    size = {"width": width, "height": 900}
    with tab(browser, server, viewport=size, color_scheme=SCHEMES[width][0]) as page:
        card, following = page.locator(".st-key-tour"), page.get_by_role("button", name="Next", exact=True)

        def arrived(step):
            expect(card.get_by_role("img", name=f"Step {step} of 6")).to_be_visible()
            settle(page)
            assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0
            for scheme in in_both_schemes(page, width):
                assert sideways(page) == []
                photograph(page, f"tour-{step}-{width}-{scheme}")

        def done(step):
            expect(card.get_by_text(re.compile("^✓"))).to_be_visible()
            for scheme in in_both_schemes(page, width):
                photograph(page, f"tour-{step}-done-{width}-{scheme}")

        page.goto(f"{server}/")
        settle(page)
        page.get_by_role("button", name="Take the tour").first.click()
        arrived(1)
        focus_on(page, best)
        done(1)
        following.click()
        arrived(2)
        assert query(page)["step"] == ["0"]
        for _ in range(20):
            for _ in range(3):
                page.keyboard.press("]")
            settle(page)
            if following.is_visible():
                break
        done(2)
        following.click()
        arrived(3)
        page.get_by_role("textbox", name="Prompt").fill("5 7 9 11 5 7 9")
        page.get_by_role("textbox", name="Prompt").press("Control+Enter")
        settle(page)
        page.get_by_role("radio", name="7 9").click()
        done(3)
        following.click()
        arrived(4)
        card.get_by_text("Nothing to speak of").click()
        settle(page)
        following.click()
        arrived(5)
        page.get_by_role("button", name=re.compile(f"^Switch off {best}")).click()
        done(5)
        expect(card.get_by_text(re.compile("nats .95 % interval"))).to_be_visible()
        following.click()
        arrived(6)
        expect(card.get_by_role("button", name=re.compile("^Train it"))).to_be_enabled()
        card.get_by_role("button", name="Close").click()
        expect(card).to_have_count(0)


def focus_on(page, label):
    """With the arrow keys, from the first of two layers."""
    atlas = page.get_by_role("application", name=re.compile("attention heads"))
    atlas.focus()
    for key in ["Home", "ArrowUp", "Home", *["ArrowDown"] * int(label[1]), *["ArrowRight"] * int(label[3])]:
        page.keyboard.press(key)
        settle(page)


def test_keys_are_listed_and_do_what_they_say(page, server):
    page.goto(f"{server}/heads?run=toy")
    settle(page)
    panel = page.get_by_role("dialog", name="Keys")
    page.keyboard.press("?")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    page.get_by_role("button", name="Keyboard help").click()
    expect(panel).to_be_visible()
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
    page.keyboard.press("/")
    field = page.get_by_role("textbox", name="Find heads")
    expect(field).to_be_focused()
    page.keyboard.type("?/")
    expect(field).to_have_value("?/")
    expect(panel).to_be_hidden()
    page.goto(f"{server}/ablate?run=toy")
    settle(page)
    page.keyboard.press("/")
    expect(page.get_by_role("textbox", name="Prompt")).to_be_focused()


def test_a_live_run_counts_on_while_somebody_types(page, server, folder):
    directory, sizes, counted = folder / "checkpoints" / "alive", [], []

    def received(frame):
        message = ForwardMsg()
        message.ParseFromString(frame)
        if message.WhichOneof("type") == "delta":
            sizes.append((message.delta.fragment_id, len(frame)))
            if "tokens/s" in str(message.delta):
                counted.append(message.delta.fragment_id)
        elif message.WhichOneof("type") == "new_session":
            sizes.append(None)

    page.on("websocket", lambda socket: socket.on("framereceived", received))
    command = [sys.executable, "-m", "tracer", "train", "induction", "--run", str(directory), "--steps", "100000"]
    with (folder / "alive.txt").open("w") as output:
        process = children.start(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait(lambda: (directory / "trace.zarr").exists() and len(tracer.open_run(directory).steps) > 1)
        page.goto(f"{server}/heads?run=alive")
        line = page.locator(".st-key-run_bar [data-testid=stCaptionContainer]")
        expect(line).to_contain_text("tokens/s")
        settle(page)
        box = page.get_by_role("textbox", name="Prompt")
        box.fill("5 7 9")
        box.press("End")
        first, handle = line.inner_text(), line.element_handle()
        stop = page.get_by_role("button", name="Stop", exact=True).element_handle()
        sizes.clear()
        counted.clear()
        for letter in " 11 5 7":
            page.keyboard.type(letter)
            page.wait_for_timeout(1500)
        for _ in range(240):
            if len(counted) >= 3:
                break
            page.wait_for_timeout(500)
        expect(box).to_be_focused()
        assert box.input_value() == "5 7 9 11 5 7"
        assert line.inner_text() != first and len(counted) >= 3
        assert handle.evaluate("node => node.isConnected") and stop.evaluate("node => node.isConnected")
        ours = [size for one in sizes if one for fragment, size in [one] if fragment == counted[0]]
        assert sum(ours) / len(counted) <= 2000  # 0.9 to 1.6 kB, by how many numbers changed
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator(".st-key-run_bar")).to_contain_text("stopped")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert process.wait(300) == 130
    finally:
        process.kill()
