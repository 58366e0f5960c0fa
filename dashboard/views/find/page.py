"""Find: which head does what, and where in the held-out text does it do it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from dashboard import loading, state, theme
from dashboard.loading import ablation, head_scores, roles
from dashboard.loading.kept import of_run
from dashboard.shared import choosers, prompts, switches
from dashboard.shared.answer import draw_answer
from dashboard.shared.answer_beside import draw_beside
from dashboard.shared.asking import asked, is_wished
from dashboard.shared.comparing import choose_other, refuse_to_compare
from dashboard.shared.plots import table
from dashboard.stage import heads
from dashboard.views.find import data as finding
from dashboard.views.find.all_heads import draw_all_heads
from dashboard.views.find.data import HeadPeaks
from dashboard.views.find.passages import READ, choose_kind, draw_ends, draw_passages, draw_top
from dashboard.views.find.survey import draw_survey
from tracer.analysis.head_roles import CHANCE, roles_in
from tracer.measures import CONTROLS
from tracer.measures.aliases import Head
from tracer.pictures.scales import mark_of
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr

CONTROL, ABOVE = CONTROLS["induction"], "Above control"
DOES = {
    "induction": "is the strongest induction head", "previous_token": "looks most at the token before",
    "duplicate_token": "looks most at earlier copies", "current_token": "looks most at its own token",
    "first_token": "looks most at the first token",
}  # fmt: skip
"""What a head with the role of this name is said to do."""
BESIDE = ("induction", CONTROL, "previous_token", "entropy_normalised", "first_token")
"""What stands beside the measure that heads are ranked by: no induction score without its control."""
LISTED = 8
"""Heads that are named above the table."""
SHOWN = 3
"""Measures of the table."""
CHOICES = (340, 320)
"""Pixels of the two choices beside the answer."""
NO_HEADS = "No heads were recorded in this run."
BEYOND = 0.05
"""Of a score: a head that is less above its control, or above chance, does not do it."""


def page() -> None:
    choosers.heading("Find", "Which head does what, and where in a text does it do it?")
    run = choosers.choose_run()
    if choosers.without_heads(run):
        refuse_to_compare(NO_HEADS)
        return
    trace = choosers.recorded(run)
    if trace is None:
        return
    choose_other(run, prompts.searched(run) or trace["step"].values.tolist(), prompt=False)
    if "ranking" not in st.session_state:  # one comes from another page, to what is newest now
        st.session_state.pop(READ, None)
    choosers.tick(run, lambda: heads.slim(run, lambda: _draw(run), prompts.searched(run) or None))
    if not run.live:
        _draw_all(run, trace)


def _draw_all(run: Run, trace: xr.Dataset) -> None:
    """A corpus where the model can be run, and what is known of every head; not while the run trains."""
    runs = bool(prompts.can_read(run) and run.steps)
    step = choosers.step_in_force(prompts.searched(run) or [int(at) for at in trace["step"].values])
    head = choosers.focus(trace, step)
    draw_all_heads(run, trace, draw_survey(run, step, head) if runs else None, step, head)


def _draw(run: Run) -> None:
    """Everything below the stage; in a live run this moves along with the newest snapshot."""
    trace = choosers.recorded(run)
    if trace is None:
        return
    answered, by, kinds = choosers.answer_row(*CHOICES)
    with by:
        measure = choosers.choose_measure(run, "Rank heads by", head_scores.head_measures(trace))
    with kinds:
        kind = choose_kind()
    steps = prompts.searched(run)
    step = choosers.step_in_force(steps or [int(s) for s in trace["step"].values])
    read, focus = _reading(run, kind, step, choosers.focus(trace, step))
    ranked = _ranked_by(trace, measure, step)
    with answered:
        draw_answer(_answer(run, trace, step, measure, ranked))
    draw_beside(run, step, lambda other, at: _answer_of(other, at, measure))
    left, right = st.columns([7, 5], gap="large")
    passages, aside = left.container(key="find_passages"), right.container(key="find_aside")
    if steps:
        with passages:  # first: on a phone the ranking is below it, and would be pushed down
            draw_top(run, read, focus, step)
    with aside:
        _draw_ranking(run, trace, step, measure, ranked, focus)
    with passages:
        if not steps:
            _say_why_not(run)
            return
        try:
            off = _off(run, trace, read)
            found = _search(run, read, off)
            if found is not None:
                draw_passages(run, found, kind, focus, step, _before(run, found))
                with aside:
                    draw_ends(found, kind, focus)
        except ValueError as error:
            choosers.refuse(str(error))


def _reading(run: Run, kind: str, step: int, focus: Head) -> tuple[int, Head]:
    """The step and head whose passages stand on the page: the newest ones, then the same until somebody asks."""
    chosen = state.read()
    asked = of_run(run), kind, chosen.step, chosen.focus
    if st.session_state.get(READ, (None,))[0] != asked:
        st.session_state[READ] = asked, step, focus
    return st.session_state[READ][1:]


def _say_why_not(run: Run) -> None:
    if run.about.d_vocab is None:
        why = "This model reads no tokens, so there is no text to search."
    elif prompts.can_read(run):
        why = "The first snapshot is written soon: then its text can be searched."
    else:
        why = f"{run.why_not('prompts')}, and no patterns were kept, so there is no text to search."
    st.info(f"{why} The ranking is of what was recorded.", icon=":material/search_off:")


def _off(run: Run, trace: xr.Dataset, step: int) -> tuple[Head, ...]:
    """The heads that are off in the text that the model reads; none where patterns were kept, which is said."""
    if prompts.can_read(run):
        return switches.in_force(run, step, head_scores.head_exists(trace))
    if state.read().off:
        st.caption(f"{run.why_not('prompts')}: these patterns were kept with all heads on.")
    return ()


def _search(run: Run, step: int, off: tuple[Head, ...]) -> HeadPeaks | None:
    """The looks of every head; asks first where that takes long, of a large model for each set of heads."""
    from_kept = not prompts.can_read(run)
    without = f"Without {switches.named(off)}. " if off else ""
    why = f"{without}This model is large: reading the text takes its time, for all heads at once."
    return finding.search(run, step, from_kept, off) if asked(
        _wish(run, off), "Search the text", key="search_text", at_once=from_kept or not ablation.is_large(run), why=why,
        icon=":material/search:", type="primary",
    ) else None  # fmt: skip


def _wish(run: Run, off: tuple[Head, ...]) -> str:
    return f"search {run.dir} {off}"


def _before(run: Run, found: HeadPeaks) -> HeadPeaks | None:
    """The same with all heads on; None where that would take long."""
    if not found.off:
        return found
    at_once = not ablation.is_large(run) or is_wished(_wish(run, ()))
    return finding.search(run, found.step) if at_once else None


def _ranked_by(trace: xr.Dataset, measure: str, step: int) -> np.ndarray:
    """[layer head]."""
    above = measure == "induction"
    return head_scores.above_control(trace, step) if above else head_scores.head_means(trace, measure, step)


def _answer_of(other: Run, step: int, measure: str) -> str:
    """The same question at what is compared with; ValueError says why it has no answer."""
    trace = loading.trace(other)
    if not trace.sizes["step"] or not head_scores.holds(trace, measure):
        raise ValueError(f"{other.name} has not measured it.")
    return _answer(other, trace, step, measure, _ranked_by(trace, measure, step))


def _answer(run: Run, trace: xr.Dataset, step: int, measure: str, by: np.ndarray) -> str:
    """Which head comes first, what it does where it has the role, and its number beside its control and chance."""
    known = choosers.measure_of(run, measure)
    label = theme.unmarked(known.label.lower())
    if (best := head_scores.top_head(by)) is None:
        return f"No head has a number of {label} at step {step:,}."
    beside, control = [], CONTROLS.get(measure, "")
    value, other = (float(head_scores.head_means(trace, name, step)[best]) for name in (measure, control))
    if np.isfinite(other):
        beside.append(f"control {theme.fmt(other, known)}")
    if (chance := known.at_chance(run.about.setting)) is not None:
        beside.append(f"{mark_of(known)} {theme.fmt(chance, known)}")
    number = " ".join([theme.fmt(value, known), *([theme.unmarked(known.unit)] if known.unit else [])])
    number += f" ({', '.join(beside)})" if beside else ""
    head, roles = theme.head_label(*best), roles_in(trace, step).heads.get(best, ())
    has = measure in {one.role.name for one in roles}
    if measure == "induction" and not has and np.isfinite(other):
        return f"No head is an induction head: {head} comes nearest, {label} {number}."
    named = "score" if has and measure == "induction" else label
    return f"{head} {DOES[measure] if has and measure in DOES else 'ranks first'}: {named} {number}."


def _draw_ranking(run: Run, trace: xr.Dataset, step: int, measure: str, by: np.ndarray, focus: Head) -> None:
    """A line of each head that does it, and the table folded; the table alone where no control says who does."""
    order = ranked(by, head_scores.head_exists(trace))
    word, level = _level(run, trace, step, measure)
    known, scores = choosers.measure_of(run, measure), head_scores.head_means(trace, measure, step)
    st.header("Heads, ranked", anchor=False)
    with st.container(key="ranking_said"):
        probe = theme.unmarked(choosers.probe(run, measure))
        measured = f"By score above control, on {probe}." if measure == "induction" else f"Measured on {probe}."
        st.caption("Recorded with all heads on." if state.read().off else measured,
                   help="Click a head to read its passages, a column to sort by it.")  # fmt: skip
    columns, config = _columns(run, trace, step, measure, by)
    if level is None:
        _draw_heads(order, columns, config, focus)
        return
    above = [head for head in order if scores[head] - level[head] >= BEYOND]
    named = [
        f"**{theme.head_label(*head)}** &nbsp;{theme.fmt(float(scores[head]), known)} "
        f"({word} {theme.fmt(float(level[head]), known)})" for head in above[:LISTED]
    ]  # fmt: skip
    named += [f"and {len(above) - LISTED} more"] * (len(above) > LISTED)
    if named:
        st.markdown("  \n".join(named))
    rest = len(order) - len(above)
    others = f"{rest} other{'s' * (rest != 1)}" if above else f"All {rest} heads"
    said = f"{others} less than {BEYOND:g} above {word}" if rest else f"All {len(order)} heads above {word}"
    with st.expander(said, key="other_heads", type="compact"):
        _draw_heads(order, columns, config, focus)


def _level(run: Run, trace: xr.Dataset, step: int, measure: str) -> tuple[str, np.ndarray | None]:
    """What the score of a head that doesn't do it is, [layer head], with its name: a control, or chance."""
    role = next((one for one in roles.table() if one.measure == measure), None)
    if role is None or role.control is None:
        return "", None
    if role.control == CHANCE:
        chance = choosers.measure_of(run, measure).at_chance(run.about.setting)
        shape = trace.sizes["layer"], trace.sizes["head"]
        return "chance", None if chance is None else np.full(shape, chance)
    known = head_scores.holds(trace, role.control)
    return "control", head_scores.head_means(trace, role.control, step) if known else None


