"""The scores of a record with heads off: computed once a page is drawn, for no click on a switch waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import streamlit as st

from dashboard import loading
from dashboard.loading import ablation, roles
from dashboard.loading.kept import kept, known
from tracer.measures import HEAD, SE, SEQUENCES
from tracer.measures.aliases import Head
from tracer.pictures.atlas import Roles, Scored
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

NAME = "scores without"
WISH = "score without heads"
"""Of the session: whoever asks for it once has it of every choice of heads."""
Found = dict[str, np.ndarray]


class Scores(NamedTuple):
    """What is known of the heads that a page shows."""

    trace: xr.Dataset
    """Of a run; or two rows, at 0 as it was recorded with all heads on, at 1 the same with heads off."""
    step: int | None
    """The row to be read."""
    scored: Scored
    """With which heads on: empty where that changes nothing."""


def scores(trace: xr.Dataset, shown: PromptPatterns, step: int | None) -> Scores:
    """With all heads on those of the record nearest to a step; with some off those of `shown`, once they are known."""
    if not _matters(shown):
        return Scores(trace, step, "")
    found, row = known(NAME, _key(shown)), _row(trace, shown)
    return Scores(_both(trace, row, found), 1, "anew") if found else Scores(trace, step, "recorded")


def roles_of(now: Scores) -> Roles:
    """By what heads are called; with some off, lost is the role by which a head was called with all on."""
    found, then = roles.of_step(now.trace, now.step), recorded(now)
    if then is None:
        return found
    was = roles.of_step(then.trace, then.step).codes
    return found._replace(lost=np.where(np.equal(found.lost, was), found.lost, 0))


def recorded(now: Scores) -> Scores | None:
    """As it was recorded with all heads on, where `now` is not."""
    return now._replace(step=0) if now.scored == "anew" else None


def waits(run: Run, trace: xr.Dataset, shown: PromptPatterns) -> bool:
    """Is it for the reader to ask for them, as this model is large?"""
    return _can(run, trace, shown) and not _may(run)


def stays(run: Run, trace: xr.Dataset, shown: PromptPatterns) -> bool:
    """Is what was recorded with all heads on all there is, unless somebody asks?"""
    comes = _can(run, trace, shown) and _may(run)
    return scores(trace, shown, shown.step).scored == "recorded" and not comes


def ask() -> None:
    st.session_state[WISH] = True


def complete(run: Run, trace: xr.Dataset, shown: PromptPatterns) -> None:
    """Compute what is missing and draw the page again: to be called once all of it is drawn."""
    if _can(run, trace, shown) and _may(run):
        kept(NAME, _key(shown), lambda: _compute(run, trace, shown.step, shown.off))
        st.rerun()


def _may(run: Run) -> bool:
    return not ablation.is_large(run) or bool(st.session_state.get(WISH))


def _can(run: Run, trace: xr.Dataset, shown: PromptPatterns) -> bool:
    """Is there something to compute, and a record of these weights to hold it against?"""
    there = trace["step"].values[_row(trace, shown)] == shown.step
    return bool(there) and _matters(shown) and not run.about.why_not("prompts") and known(NAME, _key(shown)) is None


def _matters(shown: PromptPatterns) -> bool:
    """Does a pattern come after what is off?"""
    return bool(shown.off) and min(layer for layer, _ in shown.off) < len(shown.causal) - 1


def _row(trace: xr.Dataset, shown: PromptPatterns) -> int:
    return nearest_row(trace["step"].values, shown.step)


def _key(shown: PromptPatterns) -> tuple[object, ...]:
    return (*shown.key[:2], shown.step, shown.off)


def _compute(run: Run, trace: xr.Dataset, step: int, off: tuple[Head, ...]) -> Found:
    """Nothing where the sequences of the record cannot be had again, or a head can't be off."""
    from tracer.ablate.scores_without import scores_without

    try:
        found = ablation.batches(run)
        if found.note or found.text is None:
            return {}
        for name, tokens in (("induction", found.repeat.tokens), ("entropy", found.text)):
            if trace[name + SE].attrs[SEQUENCES] != len(tokens):
                return {}
        return scores_without(loading.model(run, step), off, repeat=found.repeat, text=found.text)
    except (ValueError, KeyError):
        return {}


def _both(trace: xr.Dataset, row: int, found: Found) -> xr.Dataset:
    """What was not scored again, such as a measure of a user's, is not known."""
    import xarray as xr

    def rows(name: str) -> tuple[tuple[str, ...], np.ndarray, dict[str, object]]:
        variable = trace.variables[name]
        was = variable.values[row].astype(float)
        return HEAD, np.stack([was, found.get(name, np.full_like(was, np.nan))]), variable.attrs

    names = [str(name) for name, variable in trace.variables.items() if variable.dims == HEAD]
    return xr.Dataset({name: rows(name) for name in names}, {"step": [0, 1]})
