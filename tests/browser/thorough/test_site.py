"""A published site in a real browser, opened from the disk: from the index to a run, whose film plays."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import tracer
from tracer.site import publish

pytestmark = pytest.mark.slow
ROLE = """() => { const f = manyeyes.topics.get("frame").value; return f && [f.step, f.role(0, 0)]; }"""


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_colleague_without_a_server_sees_the_training(browser, folder: Path, tmp_path: Path, width, scheme) -> None:
    run = tracer.open_run(folder / "checkpoints" / "toy")
    index = publish([run], tmp_path / "site", prompt="5 7 9 11 5 7 9")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(index.as_uri())
    expect(page.locator(".card img")).to_have_js_property("complete", True)
    assert page.locator(".card img").evaluate("image => image.naturalWidth") > 100
    page.get_by_role("link", name=re.compile("^toy")).click()
    page.get_by_role("application", name=re.compile("attention heads")).wait_for()
    slider = page.get_by_role("slider", name="Step of training")
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("^step 0,"))
    page.wait_for_function(ROLE)
    assert page.evaluate(ROLE) == [0, 0]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert said == [] and all(url.startswith(("file:", "data:", "blob:")) for url in asked)
    context.close()
