"""The Ablate page's answer: what switching heads off costs, how sure that is, and whether it matters what stands in."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import theme
from dashboard.loading import ablation
from dashboard.loading.ablation import Cost, Setup
from dashboard.shared import choosers, switches
from dashboard.shared.answer import draw_answer
from dashboard.views.ablate.sweep import probe_title
from tracer.analysis import head_sets
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.ablate import Estimate

STYLE = """<style>
.strip { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.strip th, .strip td { padding: .3rem 0; font-weight: 400; text-align: left; white-space: nowrap; }
.strip thead th { opacity: .7; font-size: .8rem; }
.strip .x { width: 60%; padding: 0 1rem; }
.strip img { display: block; width: 100%; height: 25px; }
.strip .chosen th { font-weight: 600; }
.strip td small { opacity: .7; font-size: .8rem; }
@media (max-width: 640px) {
  .strip tr { display: grid; grid-template-columns: auto auto; justify-content: space-between; }
  .strip .x { grid-area: 2 / 1 / 3 / 3; width: 100%; padding: 0; }
  .strip thead th { white-space: normal; }
}
</style>"""
SLATE, GREY = "#66738a", "#808080"
"""Seen on a light page and on a dark one."""
HEIGHT = 25
"""Pixels of a row's drawing."""


def draw_verdict(setup: Setup) -> dict[str, Cost] | None:
    """The answer: what the main loss becomes, and how sure that is; returned is the cost on every probe."""
    main = ablation.batches(setup.opened).main(setup.mode).name
    on = ablation.WORDS[main]
    try:
        found = ablation.costs(setup) if setup.off else None
        clean = ablation.clean(setup.opened, setup.step)
    except ValueError as error:
        choosers.refuse(str(error))
    if found is None:
        with st.container(key="only_here_switch"):
            draw_answer(f"Switch a head off above: with all on, the loss on {on} is "
                        f"{theme.fmt(clean[main], 'loss')} nats.")  # fmt: skip
        return None
    cost = found[main]
    how = {"zero": "Without {}", "mean": "With {} averaged", "resample": "With {} resampled"}[setup.mode]
    done = how.format(switches.named(setup.off)) + ", patterns frozen," * setup.frozen
    before, after = (theme.fmt(loss, "loss") for loss in (cost.before, cost.after))
    change = f"change {theme.signed(cost.change.mean)}, {_sure(cost.change)}"
    draw_answer(f"{done} the loss on {on} goes from {before} to {after} nats ({change}).")
    return found


def draw_costs(run: Run, setup: Setup, found: dict[str, Cost] | None) -> None:
    """The loss with every head on and with these off, on each probe; what is left of it to guessing."""
    before, given = ablation.clean(setup.opened, setup.step), ablation.batches(setup.opened)
    main, note, some = given.main(setup.mode).name, given.note, given.counted != slice(None)
    said = {
        "repeat": "Random tokens, said twice. The loss of the second time, where copying gives the answer.",
        "text": ("Text that was kept with the run." if note else "Text that it was not trained on.")
        + (" The loss of the tokens that count." if some else " The loss of all its tokens."),
    }
    for column, name in zip(st.columns(len(before)), before, strict=True):
        with column, st.container(border=True, height="stretch", gap="xsmall"):
            st.markdown(f"**{probe_title(name, setup)}**, nats", help=said[name])
            _draw_cost(before[name], found.get(name) if found else None, answered=name == main)
            if found and name not in found:
                st.caption(f"1 sequence: {setup.mode} has no other to take what stands in from.")
    if note:
        st.caption(theme.sentence(f"{note}: measured on the text kept with the run"))
    if found is None:
        return
    cost, guess = found[main], choosers.scale("repeat_loss", run).chance
    if guess is not None and cost.after > guess:
        st.caption(f"Worse than guessing ({theme.fmt(guess, 'loss')} nats): it is confidently wrong.")
    if len(setup.off) == 1 and abs(cost.change.mean) < head_sets.SMALL:
        st.caption(head_sets.REDUNDANCY)


def _draw_cost(before: float, cost: Cost | None, answered: bool) -> None:
    """`answered`: how sure it is stands in the answer."""
    with st.container(horizontal=True, gap="medium"):
        st.metric("Before" if cost else "All heads on", theme.fmt(before, "loss"), width="content")
        if cost is None:
            return
        change = cost.change
        st.metric("After", theme.fmt(cost.after, "loss"), width="content")
        st.metric("Change", theme.signed(change.mean), width="content")
    if answered:
        st.caption(f"{change.n} sequence{'s' * (change.n > 1)}")
    else:
        st.caption(_sure(change) + (f" ({change.n} sequences)" if np.isfinite(change.low) else ""))


def _sure(change: Estimate) -> str:
    """How sure a change is."""
    if not np.isfinite(change.low):
        return "1 sequence, so no interval" if change.n == 1 else "no interval"
    unsure = ": could be nothing" if change.low <= 0 <= change.high else ""
    return f"95 % interval {theme.interval(change.low, change.high)}{unsure}"


def draw_replacements(run: Run, setup: Setup) -> None:
    """What zero, mean and resample say of the main loss, as dots with whiskers, and whether they agree."""
    from tracer.ablate import agree

    cost = ablation.costs(setup)[ablation.batches(setup.opened).main(setup.mode).name]
    found = {setup.mode: cost.change} if ablation.is_large(run) else ablation.by_replacement(setup)
    if ablation.is_large(run):
        said = "A forward pass of this model takes seconds: choose another replacement to measure it as well."
    elif len(found) == 1:
        said = "There is 1 sequence, so nothing but zero can stand in."
    elif not all(np.isfinite(e.low) for e in found.values()):
        said = "With 1 sequence there are no intervals to compare."
    elif agree(found):
        said = "Their intervals overlap: the replacement matters little."
    else:
        said = "They differ by more than their intervals: the replacement matters."
    with st.container(gap="xsmall", key="replacements"):
        st.html(strip(cost.before, found, choosers.scale("repeat_loss", run).chance, setup.mode))
        st.caption(said)


def strip(before: float, found: dict[str, Estimate], guess: float | None, chosen: str) -> str:
    """A row for every head on and one for each replacement, on one axis of nats from 0.

    The drawings are images, which a file of the page keeps (`tracer.pictures.taken`).
    """
    ends = [before, *(before + e.mean for e in found.values()), *(before + e.high for e in found.values())]
    top = 1.05 * max(value for value in (*ends, guess or 0.0, 1e-9) if np.isfinite(value))

    def at(loss: float) -> float:
        return round(100 * min(max(loss, 0.0), top) / top, 2)

    def upright(x: float, half: float, look: str) -> str:
        middle = HEIGHT / 2
        return f'<line x1="{x}%" x2="{x}%" y1="{middle - half}" y2="{middle + half}" {look}/>'

    def cell(marks: str) -> str:
        drawing = f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{HEIGHT}">{marks}</svg>'
        source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}"
        return f'<td class="x"><img alt="" src="{source}"></td>'

    def words(x: float, text: str, anchor: str = "middle", dx: int = 0) -> str:
        look = f'text-anchor="{anchor}" font-family="sans-serif" font-size="12.5" fill="{GREY}"'
        return f'<text x="{x}%" y="17" dx="{dx}" {look}>{text}</text>'

    line = "" if guess is None else upright(at(guess), HEIGHT / 2, f'stroke="{GREY}" stroke-dasharray="3"')
    label = "" if guess is None else words(
        at(guess), f"uniform guess {theme.fmt(guess, 'loss')}", *(("end", -6) if at(guess) > 50 else ("start", 6))
    )  # fmt: skip
    floor = f'<line x1="0%" x2="100%" y1="{HEIGHT}" y2="{HEIGHT}" stroke="{GREY}" stroke-opacity="0.4"/>'

    def row(name: str, kind: str, loss: float, whisker: str, colour: str, told: str) -> str:
        dot = f'<circle cx="{at(loss)}%" cy="{HEIGHT / 2}" r="4" fill="{colour}"/>' if np.isfinite(loss) else ""
        plot = cell(floor + line + whisker + dot)
        return f'<tr class="{kind}"><th scope="row">{escape(name)}</th>{plot}<td>{told}</td></tr>'

    stride = next(one for one in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 1e9) if top / one <= 6)
    ticks = "".join(
        words(at(i * stride), f"{i * stride:g}", "middle" if i else "start") for i in range(7) if i * stride <= top
    )
    rows = [row("Every head on", "on", before, "", GREY, "<small>no change</small>")]
    for mode, e in found.items():
        low, high = at(before + e.low), at(before + e.high)
        look = f'stroke="{SLATE}" stroke-width="1.5"'
        along = f'<line x1="{low}%" x2="{high}%" y1="{HEIGHT / 2}" y2="{HEIGHT / 2}" {look}/>'
        whisker = along + upright(low, 5, look) + upright(high, 5, look) if np.isfinite(e.low) else ""
        told = f"{theme.signed(e.mean)} <small>{theme.interval(e.low, e.high)}</small>"
        kind = "chosen" if mode == chosen else ""
        rows.append(row(mode.capitalize(), kind, before + e.mean, whisker, SLATE, told))
    head = f"<th>replaced with</th>{cell(label)}<th>change in nats, 95 % interval</th>"
    foot = f"<tr><td></td>{cell(ticks)}<td></td></tr>"
    return f'{STYLE}<table class="strip"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}{foot}</tbody></table>'
