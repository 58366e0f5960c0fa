"""What heads are called on the picture of layers, and the roles of a person's own with their numbers."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import theme
from dashboard.loading import roles
from tracer.analysis.head_roles import HeadRole, Role, roles_in
from tracer.measures import Measure, in_trace

if TYPE_CHECKING:
    import xarray as xr

HOW = (
    "Given with --roles. Beside each number its 95 % interval over sequences, whose low end must be above the control; "
    "where no error was recorded, the number itself."
)
MOST = 12
"""Heads of one role that are written out."""
STYLE = """<style>
.roles p { margin: .9rem 0 .2rem !important; font-size: .95rem; }
.roles p span { margin-left: .4rem; }
.roles p span, .roles li span { opacity: .75; font-size: .85rem; }
.roles ul { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: .15rem 1.5rem;
  margin: 0 !important; padding: 0 !important; list-style: none; font-variant-numeric: tabular-nums; font-size: .9rem; }
.roles li { margin: 0 !important; padding: 0 !important; }
.roles b { font-weight: 600; }
.roles li span { margin-left: .6rem; white-space: nowrap; }
</style>"""


def words(trace: xr.Dataset, step: int) -> list[list[str]]:
    """Below each head: the roles of a person's own that it has, and the first of ours."""
    own, ours = roles_in(trace, step, roles.own()[0]).heads, roles_in(trace, step).heads
    return [
        [
            ", ".join(one.label for one in (*own.get((layer, head), ()), *ours.get((layer, head), ())[:1]))
            for head in range(trace.sizes["head"])
        ]
        for layer in range(trace.sizes["layer"])
    ]


def draw_roles(trace: xr.Dataset, step: int | None) -> None:
    """The roles of a person's own with the heads that have them; nothing where the server was started without."""
    own, wrong = roles.own()
    if wrong:
        st.text(wrong)
    if not own:
        return
    found = roles_in(trace, step, own)
    st.header("Named roles", anchor=False)
    st.caption(HOW)
    told = "".join(_told(trace, role, found.of(role.name), found.not_recorded.get(role.name, "")) for role in own)
    st.html(f'{STYLE}<div class="roles">{told}</div>')


def _told(trace: xr.Dataset, role: Role, heads: list[HeadRole], lacking: str) -> str:
    """A role, what it asks for, and the heads that have it."""
    if lacking:
        return f"<p><b>{escape(role.label)}</b> <span>Not recorded here: {escape(lacking)}.</span></p>"
    label = escape(in_trace(trace, role.measure).label)
    beside = "no control" if role.control is None else f"above: {escape(in_trace(trace, role.control).label)}"
    needed = f"<p><b>{escape(role.label)}</b> <span>{label}: at least {role.at_least:g}; {beside}</span></p>"
    items = [_item(in_trace(trace, role.measure), one) for one in heads[:MOST]] or ["<span>No head.</span>"]
    items += [f"<span>and {len(heads) - MOST} more</span>"] * (len(heads) > MOST)
    return f"{needed}<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _item(measure: Measure, one: HeadRole) -> str:
    """L1H2 0.85, 0.83 to 0.87, control 0.03"""
    like = "share" if (measure.low, measure.high) == (0, 1) else measure
    value, low, high, control = (theme.fmt(x, like) for x in (one.value, one.low, one.high, one.control))
    said = f"<b>{theme.head_label(*one.head)}</b> {value}"
    said += f"<span>{low} to {high}</span>" * (not math.isnan(one.low))
    return said + f"<span>control {control}</span>" * (not math.isnan(one.control))
