"""The scrubber in a real browser: what it draws needs no server, and what is let go of is kept."""

import json
import re
import shutil

import pytest
import torch
from playwright.sync_api import Locator, Page, expect

import tracer
from tests.browsing import query, settle, tab
from tracer.analysis import run_prompts
from tracer.analysis.head_roles import lost_codes, role_codes
from tracer.analysis.timeline import events_of
from tracer.analysis.training_curves import course
from tracer.pictures import scrubber
from tracer.store import nearest_row
from tracer.store.layout import Lock

pytestmark = pytest.mark.slow
PICTURE = "canvas => canvas.toDataURL()"
APART = """async (canvas, other) => {
  const image = await createImageBitmap(await (await fetch(other)).blob());
  const copy = new OffscreenCanvas(canvas.width, canvas.height), ctx = copy.getContext("2d");
  const read = (from) => {
    ctx.clearRect(0, 0, copy.width, copy.height); ctx.drawImage(from, 0, 0);
    return ctx.getImageData(0, 0, copy.width, copy.height).data;
  };
  const a = read(canvas), b = read(image);
  return a.reduce((sum, v, i) => sum + Math.abs(v - b[i]), 0) / a.length;
}"""
"""The mean difference of two pictures, of 255."""
SHOWS = "least => manyeyes.topics.get('frame').value?.index >= least"
PRESS = """keys => {
  for (const key of keys) document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}"""
"""One key after the other, however slow the machine is."""
ROLES = """() => {
  const frame = manyeyes.topics.get("frame").value, all = (n) => [...Array(n).keys()];
  const each = (of) => all(frame.layers).map((layer) => all(frame.heads).map((head) => of(layer, head)));
  return [frame.step, each(frame.role), each(frame.lost)];
}"""
WATCH = """canvas => {
  window.seen = new Set();
  const look = () => { window.seen.add(canvas.toDataURL()); window.watch = requestAnimationFrame(look); };
  look();
}"""


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="Step of training")


def atlas(page: Page) -> Locator:
    return page.get_by_role("application", name=re.compile("attention heads"))


def pattern(page: Page) -> Locator:
    return page.get_by_role("application", name=re.compile("^Attention pattern of L"))


def said(part: Locator, name: str) -> str:
    text = part.get_attribute(name)
    assert text is not None
    return text


def place(page: Page) -> int:
    return int(said(slider(page), "aria-valuenow"))


def step(page: Page) -> str:
    return said(slider(page), "aria-valuetext").removeprefix("step ").split(", ")[0].replace(",", "")


def score(page: Page) -> float:
    """Of the chosen head."""
    found = re.search(r"Selected L\dH\d: .*Induction score ([\d.]+)", said(atlas(page), "aria-label"))
    assert found is not None
    return float(found[1])


@pytest.fixture
def page(browser, server):
    """In a profile of its own: a clock stands still for all tabs of one, and is not the machine's afterwards."""
    with tab(browser, server, device_scale_factor=1) as page:
        yield page


@pytest.fixture
def sent(page, server) -> list:
    """The Heads page of the toy, and every message it sends from then on."""
    messages = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda message: messages.append(message)))
    page.goto(f"{server}/heads?run=toy")
    settle(page)
    slider(page).wait_for()
    settle(page)
    messages.clear()
    return messages


def stop_the_clock(page: Page) -> None:
    """A film goes on by `page.clock.run_for`, however slow the machine is."""
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)


def drag_to(page: Page, share: float) -> None:
    """Press at the start of the timeline and move; the button stays down."""
    box = slider(page).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 9, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 9 + share * (box["width"] - 18), box["y"] + 40, steps=8)


def test_play_moves_every_picture_without_the_server(page, sent):
    before = atlas(page).evaluate(PICTURE), pattern(page).evaluate(PICTURE)
    stop_the_clock(page)
    page.get_by_role("button", name="Play the training").click()
    page.clock.run_for(500)
    assert page.evaluate(SHOWS, 2)
    assert atlas(page).evaluate(PICTURE) != before[0] and pattern(page).evaluate(PICTURE) != before[1]
    assert sent == []
    for number in ("exact", "exactly", "induction_words"):  # of the step before
        expect(page.locator(f".st-key-{number}")).to_be_hidden()
    page.get_by_role("button", name="Pause").focus()  # a focused button keeps its own space bar
    page.keyboard.press(" ")
    page.clock.resume()
    settle(page)
    assert len(sent) == 1 and query(page)["step"] == [step(page)]
    expect(page.locator(".st-key-exact")).to_be_visible()


