"""The Ablate page beside another run or step: the same heads off, the same mode, and which of the two it costs more."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import theme
from dashboard.loading import ablation, comparison
from dashboard.loading.ablation import Cost, Setup, Swept
from dashboard.shared import prompts
from dashboard.shared.asking import asked
from dashboard.shared.comparing import is_compared, other_run, other_step, refuse
from dashboard.shared.mount import draw
from dashboard.views.ablate.sweep import AT_ONCE, TABLE, probe_title
from tracer.config import DRAWS
from tracer.pictures import headmap
from tracer.store import Run

if TYPE_CHECKING:
    from tracer.ablate import Estimate


def draw_beside(run: Run, setup: Setup) -> None:
    """Nothing, and nothing is computed, unless another run or step was chosen."""
    if not is_compared(run, prompt=False):
        return
    st.header("The same heads off in B" if setup.off else "Beside B", anchor=False)
    try:
        other = other_run(run)
    except (ValueError, OSError) as error:
        refuse(str(error))
        return
    if not prompts.can_read(other) or not other.steps:
        why = other.why_not("prompts") or "It has no snapshot yet"
        refuse(f"The heads of {other.name} cannot be switched off here. {theme.sentence(why)}")
        return
    large = ablation.is_large(run) or ablation.is_large(other)
    why = "A forward pass of this model takes seconds."
    if not asked(f"beside {other.dir}", "Measure B as well", key="beside", at_once=not large, why=why):
        return
    try:
        beside = _beside(setup, other)
        _draw_costs(run, setup, other, beside)
        _draw_sweeps(run, setup, other, beside)
    except ValueError as error:
        refuse(str(error))


def _beside(setup: Setup, other: Run) -> Setup:
    """The same heads off in the other run, as far as it has them."""
    from tracer.ablate.parts import every_head

    step = other_step(other.steps, setup.step)
    there = every_head(Setup.of(other, step, (), setup.mode, setup.frozen).model)
    off = tuple(head for head in setup.off if head in there)
    if setup.off and not off:
        st.caption("None of these heads is in B: below are the losses with all heads on.")
    elif gone := [theme.head_label(*head) for head in setup.off if head not in off]:
        st.caption(f"B has no {', '.join(gone)}: left out there.")
    return Setup.of(other, step, off, setup.mode, setup.frozen)


def _draw_costs(run: Run, setup: Setup, other: Run, beside: Setup) -> None:
    sides = [(f"A: {run.name}, step {setup.step:,}", setup), (f"B: {other.name}, step {beside.step:,}", beside)]
    costs = [ablation.costs(one) if one.off else None for _, one in sides]
    clean = [ablation.clean(one.opened, one.step) for _, one in sides]
    paired = comparison.differences(setup, beside) if setup.off and beside.off else {}
    names = [name for name in clean[0] if name in clean[1]]
    if not names:
        raise ValueError("no loss is measured on both: one has only repeated tokens, the other only text")
    for column, name in zip(st.columns(len(names), gap="large"), names, strict=True):
        with column:
            st.markdown(f"**{probe_title(name, setup)}**")
            rows = [
                _row(title, before[name], cost[name] if cost else None)
                for (title, _), before, cost in zip(sides, clean, costs, strict=True)
            ]
            head = "".join(f"<th>{escape(one)}</th>" for one in ("nats a token", "Before", "After", "Change"))
            body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
            st.html(f'{TABLE}<table class="numbers beside">{body}</table>')
            a, b = costs
            if a and b:
                st.markdown(sentence(a[name].change, b[name].change, paired.get(name)))


def _row(title: str, before: float, cost: Cost | None) -> str:
    change = ""
    if cost:
        change = f"{theme.signed(cost.change.mean)}<i>{theme.interval(cost.change.low, cost.change.high)}</i>"
    after = theme.fmt(cost.after, "loss") if cost else "–"
    return (
        f"<tr><td>{escape(title)}</td><td>{theme.fmt(before, 'loss')}</td><td>{after}</td><td>{change or '–'}</td></tr>"
    )


def sentence(a: Estimate, b: Estimate, paired: Estimate | None) -> str:
    """Which of two changes is larger, and whether that is more than both are unsure of."""
    from tracer.ablate import agree

    more, less = ("B", "A") if b.mean > a.mean else ("A", "B")
    said = f"It costs **{more}** more than {less}, by {theme.fmt(abs(b.mean - a.mean), 'loss')} nats a token. "
    if theme.fmt(a.mean, "loss") == theme.fmt(b.mean, "loss"):
        said = "It costs both the same, to three decimals. "
    if paired is not None and np.isfinite(paired.low):
        ends = theme.interval(paired.low, paired.high) + ", which includes 0" * (paired.low <= 0 <= paired.high)
        said += (
            f"Both read the same {paired.n} sequences, so they are compared one by one: B − A is "
            f"{theme.signed(paired.mean)}, 95 % interval {ends}. "
        )
    elif paired is None:
        said += "They read different sequences, so these are two separate measurements. "
    if not all(np.isfinite(one.low) for one in (a, b)):
        return f"{said}With 1 sequence there are no intervals to compare."
    over = agree({"a": a, "b": b})
    return f"{said}The two 95 % intervals {'overlap' if over else 'do not overlap'}."


def _draw_sweeps(run: Run, setup: Setup, other: Run, beside: Setup) -> None:
    st.markdown("**Every head by itself, in A and in B**")
    passes = sum(sum(one.model.heads_of_layers) for one in (setup, beside))
    passes *= DRAWS if setup.mode == "resample" else 1
    wish, label = f"beside sweep {setup.run} {beside.run}", "Measure every head of both"
    few = passes <= AT_ONCE and not ablation.is_large(run) and not ablation.is_large(other)
    if not asked(wish, label, key="beside_sweep", at_once=few, help=f"{passes} passes"):
        return
    a, b = (ablation.sweep(s.opened, s.step, s.mode, s.frozen) for s in (setup, beside))
    shared = [name for name in a if name in b]
    chosen = shared[0]
    if len(shared) > 1:
        chosen = st.segmented_control(
            "Measured on", shared, key="beside_probe", default=shared[0], required=True, label_visibility="collapsed",
            format_func=lambda name: probe_title(name, setup),
        ) or shared[0]  # fmt: skip
    one, two = a[chosen], fitted(b[chosen], a[chosen].effect.shape)
    change, both = two.effect - one.effect, ablation.change_scale(one.effect, b[chosen].effect)
    apart = (two.low > one.high) | (two.high < one.low)
    maps = [("a", "A", one.effect, both, one.sure, setup.off),
            ("b", "B", b[chosen].effect, both, b[chosen].sure, beside.off),
            ("change", "B − A", change, ablation.change_scale(change), apart, ())]  # fmt: skip
    for column, (key, name, values, scale, marked, off) in zip(st.columns(3, gap="medium"), maps, strict=True):
        with column:
            draw(headmap.picture(values, title=name, scale=scale, marked=marked, off=off), key=f"beside_{key}")
    only = (
        "" if b[chosen].effect.shape == one.effect.shape else " Heads that only one of them has are left out of B − A."
    )
    st.caption(
        "The change in loss when only that head is off. In A and B a dot says that the 95 % interval of that head "
        "excludes 0; in B − A that the two intervals of a head do not overlap. Colours of B − A have a scale of their "
        f"own.{only}{too_few_words(one, two)}"
    )


def too_few_words(*swept: Swept) -> str:
    """Why dots are all that these sequences can give, once for all that say the same."""
    return "".join(f" {words}" for words in dict.fromkeys(one.too_few for one in swept if one.too_few))


def fitted(found: Swept, shape: tuple[int, ...]) -> Swept:
    """A sweep as one of another model's layers and heads: the same labels, nan where it has none."""

    def fit(values: np.ndarray) -> np.ndarray:
        out = np.full(shape, np.nan)
        rows, cols = (min(n) for n in zip(values.shape, shape, strict=True))
        out[:rows, :cols] = values[:rows, :cols]
        return out

    return Swept(fit(found.effect), fit(found.low), fit(found.high), fit(found.corrected) > 0, found.too_few)
