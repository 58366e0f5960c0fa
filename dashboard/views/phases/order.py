"""The Phases page in words: what changed when, what came before what, and how sure one run can be of it."""

from __future__ import annotations

from html import escape

import numpy as np
import streamlit as st

from dashboard import theme
from tracer.analysis.head_sets import THRESHOLD
from tracer.analysis.training_curves import SCORES, Curve, may_feed, order
from tracer.measures.change_points import FEWEST, PhaseChange
from tracer.measures.plateaus import BACK

STYLE = """<style>
.events { list-style: none; margin: 0 !important; padding: 0 !important; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
.events li { position: relative; margin: 0 !important; padding: .5rem 0 .5rem 2.1rem !important;
  border-bottom: 1px solid rgb(127 127 127 / .2); }
.events .n { position: absolute; left: 0; top: .5rem; width: 1.4rem; font-weight: 600; opacity: .75; }
.events b { font-weight: 600; }
.events .when { float: right; padding-left: .8rem; font-weight: 550; }
.events .when small { display: inline; font-weight: 400; }
.events small { display: block; font-size: .8rem; opacity: .72; }
.events .head { padding: 0 0 .3rem !important; text-align: right; font-size: .8rem; opacity: .72; }
.events .none { padding-left: 0 !important; opacity: .72; border: 0; font-size: .85rem; }
</style>"""


def draw_order(found: list[Curve], changed: list[Curve], warmup: float | None = None) -> None:
    """Every event in order, then what is none; `warmup` is the step at which the learning rate was full."""
    st.header("Order of events", anchor=False)
    for words in filter(None, (weak(curve) for curve in found if curve.name in SCORES)):
        st.caption(words)
    rows = ['<li class="head">Step (95 % interval)</li>'] * bool(changed)
    rows += [
        f'<li><span class="n">{i + 1}</span><span class="when">{dated(curve)}</span><b>{escape(curve.happens)}</b>'
        f"<small>{escape(sureness(changed, i))}</small></li>"
        for i, curve in enumerate(changed)
    ]
    if units := by_unit(changed):
        rows.append(f'<li class="none">{escape(units)}</li>')
    still = [c for c in found if c.change is None and not c.undated]
    for words, enough in (
        ("No sudden step", True),
        ("Too few values for a change", False),
    ):
        if labels := [c.label for c in still if (len(c.steps) >= FEWEST) == enough]:
            rows.append(f'<li class="none">{words}: {escape(", ".join(labels))}.</li>')
    rows += [f'<li class="none">{escape(words)}</li>' for words in no_events(found, warmup)]
    st.html(f'{STYLE}<ol class="events">{"".join(rows)}</ol>')


def no_events(found: list[Curve], warmup: float | None = None) -> list[str]:
    """What moved without a date, and why; the end of the warm-up, which is a mark and no event."""
    said = [f"Warm-up ends: step {warmup:,.0f}."] if warmup else []
    for curve in found:
        if curve.undated == BACK:
            said.append(f"Excursion: {curve.label} moved and went back, so it is no event.")
        elif curve.undated:
            said.append(f"Not dated: {curve.label}, {curve.undated}.")
    return said


def points(found: list[Curve]) -> int:
    """Values of the curve that has most."""
    return max(len(curve.steps) for curve in found)


def basis(found: list[Curve]) -> str:
    """With how many points this was read, and how fine a date can be."""
    most = max(found, key=lambda curve: len(curve.steps))
    n, gaps = len(most.steps), np.diff(most.steps)
    if not len(gaps):
        return "Read from 1 recorded step."
    fewer = [f"{theme.unmarked(curve.title)}: {len(curve.steps)}" for curve in found if len(curve.steps) < n]
    but = f" ({', '.join(fewer)})" if fewer else ""
    apart = f"{gaps.min():,}" if gaps.min() == gaps.max() else f"{gaps.min():,} to {gaps.max():,}"
    return f"No date is finer than the recording interval, {apart} steps; {n} records{but}."