def test_letting_go_keeps_the_step_and_the_picture(page, sent):
    old = atlas(page).evaluate(PICTURE)
    drag_to(page, 0.5)
    page.wait_for_function(SHOWS, arg=1)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    held, shown = atlas(page).evaluate(PICTURE), step(page)
    assert sent == [] and held != old
    atlas(page).evaluate(WATCH)
    page.mouse.up()
    settle(page)
    page.wait_for_function("() => manyeyes.topics.get('frame').value === null")
    assert query(page)["step"] == [shown] == [step(page)]
    assert old not in page.evaluate("() => { cancelAnimationFrame(window.watch); return [...window.seen]; }")
    assert atlas(page).evaluate(APART, held) < 1.5 < atlas(page).evaluate(APART, old)

    # The link opens at the same step, and the last step needs no mention.
    page.reload()
    settle(page)
    slider(page).wait_for()
    assert step(page) == shown
    slider(page).press("End")
    settle(page)
    assert "step" not in query(page) and place(page) == int(said(slider(page), "aria-valuemax"))


def test_roles_events_and_guesses_follow_the_film(page, sent, folder):
    run = tracer.open_run(folder / "checkpoints" / "toy")
    line = page.locator(".st-key-next_token .next")
    at_rest, trace = line.inner_text(), run.trace
    events = events_of(course(trace))
    assert events and max(role_codes(trace)[-1].flat) > 0
    told = set()
    for share in (0.1, 0.5, 0.9):
        drag_to(page, share)
        page.wait_for_function(SHOWS, arg=0)
        at, found, lost = page.evaluate(ROLES)
        assert found == role_codes(trace.sel(step=[at], method="nearest"))[0].tolist()
        assert lost == lost_codes(trace.sel(step=slice(at)))[-1].tolist()
        before = [event for event in events if event.step <= at]
        ends = f", after step {before[-1].step:,}: {before[-1].says}" if before else ""
        expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(f"^step {at:,}, .*\\d{re.escape(ends)}$"))
        told.add(ends)
        page.keyboard.press("Escape")
        page.mouse.up()
    assert len(told) > 1

    tokens = torch.tensor([run_prompts.encode(run, run_prompts.example(run)).tokens])
    drag_to(page, 0.3)
    page.wait_for_function(SHOWS, arg=0)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    at = page.evaluate("manyeyes.topics.get('frame').value.step")
    with torch.no_grad():
        shares, ids = run.model(at)(tokens)[0, -1].softmax(-1).sort(descending=True)
    said = line.inner_text().split()
    assert said[2 : said.index("Loss")] == [
        word
        for share, i in zip(shares[:5], ids[:5], strict=True)
        for word in (f"{i}", f"{share:.2f}" if share >= 0.005 else "<.01")
    ]
    page.keyboard.press("Escape")
    page.mouse.up()
    settle(page)
    assert line.inner_text() == at_rest


def test_on_a_page_of_records_lines_and_the_strip_follow(page, server, folder):
    messages = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda message: messages.append(message)))
    page.goto(f"{server}/training?run=toy")
    settle(page)
    slider(page).wait_for()
    curves = page.locator(".part.curves")
    curves.first.wait_for()
    settle(page)
    messages.clear()
    lines = curves.first.locator("canvas").last
    strip = page.locator(".st-key-me-strip canvas").first
    before, heads = lines.evaluate(PICTURE), strip.evaluate(PICTURE)
    drag_to(page, 0.2)
    page.wait_for_function("() => manyeyes.topics.get('moment').value !== null")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert f"{page.evaluate('manyeyes.topics.get(`moment`).value')}" == step(page)
    assert lines.evaluate(PICTURE) != before and messages == []
    steps = tracer.open_run(folder / "checkpoints" / "toy").steps
    nearest = steps[nearest_row(steps, int(step(page)))]
    assert page.evaluate("manyeyes.topics.get('frame').value.step") == nearest and strip.evaluate(PICTURE) != heads
    expect(page.locator(".st-key-strip_note")).to_be_hidden()
    page.mouse.up()
    settle(page)
    expect(page.locator(".st-key-strip_note")).to_be_visible()
    page.wait_for_function("() => manyeyes.topics.get('moment').value === null")
    assert query(page)["step"] == [step(page)]


