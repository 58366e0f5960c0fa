"""The Ablate page's verdict on the head in focus: the tests with their numbers, and how to repeat them."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import streamlit as st

from dashboard import state, theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Setup
from dashboard.shared import choosers
from dashboard.views.ablate import data as proving
from tracer.named_code import TESTS, remembered
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

    from tracer.ablate import HeadTest, Verdict

MARKS = {True: "✓ passed", False: "✕ failed", None: "– not measured"}
KINDS = {True: "true", False: "false", None: "none"}
"""Classes of what `STYLE` draws."""
STYLE = """<style>
.verdict { width: 100%; border-collapse: collapse; font-size: .9rem; }
.verdict th { text-align: left; font-weight: 400; opacity: .65; font-size: .8rem; }
.verdict th, .verdict td { padding: .45rem .8rem .45rem 0; vertical-align: top;
  border-bottom: 1px solid rgb(127 127 127 / .25); }
.verdict .n { font-variant-numeric: tabular-nums; white-space: nowrap; }
.verdict b { font-weight: 600; }
.verdict .said { opacity: .75; font-size: .85rem; max-width: 60ch; }
.verdict .false { font-weight: 600; }
.ticks { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: .3rem 0 0 !important; padding: 0 !important;
  list-style: none; font-size: .9rem; }
.ticks li { margin: 0 !important; padding: 0 !important; }
.ticks .false, .ticks .none { opacity: .75; }
@media (max-width: 640px) {
  .verdict thead { display: none; }
  .verdict tr { display: block; border-bottom: 1px solid rgb(127 127 127 / .25); padding: .5rem 0; }
  .verdict td { display: inline-block; border: 0; padding: .1rem .7rem .1rem 0; }
  .verdict td.said { display: block; }
  .verdict td.n[data-of]::before { content: attr(data-of) " "; opacity: .65; }
  .verdict td:empty { display: none; }
}
</style>"""


def draw_card(run: Run, setup: Setup, trace: xr.Dataset) -> None:
    """A button until it is asked for: it takes seconds."""
    if not ablation.repeats(run):
        st.caption("The tests of an induction head need tokens that repeat: n_ctx and d_vocab of 7 or more.")
        return
    head = choosers.focus(trace, setup.step)
    label = theme.head_label(*head)
    asked = f"verdict-{label}-{setup.step}"
    if asked not in state.read().cards:
        st.button(
            f"Test {label} as induction head", key="verdict", icon=":material/fact_check:",
            on_click=lambda: state.update(cards=(*state.not_verdicts(), asked)),  # one verdict at a time
            help=f"{_tests()}.",
        )  # fmt: skip
        return
    tests, wrong = proving.own_tests()
    if wrong:
        st.text(wrong)
    try:
        found = proving.verdict(run, setup.step, head, tests)
    except ValueError as error:
        st.text(str(error))
        return
    with st.container(border=True, key="verdict-card"):
        _draw(found, _link(setup, head))


def _tests() -> str:
    return "Six tests, five of them after Olsson et al. 2022" + (", and those of --tests" if remembered(TESTS) else "")


def _draw(found: Verdict, link: str) -> None:
    st.html(f"{STYLE}<p><b>{escape(found.headline)}.</b></p>{_ticks(found)}")
    if found.repair:
        st.caption(found.repair)
    with st.expander("The tests with their numbers", key="verdict_numbers"):
        st.html(f"{STYLE}{_table(found)}")
        st.caption(found.elsewhere)
        st.caption("In Python, this computes it again:")
        st.code(found.snippet, language="python", wrap_lines=True)
        st.caption("This link opens this view again:")
        st.code(link, language=None, wrap_lines=True)


def _ticks(found: Verdict) -> str:
    """A mark a test."""
    marks = "".join(
        f'<li class="{KINDS[test.passed]}">{MARKS[test.passed][0]} {escape(test.name)}'
        f"{'' if test.passed is not None else ' (not measured)'}</li>"
        for test in found.tests
    )
    return f'<ul class="ticks">{marks}</ul>'


def _table(found: Verdict) -> str:
    rows = "".join(_row(test) for test in found.tests)
    heads = "".join(f"<th>{name}</th>" for name in ("Test", "", "Number", "95 % interval", "At chance", ""))
    return f'<table class="verdict"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _row(test: HeadTest) -> str:
    measured = not math.isnan(test.value)
    value = theme.fmt(test.value, "share") if measured else ""
    low, high = (theme.fmt(end, "share") for end in (test.low, test.high))
    interval = f"{low} to {high}" if not math.isnan(test.low) else ""
    chance = theme.fmt(test.chance, "share") if not math.isnan(test.chance) else ""
    return (
        f"<tr><td><b>{escape(test.name.capitalize())}</b></td>"
        f'<td class="n {KINDS[test.passed]}">{MARKS[test.passed]}</td>'
        f'<td class="n">{value}</td><td class="n" data-of="interval">{interval}</td>'
        f'<td class="n" data-of="chance">{chance}</td><td class="said">{escape(test.sentence)}</td></tr>'
    )


def _link(setup: Setup, head: tuple[int, int]) -> str:
    """The address of this view, with the head and the step written out."""
    selection = state.read()
    query = {**state.to_query(selection), "step": setup.step, "layer": head[0], "head": head[1]}
    here = urlsplit(st.context.url or "")
    origin = f"{here.scheme}://{here.netloc}" if here.netloc else ""
    return f"{origin}/ablate?{urlencode(query)}"
