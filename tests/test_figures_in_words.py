"""Every number that a page or a help text claims of the demo, beside its source.

A row of CLAIMS is a sentence with {} in place of its numbers, and where these come from, in order: the record of the
demo in docs/measures.json (`scripts/measures` makes it anew), docs/gpu.md, or the code. It fails when a number is
further from its source than both are rounded, and when the sentence is gone. What looks like a number of the demo and
is in no row fails as well.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboard.views.runs.welcome import COMING
from tracer import ablate
from tracer.analysis.order_over_seeds import LINKS, least_p, seeds_needed
from tracer.data import probes
from tracer.measures.change_points import PhaseChange, phase_change
from tracer.measures.strongest import induction_head
from tracer.presets import PRESETS

ROOT = Path(__file__).parents[1]
RECORD: dict[str, Any] = json.loads((ROOT / "docs/measures.json").read_text())
LIST = re.compile(r"<!-- (\w+) -->.*?<!-- /\1 -->", re.DOTALL)
DIGITS = 3
"""Significant digits of the record."""
COUNTS = {"two": 2, "three": 3, "four": 4, "eight": 8}
NUMBER = rf"(\d+(?:,\d{{3}})*(?:\.\d+)?|{'|'.join(COUNTS)})"
DEMO, TOY = (PRESETS[name].config for name in ("demo", "induction"))
LOOKS_BACK, INDUCTION = (0, 1), (1, 2)
PROBE = probes.repeated(DEMO.data.vocab_size, DEMO.model.n_ctx)


def at_end(measure: str, head: tuple[int, int]) -> float:
    return RECORD["curves"][measure][f"layer {head[0]}"][head[1]][-1]


def scores(measure: str) -> np.ndarray:
    return np.array([[head[-1] for head in heads] for heads in RECORD["curves"][measure].values()])


def changed(measure: str, head: tuple[int, int] | None = None) -> PhaseChange:
    curves = RECORD["curves"][measure]
    curve = curves[""][0] if head is None else curves[f"layer {head[0]}"][head[1]]
    found = phase_change(np.array(RECORD["steps"]), np.array(curve, float), warmup=DEMO.optim.warmup)
    assert found is not None
    return found


def growth() -> float:
    """In percent, of the stream of the last depth, which grows most."""
    return max(100 * (depth[0][-1] / depth[0][0] - 1) for depth in RECORD["curves"]["resid_rms"].values())


def on_gpu(row: str, before: str = "") -> float:
    """The first number in the row of docs/gpu.md of this name, after the words `before` it."""
    found = re.search(rf"{re.escape(row)}[^|]*\| .*?{before}(\d[\d.]*)", (ROOT / "docs/gpu.md").read_text())
    assert found, f"docs/gpu.md has no row {row!r}"
    return float(found[1])


without: dict[str, float] = RECORD["without"]
Source = float | Callable[[], float]
CLAIMS: list[tuple[str, str, tuple[Source, ...]]] = [
    ("README.md", "training rows {} % are synthetic", (100 * DEMO.data.mix_share,)),
    ("README.md", "random tokens, repeated after {} to {}", tuple(map(int, PROBE.periods.aminmax()))),
    ("docs/training.md", "{} % of its training rows are synthetic", (100 * DEMO.data.mix_share,)),
    ("docs/python.md", "random tokens, repeated after {} to {}", tuple(map(int, PROBE.periods.aminmax()))),
    ("docs/python.md", "keeps {} % of what repeating tokens gains",
     (100 * inspect.signature(ablate.build_up).parameters["target"].default,)),
    ("docs/student.md", "of {} layers with {} heads each learns", (DEMO.model.n_layers, DEMO.model.n_heads)),
    ("docs/student.md", "one token after the other, in {} updates", (DEMO.steps,)),
    ("docs/student.md", "{} layers of {} heads: {} for L1H2",
     (DEMO.model.n_layers, DEMO.model.n_heads, at_end("induction", INDUCTION))),
    ("docs/student.md", "# {} for L0H1", (at_end("previous_token", LOOKS_BACK),)),
    ("docs/student.md", "# {} rows, each repeats at another distance", (len(PROBE.tokens),)),
    ("docs/student.md", "loss where the answer stood before: {} nats", (without["nothing"],)),
    ("docs/student.md", "what is lost without the head: {} nats", (without["L1H2"],)),
    ("docs/student.md", "guess among {} tokens costs ln {} = {} nats",
     (RECORD["d_vocab"], RECORD["d_vocab"], math.log(RECORD["d_vocab"]))),
    ("docs/student.md", "# {} nats a token, over all tokens", (without["L0H1"],)),
    ("docs/student.md", "# {}: later patterns held", (without["L0H1, patterns frozen"],)),
    ("docs/researcher.md", "the highest of {} heads, no warm-up", (TOY.model.n_layers * TOY.model.n_heads,)),
    ("docs/researcher.md", "{} seeds that agree have p = {} at best", (4, least_p(4))),
    ("docs/researcher.md", "the {} orders of a circuit it takes {} for p < 0.05",
     (len(LINKS), seeds_needed(len(LINKS)))),
    ("docs/researcher.md", "with three others {} at best", (1 / TOY.model.n_heads,)),
    ("docs/researcher.md", "keep {} % of what repetition gains",
     (100 * inspect.signature(ablate.build_up).parameters["target"].default,)),
    ("docs/measures.md", ": {} layers of {} heads that learn Python", (DEMO.model.n_layers, DEMO.model.n_heads)),
    ("docs/measures.md", "an *induction head* at about step {},",  # to hundreds
     (lambda: round(changed("induction", INDUCTION).midpoint, -2),)),
    ("docs/measures.md", "L is at most {}", (PROBE.period,)),
    ("docs/speed.md", "The demo trains on it in {} s", (lambda: on_gpu("demo trained on cuda"),)),
    ("docs/speed.md", "finds the induction head with {} of {} tests",
     (lambda: on_gpu("verdict card of its strongest head", "induction head: "), 5)),
    ("docs/speed.md", "its held-out loss is {} nats (mean over {} records)",
     (lambda: on_gpu("held-out loss curve against the CPU's"), len(RECORD["steps"]))),
    ("docs/speed.md", "Recording the demo's first {} steps costs {} % there",
     (300, lambda: 100 * (on_gpu("recorded / bare loop, demo, 300 updates") - 1))),
    ("docs/trust.md", "the demo, {} steps", (DEMO.steps,)),
    ("tracer/presets.py", "with {} % repeated-random rows: an induction head forms within {} steps",
     (100 * DEMO.data.mix_share, DEMO.steps)),
    ("tracer/presets.py", "random tokens, {} words: induction heads within {} steps",
     (TOY.data.vocab_size - 1, TOY.steps)),
    ("tracer/measures/attention.py", "those of the demo end at {} and {})",
     (at_end("entropy_normalised", LOOKS_BACK), at_end("entropy_normalised", INDUCTION))),
    ("tracer/diagnosis/rules.py", "those of the demo end at {} and {}, with scores of {} and {}",
     (at_end("entropy_normalised", LOOKS_BACK), at_end("entropy_normalised", INDUCTION),
      at_end("max_logit", LOOKS_BACK), at_end("max_logit", INDUCTION))),
    ("tracer/diagnosis/attention_faults.py", "heads of the demo end at {} and {}",
     (at_end("entropy_normalised", LOOKS_BACK), at_end("entropy_normalised", INDUCTION))),
    ("tracer/diagnosis/rules.py", "The demo's ends {} % larger", (growth,)),
    ("tracer/diagnosis/growth.py", "the demo's stream ends {} % larger", (growth,)),
]  # fmt: skip
PAGES = sorted({"README.md", "docs/index.md", "docs/practitioner.md", "docs/dashboard.md", "docs/recording.md",
                *(page for page, *_ in CLAIMS if "docs" in page)})  # fmt: skip
NOT_OF_THE_DEMO = re.compile(
    r"Python 3\.\d+ to 3\.\d+|--host [\d.]+|induction > 0\.5"
    r"|511 flushes of .* training on a busy machine: 2\.5 %"  # docs/trust.md: timed once, and said with its machine
    r"|for 144 heads explicit patterns.* for q, k and v"  # docs/speed.md
)
"""Of paragraphs that name the demo."""
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=[-*|] ?)")
FIGURE = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+|(?= %| nats| updates\b| minutes\b| s\b))")
OF_THE_DEMO = re.compile(r"\bdemo\b(?!-|/)|\bL[01]H[12]\b")


def text(page: str) -> str:
    """A page with its lines joined; of Python also the parts of a string."""
    read = (ROOT / page).read_text()
    if page.endswith(".py"):
        read = re.sub(r'"\s*\n\s*f?"', "", read)
    return re.sub(r"\s+", " ", read)


def pattern(sentence: str) -> str:
    return re.escape(sentence).replace(r"\{\}", NUMBER)


def said(number: str) -> tuple[float, float]:
    """A number as it stands in a sentence, and half of its last digit."""
    if number in COUNTS:
        return COUNTS[number], 0
    plain = number.replace(",", "")
    decimals = len(plain.partition(".")[2])
    return float(plain), 0.5 * 10.0**-decimals


@pytest.mark.parametrize(("page", "sentence", "sources"), CLAIMS)
def test_a_number_in_words_is_that_of_its_source(page: str, sentence: str, sources: tuple[Source, ...]) -> None:
    found = [match.groups() for match in re.finditer(pattern(sentence), text(page))]
    assert found, f"{page} no longer says {sentence!r}: change the row, or drop it"
    for one in found:
        for number, source in zip(one, sources, strict=True):
            value, rounding = said(number)
            true = source() if callable(source) else source
            of_source = 0 if isinstance(true, int) else 0.5 * 10.0 ** (math.floor(math.log10(abs(true))) + 1 - DIGITS)
            assert abs(value - true) <= rounding + of_source + 1e-9, f"{page} says {number}, its source {true:.4g}"


@pytest.mark.parametrize("page", PAGES)
def test_no_other_number_is_said_of_the_demo(page: str) -> None:
    """Of each paragraph, list item or row that names the demo or a head of it: those with decimals or a unit.

    Lists that are written from the code say what the code says, which has rows of its own.
    """
    loose = []
    for paragraph in PARAGRAPH.split(LIST.sub("", (ROOT / page).read_text())):
        joined = re.sub(r"\s+", " ", paragraph)
        if OF_THE_DEMO.search(joined):
            of_this = (pattern(sentence) for where, sentence, _ in CLAIMS if where == page)
            for known in (NOT_OF_THE_DEMO.pattern, *of_this):
                joined = re.sub(known, "", joined)
            loose += [(found[0], joined[:60]) for found in FIGURE.finditer(joined)]
    assert not loose


def test_the_heads_that_the_pages_name_are_those_of_the_record() -> None:
    assert induction_head(scores("induction"), scores("induction_control")) == INDUCTION
    assert np.unravel_index(scores("previous_token").argmax(), (2, 4)) == LOOKS_BACK


def test_what_is_said_to_come_first_in_the_demo_comes_first() -> None:
    """README, under its picture: the previous-token head, the induction head, then repeated tokens."""
    said = "previous-token head changes first, the induction head that reads it later, then repeated tokens become easy"
    assert said in text("README.md")
    order = changed("previous_token", LOOKS_BACK), changed("induction", INDUCTION), changed("repeat_loss")
    assert order[0].high < order[1].low and order[1].high < order[2].low


def test_the_welcome_says_when_things_begin() -> None:
    """Within 100 steps, as its docstring says."""
    began, back, forward, end = (step for step, *_ in COMING)
    assert (began, end) == (0, DEMO.steps)
    assert abs(back - changed("previous_token", LOOKS_BACK).onset) <= 100
    assert abs(forward - changed("induction", INDUCTION).onset) <= 100
