"""The Phases page over runs: the same changes in other runs of the preset, and whether their order repeats."""

from __future__ import annotations

from html import escape

import streamlit as st

from dashboard import loading, theme
from dashboard.loading import changes
from dashboard.loading.run_summaries import settings_of
from dashboard.views.phases.order import interval, lower
from tracer.analysis.order_over_seeds import LEVEL, LINKS, least_p, precedence, seeds_needed
from tracer.analysis.seeds import Seeds, no_seeds
from tracer.analysis.training_curves import NAMES, Curve, events
from tracer.store import Run
from tracer.store.choosing import differences

MOST = 4
"""Other runs that are laid beside this one unasked."""
STYLE = """<style>
.seeds { overflow-x: auto; }
.seeds table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.seeds th, .seeds td { text-align: left; font-weight: 400; padding: .4rem 1rem .4rem 0; vertical-align: top;
  border-bottom: 1px solid rgb(127 127 127 / .2); white-space: nowrap; }
.seeds thead th { font-size: .8rem; opacity: .72; }
.seeds tbody th { font-weight: 550; }
.seeds small { font-size: .78rem; opacity: .72; display: block; }
.seeds .words { white-space: normal; }
@media (max-width: 640px) { .seeds tbody th { white-space: normal; min-width: 6.5rem; } }
</style>"""


def draw_seeds(run: Run, found: list[Curve], compared: list[Run]) -> None:
    """The runs that are laid beside this one; nothing where there is no other."""
    if not any(other.dir.resolve() != run.dir.resolve() for other in loading.runs()):
        return
    st.header("Does the order repeat?", anchor=False)
    st.caption(
        "The same changes in other runs, each with its own heads. Compare other seeds to see whether this order always "
        "happens."
    )
    courses = {run.name: found}
    for other in compared:
        try:
            courses[other.name] = changes.curves(other)
        except (ValueError, OSError) as error:
            st.text(f"{other.name}: {error}")
    if len(courses) > 1:
        every = [run, *(other for other in compared if other.name in courses)]
        shown = table(courses, together=_seed_alone(*every) and not no_seeds(every))
        words, dates = st.columns([5, 7], gap="large")
        words.markdown(said(list(courses.values())))
        dates.html(f'{STYLE}<div class="seeds" role="region" tabindex="0" aria-label="Changes by run">{shown}</div>')


def alike(run: Run, others: dict[str, Run]) -> list[str]:
    """Finished runs of its preset that differ in nothing but the seed, one of each, the first of them by name.

    No forks: the seed of one is that of another run, until the step where it left that.
    """
    if not run.meta.get("preset"):
        return []
    by_seed = {run.meta.get("seed"): run.name}
    for name, other in sorted(others.items()):
        trained = other.meta.get("preset") == run.meta["preset"] and other.status == "finished"
        if trained and not other.meta.get("parent") and _seed_alone(run, other):
            by_seed.setdefault(other.meta.get("seed"), name)
    return [name for name in by_seed.values() if name != run.name][:MOST]


def _seed_alone(*runs: Run) -> bool:
    """Do they differ in nothing but the seed?"""
    try:
        return {*differences([settings_of(run) for run in runs])} <= {"seed"}
    except (ValueError, TypeError):  # a damaged run.json
        return False


def table(courses: dict[str, list[Curve]], together: bool = True) -> str:
    """A row a change in the order of the first run, a column a run: midpoint, its interval and head.

    `together`: and a column of all runs, as one thing.
    """
    first = [curve.name for curve in events(next(iter(courses.values())))]
    titles = NAMES | {curve.name: curve.title for curves in courses.values() for curve in curves}
    names = [*first, *(name for name in titles if name not in first)]
    by_run = {run: {curve.name: curve for curve in curves} for run, curves in courses.items()}
    names = [name for name in names if any((c := found.get(name)) and c.change for found in by_run.values())]
    heads = [*by_run, *([f"All {len(by_run)}"] if together else [])]
    top = "".join(f'<th scope="col">{escape(run)}</th>' for run in heads)
    every = Seeds(courses, {})
    cells = {
        name: "".join(_cell(found.get(name)) for found in by_run.values())
        + (_cell_of_all(every, name) if together else "")
        for name in names
    }
    rows = [f'<tr><th scope="row">{escape(titles[name])}</th>{cells[name]}</tr>' for name in names]
    return f"<table><thead><tr><th></th>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(curve: Curve | None) -> str:
    if curve is None or curve.change is None:
        return f"<td>–<small class='words'>{'not measured' if curve is None else 'no change found'}</small></td>"
    heads = " → ".join(f"L{layer}H{head}" for layer, head in curve.heads)
    said = interval(curve.change)
    return f"<td>{curve.change.midpoint:,}<small>{said}</small>{heads and f'<small>{heads}</small>'}</td>"


def _cell_of_all(runs: Seeds, name: str) -> str:
    """The median date, the first and the last, and where the runs part most, if that is a peak."""
    dates, apart = runs.dates(name), runs.spread(name)
    sure = f", 95 % interval {dates.interval[0]:,} to {dates.interval[1]:,}" if dates.interval else ""
    parts = "" if apart.peak is None else f"<small>runs part most at {apart.peak:,}</small>"
    span = f"<small>{dates.steps[0]:,} to {dates.steps[-1]:,}</small>" if len(dates.steps) > 1 else ""
    said = f"{'median, ' if span else ''}{len(dates.steps)} of {dates.runs} dated{sure}"
    return f"<td>{dates.median:,.0f}<small class='words'>{said}</small>{span}{parts}</td>"


def said(runs: list[list[Curve]]) -> str:
    """Each order of an induction circuit: in how many runs it holds, how sure that is, what so few runs can show."""
    words, most = [], 0
    for one, other in LINKS:
        found = precedence(one, other, runs)
        if not found.known + found.unknown + found.no_circuit:
            continue
        most = max(most, found.known)
        link = f"- {NAMES[one]} before {lower(NAMES[other])}"
        rest = f" Not known in {found.unknown}." if found.unknown else ""
        left = f" Left out: {found.no_circuit}, whose two heads are no circuit." if found.no_circuit else ""
        if found.known:
            low, high = (f"{share:.0%}".removesuffix("%") for share in found.interval)
            chance = f"95 % interval of the share: {low} to {high} %; p = {theme.fmt(found.p(len(LINKS)))}"
            words.append(f"{link}: in **{found.before} of {found.known}** runs ({chance}).{rest}{left}")
        elif found.unknown:
            where = f"any of {found.unknown} runs" if found.unknown > 1 else "the one run that has both"
            words.append(f"{link}: not known in {where}.{left}")
        else:
            words.append(f"{link}: not asked, since the two heads are a circuit in no run.")
    if not words:
        return "None of these runs holds two changes of an induction circuit."
    if most:
        least = least_p(most, len(LINKS))
        runs_are = f"{most} run{'s' * (most > 1)}"
        if least > LEVEL:
            shows = (
                f"**{runs_are} can't show an order**: if all agreed, p would still be {theme.fmt(least)}. It takes "
                f"{seeds_needed(len(LINKS))} that agree."
            )
        else:
            shows = f"If all {runs_are} agreed, p would be {theme.fmt(least)}."
        words.append(f"\n{shows} p: exact sign test over runs, times the {len(LINKS)} orders compared.")
    return "\n".join(words)
