"""Where things stand on the screen: sections side by side begin on one line."""

import pytest

from tests.browsing import visit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("address", "pairs"), [
    ("heads?run=toy&layer=1&head=0", [("All heads on this prompt", "L1H0 on this prompt")]),
    ("training?run=toy", [("Copying", "Use of context")]),
])  # fmt: skip
def test_sections_side_by_side_begin_on_one_line(page, server, address, pairs):
    visit(page, f"{server}/{address}")
    for names in pairs:
        left, right = (page.get_by_role("heading", name=name, exact=True).bounding_box() for name in names)
        assert left["x"] + 300 < right["x"] and abs(left["y"] + left["height"] - right["y"] - right["height"]) <= 2


DRAWN = """async ([font, text]) => {
  await document.fonts.load(font);
  const context = Object.assign(document.createElement("canvas"), { width: 400 }).getContext("2d");
  Object.assign(context, { font, fontKerning: "none" });
  const draw = (parts) => {
    context.clearRect(0, 0, 400, 150);
    parts.reduce((x, part) => (context.fillText(part, x, 40), x + context.measureText(part).width), 10);
    return context.canvas.toDataURL();
  };
  return [draw([text]), draw([...text])];
}"""


@pytest.mark.parametrize("font", ["24px Inter", "24px 'JetBrains Mono'"])
def test_each_character_of_a_token_is_drawn_as_it_was_written(page, server, font):
    """The fonts as they come draw -> as an arrow, != as one sign, and 7 x1 as a product."""
    visit(page, f"{server}/heads?run=toy")
    for text in ("->", "!=", ">=", "==", "7 x1"):
        assert page.evaluate("font => document.fonts.check(font)", font)
        whole, apart = page.evaluate(DRAWN, [font, text])
        assert whole == apart, text
