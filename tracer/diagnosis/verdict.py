"""The one word for how a run stands: what Health, the chip, Gradients, a specimen's card and the log all say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracer.config.field_docs import fields_in_help
from tracer.diagnosis.findings import Diagnosis
from tracer.diagnosis.rules import RULES


@fields_in_help
@dataclass(frozen=True)
class RunVerdict:
    """How a run stands."""

    severity: Literal["bad", "watch", "early", "healthy", "unknown"]
    """That of the worst finding; without one early where the loss can't be judged yet, unknown where nothing was looked
    for."""
    text: str
    """1 bad, 2 to watch; too few records; healthy; not measured."""


def verdict(diagnosis: Diagnosis) -> RunVerdict:
    """The verdict on a run: no page and no log says another word about it.

    Nothing found is health only where the loss was recorded in the 8 rows that its rules need (`rules.early`).
    """
    bad = sum(one.severity == "bad" for one in diagnosis.findings)
    watch = len(diagnosis.findings) - bad
    if diagnosis.findings:
        parts = [f"{bad} bad"] * (bad > 0) + [f"{watch} to watch"] * (watch > 0)
        return RunVerdict("bad" if bad else "watch", ", ".join(parts))
    if diagnosis.early:
        return RunVerdict("early", "too few records")
    measured = set(diagnosis.looked_for) - {RULES["divergence"].name}  # which is asked of a run without a record, too
    return RunVerdict("healthy", "healthy") if measured else RunVerdict("unknown", "not measured")
