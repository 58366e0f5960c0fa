"""Findings as plain text, for a terminal."""

from __future__ import annotations

import textwrap

from tracer.diagnosis.findings import Diagnosis, Finding
from tracer.diagnosis.verdict import verdict

WIDTH = 100
MOST_HEADS = 8


def report(name: str, diagnosis: Diagnosis, why: bool = False) -> str:
    """What went wrong in the run of this name, and what was looked for; `why` adds the rule of every finding."""
    lines = [f"{_printable(name)}: {verdict(diagnosis).text}"]
    for one in diagnosis.findings:
        where = f", {heads(one)}" if one.heads else ""
        lines += ["", f"{one.severity}: {_printable(one.title)}, since step {one.step:,}{where}"]
        told = {"": one.evidence, **{f"{label.lower()}: ": text for label, text in one.advice.texts().items()}}
        told |= {"source: ": one.source}
        told |= {"why: ": diagnosis.texts[one.kind]} if why else {}
        for label, text in told.items():
            lines += textwrap.wrap(label + _printable(text), WIDTH, initial_indent="  ", subsequent_indent="    ")
    lines += ["", *textwrap.wrap(f"Looked for {', '.join(diagnosis.looked_for)}.", WIDTH)]
    missing = diagnosis.not_measured
    lines += textwrap.wrap(f"Not measured: {', '.join(missing)}.", WIDTH) if missing else []
    for said in diagnosis.wrong:
        lines += textwrap.wrap(f"Went wrong: {_printable(said)}.", WIDTH)
    return "\n".join(lines)


def heads(one: Finding) -> str:
    """L0H1, L1H2 and 3 more heads."""
    labels = ", ".join(f"L{layer}H{head}" for layer, head in one.heads[:MOST_HEADS])
    more = len(one.heads) - MOST_HEADS
    return f"{labels} and {more} more head{'s' * (more > 1)}" if more > 0 else labels


def _printable(text: str) -> str:
    """A name in it is its author's: no character of it commands a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)
