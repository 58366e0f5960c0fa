"""What pages say in {{words, with a remark}}: the rules of diagnosis, and every row of `tracer.measures`.

The curves are of one run; `scripts/measures` keeps them in docs/measures.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from building import drawing
from tracer.diagnosis import RULES, Rule
from tracer.measures import MEASURES, PROBES, Measure, Setting
from tracer.measures.attention import ATTENTION
from tracer.measures.scalars import SCALARS
from tracer.measures.weights import WEIGHTS

PARTS = {"attention": ATTENTION, "weights": WEIGHTS, "scalars": SCALARS}
MARK = re.compile(r"\{\{(\w+)[^{}]*\}\}")
LOOKS = ("looks at the token before: a line beside the diagonal", "looks at what came next, the last time: a stripe")


def filled(page: str, kept: Path) -> str:
    """The page with each {{word, and a remark}} written out; ValueError for a word that means nothing."""
    return MARK.sub(lambda found: _said(found[1], kept), page)


def _said(word: str, kept: Path) -> str:
    if word == "rules":
        return "\n\n".join(map(_rule, RULES.values()))
    figures = _figures(kept)
    if word == "run":
        return figures["run"]
    if word not in PARTS:
        raise ValueError(f"{{{{{word}}}}} means nothing; pages may say {', '.join(['rules', 'run', *PARTS])}")
    return "\n\n".join(_entries(PARTS[word], figures))


@cache
def _figures(kept: Path) -> dict[str, Any]:
    return json.loads(kept.read_text())


def _rule(rule: Rule) -> str:
    read = ", ".join(f"{{ref}}`{MEASURES[name].label.lower()} <measure-{name}>`" for name in rule.needs)
    return f"## {rule.name[0].upper()}{rule.name[1:]}\n\n{rule.text}" + (f"\n\nRead from: {read}." if read else "")


def _entries(part: Iterable[Measure], figures: dict[str, Any]) -> Iterable[str]:
    setting = Setting.of(figures["d_vocab"], figures["n_ctx"])
    return (_entry(measure, setting, figures) for measure in part)


def _entry(measure: Measure, setting: Setting, figures: dict[str, Any]) -> str:
    facts = {
        "In the trace": f"`{measure.name}[{' '.join(measure.dims)}]`",
        "Formula": f"`{measure.formula}`",
        "Range": _range(measure),
        "At chance": _chance(measure, setting),
        "Measured on": PROBES[measure.probe],
        "Source": measure.source,
    }
    listed = "\n".join(f":{name}: {fact}" for name, fact in facts.items() if fact)
    picture = _picture(measure, setting, figures)
    drawn = (
        f"```{{raw}} html\n{picture}\n```" if picture else "*Recorded of watched trainings only; the demo has none.*"
    )
    return f"(measure-{measure.name})=\n### {measure.label}\n\n{measure.note}\n\n{listed}\n\n{drawn}"


def _range(measure: Measure) -> str:
    low, high = ("any number" if bound is None else drawing.number(bound) for bound in (measure.low, measure.high))
    if measure.low is not None:
        said = f"{low} to {high}" if measure.high is not None else f"{low} and more"
    else:
        said = low if measure.high is None else f"up to {high}"
    return f"{said}, in {measure.unit}" if measure.unit else said


def _chance(measure: Measure, setting: Setting) -> str:
    value = measure.at_chance(setting)
    return "" if value is None else f"{drawing.number(value)} in this run: {measure.chance_text}"


def _picture(measure: Measure, setting: Setting, figures: dict[str, Any]) -> str:
    if measure.name == "pattern":
        return drawing.patterns(figures["patterns"], LOOKS)
    chance, bounded = measure.at_chance(setting), measure.high is not None
    if measure.name == "loss_by_position":
        groups = figures["by_position"]
        return drawing.curves(groups, range(setting.n_ctx), measure.label, chance, along="position")
    if measure.name not in figures["curves"]:
        return ""
    return drawing.curves(figures["curves"][measure.name], figures["steps"], measure.label, chance, bounded=bounded)
