"""Colours that can be read by everyone, numbers that can be read at a glance."""

import math
import re
import tomllib
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

import tracer
from dashboard import theme
from tracer.measures import MEASURES
from tracer.pictures.colours import LINES, _channels, contrast, lightness, ramp
from tracer.pictures.scales import of_measure

DASHBOARD = Path(theme.__file__).parent
CONFIG = tomllib.loads((DASHBOARD / ".streamlit" / "config.toml").read_text("utf-8"))
MODES = ("light", "dark")


def blend(colour: str, page: str, share: float) -> str:
    pairs = [(int(colour[i : i + 2], 16), int(page[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(c * share + p * (1 - share)):02x}" for c, p in pairs)


def test_contrast_known_answers():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert contrast("#123456", "#123456") == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("page", ["backgroundColor", "secondaryBackgroundColor"])
@pytest.mark.parametrize(
    "ink", ["textColor", "linkColor", "codeTextColor", "redColor", "orangeColor", "greenColor", "grayColor"]
)
def test_text_meets_wcag_aa(mode, page, ink):
    assert contrast(CONFIG["theme"][mode][ink], CONFIG["theme"][mode][page]) >= 4.5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("share", [0.6, 0.64])
def test_muted_text_meets_wcag_aa(mode, share):
    """Streamlit's captions are the text colour at 60 %, the components' labels at 64 %."""
    colours = CONFIG["theme"][mode]
    page = colours["backgroundColor"]
    assert contrast(blend(colours["textColor"], page, share), page) >= 4.5


@pytest.mark.parametrize("mode", MODES)
def test_buttons_stand_out_and_carry_white(mode):
    colours = CONFIG["theme"][mode]
    assert contrast(colours["primaryColor"], colours["backgroundColor"]) >= 3
    assert contrast("#ffffff", colours["primaryColor"]) >= 4.5


@pytest.mark.parametrize("mode", MODES)
def test_primary_buttons_are_ink(mode):
    """By styles.css: words that can be read, on what stands out from the page, also under the pointer."""
    rule = theme.STYLES.read_text("utf-8").split("stBaseButton-primaryFormSubmit", 1)[1]
    pairs = re.findall(r"(?:color|background): light-dark\((#\w+), (#\w+)\)", rule)[:4]
    words, button, edge, hovered = (pair[mode == "dark"] for pair in pairs)
    assert button == edge and min(contrast(words, one) for one in (button, hovered)) >= 4.5
    assert contrast(button, CONFIG["theme"][mode]["backgroundColor"]) >= 7


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_layers", [1, 2, 8, 12, 48])
def test_lines_stand_out(mode, n_layers):
    colours = theme.layer_colours(n_layers)[mode]
    assert len(colours) == n_layers
    assert min(contrast(c, CONFIG["theme"][mode]["backgroundColor"]) for c in colours) >= 3


@pytest.mark.parametrize("name", ["attention", "score"])
@pytest.mark.parametrize("mode", MODES)
def test_sequential_ramps_leave_the_page_evenly(name, mode):
    light = [lightness(c) for c in theme.palette(name)[mode]]
    strides = np.diff(light) * (-1 if mode == "light" else 1)
    assert strides.min() > 0
    assert strides.max() < 3 * strides.mean()
    page = lightness(CONFIG["theme"][mode]["backgroundColor"])
    assert abs(light[0] - page) < 0.09
    assert abs(light[0] - page) > 0.02, "nothing must still differ from absent"


@pytest.mark.parametrize("mode", MODES)
def test_diverging_ramp_is_neutral_in_the_middle(mode):
    colours = theme.palette("change")[mode]
    middle = [int(colours[8][i : i + 2], 16) for i in (1, 3, 5)]
    assert max(middle) - min(middle) < 20
    light = [lightness(c) for c in colours]
    away = np.array(light) * (-1 if mode == "light" else 1)
    assert all(a > b for a, b in pairwise(away[:9])) and all(a < b for a, b in pairwise(away[8:]))


DEUTERAN = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]])
PROTAN = np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]])


@pytest.mark.parametrize("vision", [np.eye(3), DEUTERAN, PROTAN], ids=["full", "deuteranope", "protanope"])
@pytest.mark.parametrize("mode", MODES)
def test_both_signs_stay_apart_for_colour_blind_eyes(vision, mode):
    """Machado et al. 2009 at full severity: the arms of the change ramp differ in hue, level by level."""
    colours = theme.palette("change")[mode]
    seen = [vision @ _channels(c) for c in colours]
    for i in range(5):
        blueness = [s[2] - (s[0] + s[1]) / 2 for s in (seen[i], seen[16 - i])]
        assert blueness[0] - blueness[1] > 0.08


@pytest.mark.parametrize("mode", MODES)
def test_ramps_differ_from_each_other(mode):
    tops = [theme.palette(name)[mode][12] for name in ("attention", "score")]
    assert all(a != b for a, b in combinations(tops, 2))


def test_ramp_ends_on_its_anchors():
    assert ramp(["#102030", "#ffffff"], 3)[0] == "#102030"
    assert ramp(["#102030", "#ffffff"], 3)[-1] == "#ffffff"
    assert len(ramp(["#000000", "#ffffff"], 1)) == 1


