"""What is written into docs/ from elsewhere: lists from the code, pages of other folders, pictures of measures.

A list stands between `<!-- word -->` and `<!-- /word -->`. In the repository lists and pictures are as `scripts/pages`
last wrote them; a test says when they are not what the code says. The site draws the pictures in its own colours. The
curves are of one run; `scripts/measures` keeps them in docs/measures.json.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from building import drawing
from tracer.diagnosis import RULES, Rule
from tracer.measures import MEASURES, PROBES, Measure, Setting
from tracer.measures.attention import ATTENTION
from tracer.measures.model_scalars import SCALARS
from tracer.measures.weights import WEIGHTS

ROOT = Path(__file__).parents[2]
PARTS = {"attention": ATTENTION, "weights": WEIGHTS, "scalars": SCALARS}
PAGES = {"run_format": ("checkpoints/README.md", "# Runs"), "security": ("SECURITY.md", "# Security")}
"""Of the repository, by the word that stands for them, each with its title, which is left out."""
LIST = re.compile(r"<!-- (\w+) -->.*?<!-- /\1 -->", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\(pictures/measures/(\w+)\.svg\)")
LOOKS = ("looks at the token before: a line beside the diagonal", "looks at what came next, the last time: a stripe")


def written(page: str, kept: Path) -> str:
    """The page with every list as the code has it now; ValueError for a word that means no list."""
    return LIST.sub(lambda found: f"<!-- {found[1]} -->\n{_said(found[1], kept)}\n<!-- /{found[1]} -->", page)


def drawn(page: str, kept: Path) -> str:
    """The page with the pictures of its measures in it, instead of as files."""

    def inline(found: re.Match[str]) -> str:
        picture = _picture(MEASURES[found[1]], kept)
        assert picture is not None
        return f"```{{raw}} html\n{picture.html()}\n```"

    return PICTURE.sub(inline, page)


def pictures(kept: Path) -> dict[str, str]:
    """The file of every measure that can be drawn, by its name."""
    drawn = {f"{name}.svg": _picture(measure, kept) for name, measure in MEASURES.items()}
    return {name: picture.file() for name, picture in drawn.items() if picture}


def _said(word: str, kept: Path) -> str:
    if word == "rules":
        return "\n\n".join(map(_rule, RULES.values()))
    if word in PAGES:
        path, title = PAGES[word]
        return (ROOT / path).read_text("utf-8").removeprefix(title).replace("](docs/", "](").strip()
    if word not in PARTS:
        raise ValueError(f"<!-- {word} --> means no list; pages may have {', '.join(['rules', *PARTS, *PAGES])}")
    return "\n\n".join(_entry(measure, kept) for measure in PARTS[word])


@cache
def _figures(kept: Path) -> dict[str, Any]:
    return json.loads(kept.read_text())


def _rule(rule: Rule) -> str:
    read = ", ".join(f"[{MEASURES[name].label.lower()}](measures.md#{_anchor(name)})" for name in rule.needs)
    return f"## {rule.name[0].upper()}{rule.name[1:]}\n\n{rule.text}" + (f"\n\nRead from: {read}." if read else "")


def _anchor(name: str) -> str:
    """Of a heading that is a measure's label, as forges and the site make it."""
    return re.sub(r"[^\w\- ]", "", MEASURES[name].label.lower()).replace(" ", "-")


def _entry(measure: Measure, kept: Path) -> str:
    facts = {
        "In the trace": f"`{measure.name}[{' '.join(measure.dims)}]`",
        "Formula": f"`{measure.formula}`",
        "Range": _range(measure),
        "At chance": _chance(measure, kept),
        "Measured on": PROBES[measure.probe],
        "Source": measure.source,
    }
    listed = "\n".join(f"- **{name}:** {fact}" for name, fact in facts.items() if fact)
    shown = f"![{measure.label}, of the demo](pictures/measures/{measure.name}.svg)"
    last = shown if _picture(measure, kept) else "*Recorded of watched trainings only; the demo has none.*"
    return f"### {measure.label}\n\n{measure.note}\n\n{listed}\n\n{last}"


def _range(measure: Measure) -> str:
    low, high = ("any number" if bound is None else drawing.number(bound) for bound in (measure.low, measure.high))
    if measure.low is not None:
        said = f"{low} to {high}" if measure.high is not None else f"{low} and more"
    else:
        said = low if measure.high is None else f"up to {high}"
    return f"{said}, in {measure.unit}" if measure.unit else said


def _chance(measure: Measure, kept: Path) -> str:
    value = measure.at_chance(_setting(kept))
    return "" if value is None else f"{drawing.number(value)} in this run: {measure.chance_text}"


def _setting(kept: Path) -> Setting:
    figures = _figures(kept)
    return Setting.of(figures["d_vocab"], figures["n_ctx"])


def _picture(measure: Measure, kept: Path) -> drawing.Figure | None:
    figures = _figures(kept)
    if measure.name == "pattern":
        return drawing.patterns(figures["patterns"], LOOKS)
    chance, bounded = measure.at_chance(_setting(kept)), measure.high is not None
    if measure.name == "loss_by_position":
        groups = figures["by_position"]
        return drawing.curves(groups, range(figures["n_ctx"]), measure.label, chance, along="position")
    if measure.name not in figures["curves"]:
        return None
    return drawing.curves(figures["curves"][measure.name], figures["steps"], measure.label, chance, bounded=bounded)