def _columns(
    run: Run, trace: xr.Dataset, step: int, measure: str, by: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:  # fmt: skip
    """Columns [layer head] of the table by their titles, the one that it is ranked by first, and how they are drawn."""
    names = [measure, *(name for name in BESIDE if name != measure and head_scores.holds(trace, name))]
    above = measure == "induction" and CONTROL in names
    names = names[: SHOWN - above]
    values = {name: head_scores.head_means(trace, name, step) for name in names}
    scale = _scale(measure, run, values[measure])
    labels = {name: "Control" if name == CONTROL else choosers.measure_of(run, name).label for name in values}
    if measure == CONTROL:
        labels[measure] = choosers.measure_of(run, measure).label  # no control of what stands beside it
    config = {label: st.column_config.NumberColumn(format="%.3f", width="small") for label in labels.values()}
    columns = {label: values[name] for name, label in labels.items()}
    if above:
        columns = {ABOVE: by, **columns}
    config[next(iter(columns))] = st.column_config.ProgressColumn(
        format="%6.3f", min_value=min(0.0, scale.lo), max_value=scale.hi, width="medium"
    )  # as wide with a minus: a track is as long as its number leaves room for
    return columns, config


def _draw_heads(
    heads: list[Head], columns: dict[str, np.ndarray], config: dict[str, Any], focus: Head
) -> None:  # fmt: skip
    state.show("ranking", {"selection": {"rows": [heads.index(focus)], "columns": [], "cells": []}})
    table(
        {"Head": [theme.head_label(*head) for head in heads],
         **{label: [float(column[head]) for head in heads] for label, column in columns.items()}},
        key="ranking", alt=f"Heads ranked by {next(iter(columns)).lower()}", config=config,
        selection_mode=["single-row", "single-cell"], on_select=lambda: _take(heads),
    )  # fmt: skip


def ranked(values: np.ndarray, there: np.ndarray) -> list[Head]:
    """The heads that exist by their values [layer head], the largest first and those without one last."""
    heads = [(int(layer), int(head)) for layer, head in np.argwhere(there)]
    return sorted(heads, key=lambda head: (not np.isfinite(values[head]), -values[head], head))


def _take(heads: list[Head]) -> None:
    """The head of the row that was chosen, or of the cell that was clicked."""
    chosen = st.session_state["ranking"]["selection"]
    rows = [row for row, _ in chosen["cells"]] or chosen["rows"]
    if rows and rows[0] < len(heads):
        state.focus_on(heads[rows[0]])


def _scale(name: str, run: Run, values: np.ndarray) -> theme.Scale:
    """The measure's scale, long enough for the value at chance."""
    chance = choosers.measure_of(run, name).at_chance(run.about.setting)
    return choosers.scale(name, run, np.append(values, np.nan if chance is None else chance))
