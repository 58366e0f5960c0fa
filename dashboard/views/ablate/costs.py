"""The Ablate page's answer: what switching heads off costs, how sure that is, and whether it matters what stands in."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

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
.strip { width: 100%; border-collapse: collapse; font-size: .9rem; }
.strip td { font-variant-numeric: tabular-nums; }
.strip th, .strip td { padding: .3rem 0; font-weight: 400; text-align: left; white-space: nowrap; }
.strip thead th { opacity: .7; font-size: .8rem; }
.strip .x { width: 60%; padding: 0 1rem; }
.strip img { display: block; width: 100%; height: 25px; }
.strip .group th { padding-top: .7rem; font-weight: 600; }
.strip .group small { font-weight: 400; }
.strip .chosen th { font-weight: 600; }
.strip :is(th, td) small { opacity: .7; font-size: .8rem; }
@media (max-width: 640px) {
  .strip tr { display: grid; grid-template-columns: auto auto; justify-content: space-between; }
  .strip .x { grid-area: 2 / 1 / 3 / 3; width: 100%; padding: 0; }
  .strip thead th { white-space: normal; }
  .strip tr > :last-child { text-align: right; }
  .strip tr > :is(.x, [colspan]) { grid-column: 1 / 3; text-align: left; }
}
</style>"""
OFF, GREY = "#cf6a1c", "#808080"
"""As the curves of heads off and on; seen on a light page and on a dark one."""
HEIGHT = 25
"""Pixels of a row's drawing."""


class CostRow(NamedTuple):
    """A loss in nats with all heads on, and how much it changes."""

    name: str
    before: float
    change: Estimate | None = None
    chosen: bool = False


class Rows(NamedTuple):
    """What was measured on one probe."""

    title: str
    detail: str
    rows: Sequence[CostRow]


def draw_verdict(run: Run, setup: Setup) -> dict[str, Cost] | None:
    """The answer: what the main loss becomes, beside that without copying; returned is the cost on every probe."""
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
    how = {"zero": "Without {}", "mean": "With {} averaged", "resample": "With {} resampled"}[setup.mode]
    done = how.format(switches.named(setup.off)) + ", patterns frozen," * setup.frozen
    first = ablation.first_seen(setup.opened, setup.step) if main == "repeat" else None
    draw_answer(f"{done} the loss on {on} goes {_goes(found[main], first, choosers.scale('repeat_loss', run).chance)}.")
    return found


def _goes(cost: Cost, first: float | None, guess: float | None) -> str:
    """A loss before and after, beside that of tokens that are new to the sequence, else that of a guess."""
    words = f"from {theme.fmt(cost.before, 'loss')} to {theme.fmt(cost.after, 'loss')} nats"
    if first is not None:
        words += f" (tokens seen for the first time: {theme.fmt(first, 'loss')})"
    elif guess is not None:
        words += f" (uniform guess {theme.fmt(guess, 'loss')})"
    return words + "; the change could be nothing" * (cost.change.low <= 0 <= cost.change.high)


def draw_changes(run: Run, setup: Setup, found: dict[str, Cost] | None) -> None:
    """The loss on each probe before and after, on the main one by each replacement, and what they say together."""
    before, given = ablation.clean(setup.opened, setup.step), ablation.batches(setup.opened)
    main, note, some = given.main(setup.mode).name, given.note, given.counted != slice(None)
    about = {
        "repeat": "Random tokens, said twice. The loss of the second time, where copying gives the answer.",
        "text": ("Text that was kept with the run." if note else "Text that it was not trained on.")
        + (" The loss of the tokens that count." if some else " The loss of all its tokens."),
    }
    help = "\n\n".join(f"**{probe_title(name, setup)}**: {about[name]}" for name in before)
    without = f" with and without {switches.named(setup.off)}" if found else ""
    st.header(f"Loss{without}", anchor=False, help=help)
    changes = _by_replacement(run, setup, found[main]) if found else {}
    groups = [
        _rows(probe_title(name, setup), setup.mode, before[name], found.get(name) if found else None,
              changes if name == main else None)
        for name in before
    ]  # fmt: skip
    with st.container(gap="xsmall", key="replacements"):
        st.html(strip(groups, choosers.scale("repeat_loss", run).chance))
        said = [theme.sentence(f"{note}: measured on the text kept with the run")] * bool(note)
        if found:
            said += [f"1 sequence: {setup.mode} has no other to take what stands in from."] * (len(found) < len(before))
            said.append(_agreement(run, changes))
            if len(setup.off) == 1 and abs(found[main].change.mean) < head_sets.SMALL:
                said.append(head_sets.REDUNDANCY)
        st.caption(" ".join(said))


def _rows(title: str, mode: str, before: float, cost: Cost | None, changes: dict[str, Estimate] | None) -> Rows:
    """Of one probe: a row for each replacement, where there are `changes` (what the answer says of it stands there)."""
    loss = theme.fmt(before, "loss")
    if cost is None:
        return Rows(title, "" if changes is not None else f"{loss} nats", [CostRow("All heads on", before)])
    n = f"{cost.change.n} sequence{'s' * (cost.change.n > 1)}"
    if changes is None:
        detail = f"{loss} → {theme.fmt(cost.after, 'loss')} nats, {n}"
        return Rows(title, detail, [CostRow(mode.capitalize(), before, cost.change, True)])
    return Rows(title, n, [CostRow(one.capitalize(), before, change, one == mode) for one, change in changes.items()])


