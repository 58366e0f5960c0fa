"""What would have helped: a button that trains a run again from before a finding, and what came of that."""

from __future__ import annotations

import re

import streamlit as st

from dashboard import jobs, navigation, state, theme
from dashboard.loading import diagnoses
from dashboard.shared import closer
from dashboard.shared.plots import table
from dashboard.shared.pulse import ticking
from tracer.diagnosis import Finding
from tracer.diagnosis.futures import AS_IT_WAS, Future, made_for
from tracer.store import Run

DONE = re.compile(r"^[> ] [a-z][a-z -]+ +(?:finished|diverged) ", re.MULTILINE)
"""A line of `tracer remedy`: one of them is there."""


def draw(run: Run, one: Finding, key: str) -> None:
    """Under a finding: the runs that were made for it, or the button that makes them."""
    found, going = made_for(run, one.kind), jobs.remedying(run)
    if found:
        _draw_found(run, [diagnoses.future(made) for made in found], key)
    mine = going is not None and going.about == one.kind
    if going is not None and mine and going.alive:
        ticking(lambda: _draw_progress(going), key=f"remedy_{key}", seconds=2.0)
    if going is not None and mine and going.failed:
        st.text("It failed. End of its log:")
        st.code(going.tail(), language=None, wrap_lines=True)
    if message := st.session_state.get(f"problem remedy {run.name} {one.kind}"):
        st.text(message)
    if not found and closer.can(run) and not (going is not None and going.alive):
        st.button(
            "What would have helped?", key=f"remedy_{key}", icon=":material/healing:", type="tertiary",
            on_click=_begin, args=(run, one),
            help="Trains again from before this, as it was and with one change at a time, each a run of its own. "
                 f"`tracer remedy {theme.unmarked(run.name)} --finding {one.kind}`",
        )  # fmt: skip


def _begin(run: Run, one: Finding) -> None:
    try:
        jobs.remedy(run, one.kind)
        st.session_state.pop(f"problem remedy {run.name} {one.kind}", None)
    except (ValueError, OSError) as error:
        st.session_state[f"problem remedy {run.name} {one.kind}"] = str(error)


def _draw_progress(going: jobs.Started) -> None:
    if not going.alive:
        st.rerun()
    done = len(DONE.findall(going.tail(40)))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"Training it again: {done} done" if done else "Training it again, first as it was …", width="content"
        )
        st.button("Cancel", key="cancel_remedy", icon=":material/stop:", type="tertiary",
                  on_click=lambda: jobs.cancel(going),
                  help="What is done stays; `tracer remedy` goes on from there.")  # fmt: skip


def _draw_found(run: Run, found: list[Future], key: str) -> None:
    """A line a change: what became of the finding, and the held-out loss."""
    helped = [one.name for one in found if one.helped]
    st.text(f"Gone with: {', '.join(helped)}" if helped else "Gone with none of these changes")
    table(
        {
            "Change": [f"{one.name}{' (advised)' * one.named}" for one in found],
            "This finding": [said(one) for one in found],
            "Bad, too": [", ".join(one.also) for one in found],
            "Held-out loss": [theme.fmt(one.loss) for one in found],
            "What is changed": [one.words for one in found],
        },
        key=f"helped_{key}", alt=f"what became of the finding in {len(found)} trainings",
    )  # fmt: skip
    st.caption("One seed of each: a lead, no law.")
    st.button("Their curves on Training", key=f"futures_{key}", icon=":material/arrow_forward:", type="tertiary",
              on_click=_lay_over, args=(run, [one.run.name for one in found if one.name != AS_IT_WAS]))  # fmt: skip


def said(one: Future) -> str:
    """What became of the finding."""
    return "gone" if one.helped else "not seen" if one.since is None else f"since step {one.since:,}"


def _lay_over(run: Run, names: list[str]) -> None:
    names = names[: state.MOST_OVER - 1]
    state.update(run=run.name, compare=names[0] if names else None, over=tuple(names[1:]))
    st.switch_page(navigation.page("training"))