@pytest.mark.parametrize(
    ("value", "measure", "text"),
    [
        (0.4821, "induction", "0.48"),
        (0.0, "previous_token", "0.00"),
        (-0.00001, "induction", "0.00"),
        (-0.51, "icl_score", "−0.51"),
        (3.20649, "entropy", "3.206"),
        (1.23456e-3, "update_ratio", "0.00123"),
        (1.2e-5, "update_ratio", "1.20e−05"),
        (12.3456, "grad_norm", "12.3"),
        (1500, "step", "1,500"),
        (1234567.0, "tokens_seen", "1,234,567"),
        (4567.8, "speed", "4,568"),
        (float("nan"), "induction", "–"),
        (None, "induction", "–"),
        (float("inf"), "train_loss", "∞"),
        (135.0371, "val_loss", "135.0"),
        (99.4567, "train_loss", "99.457"),
        (float("-inf"), "", "−∞"),
    ],
)
def test_fmt(value, measure, text):
    assert theme.fmt(value, measure) == text


@pytest.mark.parametrize(
    ("values", "n"), [([12.3, -0.004], 2), ([0.02, -0.018], 3), ([-0.0004], 5), ([0.0], 2), ([math.nan], 2), ([], 2)]
)
def test_digits_show_two_that_count(values, n):
    assert theme.digits(values) == n


def test_head_labels_go_both_ways():
    assert theme.head_label(1, 4) == "L1H4"
    for text in ("L1H4", "l1h4", " L1 H4 ", "1.4"):
        assert theme.parse_head(text) == (1, 4)


@pytest.mark.parametrize("text", ["", "head", "L1", "14", "H4L1", "L-1H2"])
def test_not_a_head(text):
    with pytest.raises(ValueError, match="write it like L1H4"):
        theme.parse_head(text)


def test_a_scale_covers_a_value_outside_the_range_that_was_said() -> None:
    share = MEASURES["previous_token"]
    assert (share.low, share.high) == (0, 1)
    beyond = of_measure(share, None, [[5.0, np.nan], [-1.0, np.inf]])
    assert (beyond.lo, beyond.hi) == (-1, 5)
    rounded = of_measure(share, None, [0.2, 1.00001])
    assert (rounded.lo, rounded.hi) == (0, 1)


def test_scale_closes_open_ranges_with_the_data():
    found = of_measure(MEASURES["max_logit"], None, [[1.0, np.nan], [7.5, 2]])
    assert (found.label, found.lo, found.hi, found.palette) == ("Largest attention logit", 0.0, 7.5, "score")


def test_scale_where_signs_matter_is_symmetric():
    found = of_measure(MEASURES["icl_score"], None, [-0.5, 0.2])
    assert (found.lo, found.hi, found.palette) == (-0.5, 0.5, "change")


def test_an_unknown_palette_lists_what_exists():
    with pytest.raises(ValueError, match="attention"):
        theme.palette("jet")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.0004, 3, "0.000"), (-0.0004, 3, "0.000"), (0.25, 3, "+0.250"), (-12.345, 1, "−12.3"), (float("nan"), 3, "–"),
     (float("inf"), 3, "+∞")],
)  # fmt: skip
def test_a_change_has_its_sign(value: float, digits: int, text: str) -> None:
    assert theme.signed(value, digits) == text


@pytest.mark.parametrize(
    ("name", "marked"),
    [("demo-0", "demo-0"), ("lr:rocket:", r"lr\:rocket\:"), ("**x** [y]", r"\*\*x\*\* \[y\]"), ("# x", r"\# x"),
     ("1. x", r"1\. x"), ("20) x", r"20\) x"), ("- x", r"\- x"), ("+ x", r"\+ x"), ("> x", r"\> x"), ("* x", r"\* x")],
)  # fmt: skip
def test_a_name_is_only_words(name: str, marked: str) -> None:
    assert theme.unmarked(name) == marked


def test_messages_are_sentences():
    assert [theme.sentence(text) for text in ("no step yet", "K is 3.")] == ["No step yet.", "K is 3."]


def test_plotly_template_takes_the_page_colours(monkeypatch):
    monkeypatch.setattr(theme, "is_dark", lambda: True)
    template = theme.plotly_template()
    assert template.layout.colorway[0] == LINES["dark"][0]
    assert template.layout.font.color == CONFIG["theme"]["dark"]["textColor"]
    assert template.layout.colorscale.diverging[8][1] == theme.palette("change")["dark"][8]


def test_fonts_are_shipped_with_their_licences():
    for face in CONFIG["theme"]["fontFaces"]:
        assert (DASHBOARD / "static" / Path(face["url"]).name).read_bytes()[:4] == b"wOF2"
    for family in ("Inter", "JetBrainsMono"):
        assert "SIL Open Font License" in (DASHBOARD / "static" / f"{family}-OFL.txt").read_text("utf-8")


def test_nothing_leaves_the_machine():
    assert CONFIG["browser"]["gatherUsageStats"] is False
    assert "http" not in (DASHBOARD / ".streamlit" / "config.toml").read_text("utf-8")
    packages = [DASHBOARD, Path(tracer.__file__).parent]
    sources = [path for package in packages for kind in ("*.js", "*.css") for path in package.rglob(kind)]
    assert {path.suffix for path in sources} == {".js", ".css"}
    for source in sources:
        text = source.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")  # a name, which nobody fetches
        assert "://" not in text and "innerHTML" not in text, source.name