def _by_replacement(run: Run, setup: Setup, cost: Cost) -> dict[str, Estimate]:
    """The change in the main loss by what stands in; of a large model by what was chosen alone."""
    return {setup.mode: cost.change} if ablation.is_large(run) else ablation.by_replacement(setup)


def _agreement(run: Run, found: dict[str, Estimate]) -> str:
    """Whether zero, mean and resample say the same."""
    from tracer.ablate import agree

    if ablation.is_large(run):
        return "Choose another replacement to measure it too: this model takes seconds."
    if len(found) == 1:
        return "There is 1 sequence, so nothing but zero can stand in."
    if not all(np.isfinite(e.low) for e in found.values()):
        return "With 1 sequence there are no intervals to compare."
    if agree(found):
        return "Zero, mean and resample agree within their intervals."
    return "Zero, mean and resample differ by more than their intervals."


def strip(groups: Sequence[Rows], guess: float | None) -> str:
    """A row for each loss on one axis of nats from 0: with all heads on, grey, and with some off, with its interval.

    The drawings are images, which a file of the page keeps (`tracer.pictures.taken`).
    """
    rows = [row for group in groups for row in group.rows]
    changes = [(row.before, row.change) for row in rows if row.change is not None]
    ends = [*(row.before for row in rows), *(b + e.mean for b, e in changes), *(b + e.high for b, e in changes)]
    top = 1.05 * max(value for value in (*ends, guess or 0.0, 1e-9) if np.isfinite(value))

    def at(loss: float) -> float:
        return round(100 * min(max(loss, 0.0), top) / top, 2)

    def upright(x: float, half: float, look: str) -> str:
        middle = HEIGHT / 2
        return f'<line x1="{x}%" x2="{x}%" y1="{middle - half}" y2="{middle + half}" {look}/>'

    def along(low: float, high: float, look: str) -> str:
        return f'<line x1="{low}%" x2="{high}%" y1="{HEIGHT / 2}" y2="{HEIGHT / 2}" {look}/>'

    def dot(loss: float, colour: str) -> str:
        return f'<circle cx="{at(loss)}%" cy="{HEIGHT / 2}" r="4" fill="{colour}"/>' if np.isfinite(loss) else ""

    def cell(marks: str) -> str:
        drawing = f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{HEIGHT}">{marks}</svg>'
        source = f"data:image/svg+xml;base64,{base64.b64encode(drawing.encode()).decode()}"
        return f'<td class="x"><img alt="" src="{source}"></td>'

    def words(x: float, text: str, anchor: str = "middle", dx: int = 0) -> str:
        look = f'text-anchor="{anchor}" font-family="sans-serif" font-size="12.5" fill="{GREY}"'
        return f'<text x="{x}%" y="17" dx="{dx}" {look}>{text}</text>'

    line = "" if guess is None else upright(at(guess), HEIGHT / 2, f'stroke="{GREY}" stroke-dasharray="3"')
    label = "" if guess is None else words(
        at(guess), "uniform guess", *(("end", -6) if at(guess) > 50 else ("start", 6))
    )  # fmt: skip
    floor = f'<line x1="0%" x2="100%" y1="{HEIGHT}" y2="{HEIGHT}" stroke="{GREY}" stroke-opacity="0.4"/>'

    def drawn(row: CostRow) -> str:
        marks, told, look = "", "", f'stroke="{OFF}" stroke-width="1.5"'
        if (e := row.change) is not None:
            after = row.before + e.mean
            if np.isfinite(after) and np.isfinite(row.before):
                marks += along(at(row.before), at(after), f'stroke="{GREY}" stroke-opacity="0.4"')
            if np.isfinite(e.low):
                low, high = at(row.before + e.low), at(row.before + e.high)
                marks += along(low, high, look) + upright(low, 5, look) + upright(high, 5, look)
            marks += dot(row.before, GREY) + dot(after, OFF)
            told = f"{theme.signed(e.mean)} <small>{theme.interval(e.low, e.high)}</small>"
        else:
            marks = dot(row.before, GREY)
        kind = "chosen" if row.chosen else ""
        plot = cell(floor + line + marks)
        return f'<tr class="{kind}"><th scope="row">{escape(row.name)}</th>{plot}<td>{told}</td></tr>'

    stride = next(one for one in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 1e9) if top / one <= 6)
    ticks = "".join(
        words(at(i * stride), f"{i * stride:g}", "middle" if i else "start") for i in range(7) if i * stride <= top
    )
    body = "".join(
        f'<tr class="group"><th colspan="3">{escape(group.title)} <small>{group.detail}</small></th></tr>'
        + "".join(map(drawn, group.rows))
        for group in groups
    )
    left, right = ("grey: all heads on, orange: off", "nats, 95 % interval") if changes else ("", "")
    head = f"<th>{left}</th>{cell(label)}<th>{right}</th>"
    foot = f"<tr><td></td>{cell(ticks)}<td></td></tr>"
    return f'{STYLE}<table class="strip"><thead><tr>{head}</tr></thead><tbody>{body}{foot}</tbody></table>'
