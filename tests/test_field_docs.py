"""`help()` of what an author of a paper writes and reads says what every field is."""

from __future__ import annotations

import pydoc
import re
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

import tracer
from tracer.config.field_docs import field_texts, fields_in_help

ROOT = Path(__file__).parents[1]
CLASSES = re.findall(r"autoclass:: (tracer\.[\w.]+)$", (ROOT / "docs/reference/index.md").read_text(), re.M)
ROOMS = ("tracer.ablate", "tracer.diagnosis", "tracer.data")
"""Each public class of these rooms is somebody's answer."""
RESULTS = [
    "tracer.analysis.head_roles.HeadRoles", "tracer.analysis.head_roles.HeadRole",
    "tracer.analysis.induction_by_period.ByPeriod", "tracer.analysis.max_activating.Search",
    "tracer.analysis.max_activating.Hit", "tracer.analysis.max_activating.Count",
    "tracer.analysis.order_over_seeds.Precedence", "tracer.analysis.training_curves.Curve",
    "tracer.analysis.when_causal.Rise", "tracer.config.Clamp", "tracer.data.templates.Pairs",
    "tracer.heads.call.AttentionCall", "tracer.presets.Preset",
]  # fmt: skip


def the(name: str) -> type:
    home, _, called = name.rpartition(".")
    return getattr(import_module(home), called)


THEIRS = ("tracer.TrainerCallback", "tracer.LightningCallback")
"""Made of classes of libraries that need not be there."""
NAMED = [*CLASSES, *(f"{room}.{name}" for room in ROOMS for name in import_module(room).__all__), *RESULTS]
DATACLASSES = [*{the(one): one for one in NAMED if one not in THEIRS and is_dataclass(the(one))}.values()]


def test_the_classes_of_papers_are_among_them() -> None:
    assert {f"tracer.{one}" for one in ("Claim", "Control", "Paper", "PaperRun", "Probe", "TrainConfig")} < {
        *DATACLASSES
    }


@pytest.mark.parametrize("name", DATACLASSES)
def test_help_says_what_each_field_is(name: str) -> None:
    shown = re.sub(r"^ \| *", "", pydoc.plain(pydoc.render_doc(the(name))), flags=re.M)
    _, _, said = shown.partition("\nAttributes:\n")
    for field in fields(the(name)):
        if field.init:
            assert re.search(rf"^{field.name}: \S", said, re.M), f"help({name}) does not say what {field.name} is"


@fields_in_help
@dataclass
class Shown:
    """About it.

    More.
    """

    one: int
    """In steps,
    from 0 on."""
    two: int = 3
    _kept: int = 4
    """Nobody's."""


@dataclass
class Below(Shown):
    """Of its own."""

    three: int = 0
    """Of the class below."""


def test_fields_are_read_from_the_source() -> None:
    assert Shown.__doc__ == ("About it.\n\nMore.\n\nAttributes:\n    one: In steps,\n        from 0 on.\n    two:\n")
    assert field_texts(Below) == {"one": "In steps,\nfrom 0 on.", "two": "", "_kept": "Nobody's.",
                                  "three": "Of the class below."}  # fmt: skip


def test_without_a_source_the_docstring_stays() -> None:
    made: dict[str, type] = {}
    exec('from dataclasses import dataclass\n@dataclass\nclass Made:\n    """About it."""\n    one: int', made)
    assert fields_in_help(made["Made"]).__doc__ == "About it."


def test_the_site_shows_fields_once() -> None:
    made: dict[str, object] = {"__file__": str(ROOT / "docs/conf.py"), "__name__": "conf"}
    exec((ROOT / "docs/conf.py").read_text(), made)
    lines = (tracer.Control.__doc__ or "").splitlines()
    made["docstring"](None, "class", "tracer.Control", tracer.Control, None, lines)  # pyrefly: ignore[not-callable]
    assert lines and not any("Attributes" in line or "within" in line for line in lines)