def test_keys(page, sent):
    last = place(page)
    page.get_by_role("textbox", name="Prompt").focus()
    page.keyboard.type("[[ ")
    assert place(page) == last
    for _ in range(3):
        page.keyboard.press("Backspace")
    page.get_by_role("heading", name="All heads on this prompt").click()
    settle(page)
    sent.clear()
    page.evaluate(PRESS, "[[[]")
    assert place(page) == last - 2
    settle(page)
    assert len(sent) == 1 and query(page)["step"] == [step(page)]
    stop_the_clock(page)
    page.keyboard.press(" ")
    page.get_by_role("button", name="Pause").wait_for()
    page.keyboard.press(" ")
    page.get_by_role("button", name="Play the training").wait_for()
    page.clock.resume()
    settle(page)

    slider(page).press("Home")
    assert place(page) == 0
    settle(page)
    assert query(page)["step"] == ["0"]
    drag_to(page, 0.7)
    page.keyboard.press("Escape")
    assert place(page) == 0
    page.mouse.up()
    settle(page)
    assert query(page)["step"] == ["0"]


def test_a_reader_who_wants_no_motion_gets_steps(browser, server):
    with tab(browser, server, reduced_motion="reduce") as page:
        page.goto(f"{server}/heads?run=toy")
        settle(page)
        page.get_by_role("button", name="Play the training").wait_for()
        began = page.evaluate("performance.now()")
        page.get_by_role("button", name="Play the training").click()
        page.wait_for_function(SHOWS, arg=2)
        assert page.evaluate("performance.now()") - began > 350


def test_what_stands_below_the_timeline_follows(page, sent):
    # The timeline stays over the heads.
    page.mouse.move(700, 700)
    page.mouse.wheel(0, 500)
    page.wait_for_function("() => document.querySelector('.st-key-stage_timeline').getBoundingClientRect().top < 80")
    expect(page.get_by_role("button", name="Play the training")).to_be_in_viewport()

    # A held cell is printed exactly.
    pattern(page).focus()
    pattern(page).press("ArrowUp")
    settle(page)
    line = page.get_by_text(re.compile(r"^query \d+ “.+” → key \d+ “.+”: \d\.\d{6}$"))
    held = line.inner_text()
    pattern(page).press("Escape")
    settle(page)
    expect(line).not_to_have_text(held)  # again the last token's

    # Strongest first, and the keys follow.
    page.get_by_text("Strongest first").click()
    settle(page)
    expect(atlas(page)).to_have_attribute("aria-label", re.compile("the strongest by induction score first"))
    atlas(page).focus()
    atlas(page).press("Home")
    settle(page)
    first = score(page)
    atlas(page).press("ArrowRight")
    settle(page)
    assert first >= score(page)

    # Heads that do not fit are dimmed.
    bright = atlas(page).evaluate(PICTURE)
    page.get_by_role("textbox", name="Find heads").fill("L1H2")
    page.get_by_role("textbox", name="Find heads").press("Enter")
    settle(page)
    expect(atlas(page)).to_have_attribute("aria-label", re.compile("1 of them fit what is looked for: L1H2"))
    assert atlas(page).evaluate(PICTURE) != bright


def test_the_film_of_a_live_run_comes_in_pieces_and_is_the_same(page, server, folder):
    runs = folder / "checkpoints"
    run = tracer.open_run(shutil.copytree(runs / "toy", runs / "moving"))
    path = run.dir / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "training"}))
    found, steps = {}, run.steps
    lock = Lock(run.dir)
    try:
        for name in ("toy", "moving"):
            page.goto(f"{server}/heads?run={name}&prompt=5 7 9 11 5 7 9&step={steps[0]}")
            settle(page)
            slider(page).wait_for()
            settle(page)
            for share in (0.3, 1.0):  # in the first piece, and in the last
                drag_to(page, share)
                page.wait_for_function(SHOWS, arg=1)
                found[name, share] = page.evaluate("() => [...manyeyes.topics.get('frame').value.thumbs]")
                page.keyboard.press("Escape")
                page.mouse.up()
                settle(page)
        pieces = page.evaluate(
            "() => [...manyeyes.reels.values()].map((reel) => [...reel.keys()].sort((a, b) => a - b))"
        )
    finally:
        lock.release()
        shutil.rmtree(run.dir)
    assert pieces == [list(range(0, len(steps), scrubber.REEL))] and len(pieces[0]) > 1
    for share in (0.3, 1.0):
        assert found["toy", share] == found["moving", share]
    assert found["toy", 0.3] != found["toy", 1.0]