def answer(
    found: list[Curve], changed: list[Curve], none_stands_out: bool = False, smeared_keys: bool = False
) -> str:  # fmt: skip
    """What came first, in a sentence of Markdown: of an induction circuit its two heads, else of whatever changed.

    `none_stands_out`: induction was measured, and is none. `smeared_keys`: each key is mixed with that of the token
    before, so an induction head may do without an earlier one.
    """
    n = points(found)
    if n < FEWEST:
        return f"Too few recorded steps ({n}) to say when anything changed: it takes {FEWEST} at least."
    if none_stands_out:
        return "No induction head stands out: no induction score is above its control."
    if not changed:
        return f"Nothing changed suddenly: {n} recorded steps hold no event."
    if said := _came_first(found, smeared_keys):
        return said
    how_many = f"First of {len(changed)} events" if len(changed) > 1 else "One event"
    return f"{how_many}: {happened(changed[0])}."


def happened(curve: Curve) -> str:
    """An event with its date, as Markdown: "L1H2 begins to copy at step 600 (575–625)"."""
    assert curve.change is not None
    at = curve.change
    return f"{theme.unmarked(curve.happens)} at step {at.midpoint:,} ({at.low:,}–{at.high:,})"


def weak(curve: Curve) -> str:
    """That the head of a score is the strongest, and still below what such heads are called by; empty if it is not."""
    if not curve.ends_at <= THRESHOLD:
        return ""
    ends = theme.fmt(curve.ends_at, curve.name)
    return f"**Weak**: {lower(curve.label)} ends at {ends} (such heads score above {THRESHOLD:g})."


def _came_first(found: list[Curve], smeared_keys: bool) -> str:
    """Of the two heads of an induction circuit; empty without both."""
    by_name = {curve.name: curve for curve in found}
    one, two = by_name.get("previous_token"), by_name.get("induction")
    if one is None or two is None:
        return ""
    reader, read = (theme.head_label(*curve.heads[0]) for curve in (two, one))
    if not may_feed(one, two):
        if smeared_keys:
            return f"{reader} needs no earlier head: each key is mixed with that of the token before (smear=keys)."
        return f"No circuit: {reader} cannot read {read}, which is in no earlier layer."
    if one.change is None or two.change is None:
        never = [lower(curve.label) for curve in (one, two) if curve.change is None and not curve.undated]
        parts = [f"{' and '.join(never)} did not change suddenly"] * bool(never)
        parts += [f"{lower(curve.label)} has no date ({curve.undated})" for curve in (one, two) if curve.undated]
        return f"Order not known: {'; '.join(parts)}."
    known = order(one, two)
    if known == "overlap":
        return f"Order not known: {happened(one)}, {happened(two)}."
    return f"{happened(one)}, {known} {happened(two)}."


def dated(curve: Curve) -> str:
    """The date and its 95 % interval, as HTML."""
    assert curve.change is not None
    return f"{curve.change.midpoint:,} <small>({curve.change.low:,}–{curve.change.high:,})</small>"


def sureness(changed: list[Curve], i: int) -> str:
    """Which changes this one is apart from, by their numbers; empty where that depends on the unit: `by_unit`."""
    here = changed[i]
    others = [j for j in range(len(changed)) if j != i]
    found = {j: order(changed[j], here) for j in others}
    unsure, units = ([j + 1 for j in others if found[j] == why] for why in ("overlap", "units"))
    if not others:
        return ""
    if not unsure and not units:
        return "Separate from all others."
    if len(unsure) == len(others):
        return "Not separated from any other."
    return f"Not separated from {_numbers(unsure)}." if unsure else ""


def by_unit(changed: list[Curve]) -> str:
    """The pairs of changes, by their numbers, whose order differs between units."""
    n = range(len(changed))
    pairs = [f"{i + 1}–{j + 1}" for i in n for j in n[i + 1 :] if order(changed[j], changed[i]) == "units"]
    return f"The order depends on how it is measured: {', '.join(pairs)}." if pairs else ""


def window(curve: Curve) -> str:
    assert curve.change is not None
    return f"{curve.change.onset:,} to {curve.change.end:,}"


def interval(change: PhaseChange) -> str:
    return f"{change.low:,} to {change.high:,}"


def _numbers(numbers: list[int]) -> str:
    words = [str(n) for n in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def lower(text: str) -> str:
    """As inside a sentence: names such as K-composition keep their capital."""
    return text if text[1:2].isupper() or text[1:2] == "-" else text[0].lower() + text[1:]
