"""A tour in six steps on one run: find its induction head, see it form, ask, predict, switch it off, prevent it.

The card only points and notices: each deed is done on the page below it, and each number comes from what that page
shows. The prediction is asked for before the measurement, so that there is something to be wrong about.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import jobs, loading, navigation, state
from dashboard.shared.pulse import ticking
from dashboard.shared.tour import deeds
from dashboard.shared.tour.deeds import GUESSES, Story
from tracer.store import Run

TITLES = (
    "Find the sharp head",
    "Scrub to where it was born",
    "Ask what it copies",
    "Predict what breaks",
    "Ablate and see",
    "Keep it from forming",
)
LAST = len(TITLES)
PREDICTION, TRAINING = 4, 6
PAGES = {5: "ablate", TRAINING: "training"}
"""Where a deed is done that is not done on Heads."""
NEXT = {
    "training": "Both runs in every chart",
    "phases": "What formed when: Phases",
    "circuits": "Composition: Circuits",
    "runs": "Watch a model of your own: Runs",
}
"""Where to go from the end."""
STYLE = """<style>
.tour-dots { display: flex; gap: 6px; align-items: center; height: 1.6rem; }
.tour-dots i { width: 8px; height: 8px; border-radius: 50%; border: 1.5px solid currentColor; }
.tour-dots i.past, .tour-dots i.here { background: currentColor; }
.tour-dots i.here { width: 22px; border-radius: 5px; }
</style>"""


def draw_tour(page: str) -> None:
    """The card on top of the page at this address, while somebody takes the tour; its place is always there.

    Otherwise each part of the page would be made anew when the card comes or goes.
    """
    with st.container(key="tour_place"):
        _draw(page)


def _draw(page: str) -> None:
    at = state.read().tour
    if not 1 <= at <= LAST:
        return
    try:
        run = _run()
        story = None if run is None else deeds.story(run)
    except (ValueError, OSError):  # the page below says what is wrong with the run
        return
    if run is None:
        return
    st.html(STYLE)
    with st.container(border=True, key="tour", gap="small"):
        at = at if story is None else min(at, story.last)
        _draw_head(at, LAST if story is None else story.last)
        if story is None:
            st.markdown("There is no tour of this run: that takes snapshots of its weights and a head with a high "
                        "induction score. Train the demo, and take it there.")  # fmt: skip
        else:
            _draw_step(at, story, page)


def draw_start(run: Run, key: str, *, primary: bool = False) -> None:
    """The button that begins it."""
    st.button("Take the tour", key=key, icon=":material/explore:", on_click=_start, args=(run,),
              type="primary" if primary else "secondary", help=f"{LAST} steps, about five minutes")  # fmt: skip


def _start(run: Run) -> None:
    state.open_run(run.name)
    _go(1, deeds.story(run))


def _run() -> Run | None:
    name = state.read().run
    if name is not None:
        return loading.run(name)
    return next(iter(loading.runs()), None)


def _draw_head(at: int, last: int) -> None:
    dots = "".join(f'<i class="{"here" if i == at else "past" if i < at else ""}"></i>' for i in range(1, last + 1))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tour_head"):
        st.html(f'<div class="tour-dots" role="img" aria-label="Step {at} of {last}">{dots}</div>', width="content")
        st.markdown(f"**{TITLES[at - 1]}**", width="stretch")
        st.button("Close", key="tour_close", icon=":material/close:", type="tertiary", on_click=_leave,
                  help="Leave the tour")  # fmt: skip


def _draw_step(at: int, story: Story, page: str) -> None:
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom", gap="small"):
        words, buttons = (
            st.container(key=f"tour_words_{at}", gap="small"),
            st.container(horizontal=True, width="content", gap="small"),
        )
    there = page == _page(at)
    with words:
        if at == TRAINING and there and _trains(story):
            complete = False
            ticking(lambda: _watch(story), key="tour")
        else:
            complete = _draw_words(at, story, there=there)
    with buttons:
        _draw_buttons(at, story, complete, there=there)
    if at == TRAINING and complete:
        _draw_next(story)
    if complete and at != PREDICTION and st.session_state.get("tour_told") != (at, story.key):
        st.session_state["tour_told"] = (at, story.key)
        st.toast("Done. The card on top says more.", icon=":material/check:")


def _watch(story: Story) -> None:
    """How far the second training is; the whole card once it has ended."""
    if not _trains(story):
        st.rerun()
    if story.again() is None:
        st.text("It is starting: this takes a few seconds.")
    _draw_words(TRAINING, story, there=True)


def _trains(story: Story) -> bool:
    """Is the second training under way?"""
    again = story.again()
    return again.live if again is not None else any(one.command == "fork" for one in jobs.making())


def _draw_next(story: Story) -> None:
    """What there is to do with what the tour found."""
    again = story.again()
    with st.container(horizontal=True, gap="small", key="tour_next_pages"):
        for name, label in NEXT.items():
            st.button(label, key=f"tour_to_{name}", type="tertiary", icon=":material/arrow_forward:", on_click=_turn,
                      args=(name, again.name if again is not None and name == "training" else None))  # fmt: skip


def _turn(name: str, compare: str | None) -> None:
    state.update(tour=0, compare=compare)
    st.switch_page(navigation.page(name))


def _draw_words(at: int, story: Story, there: bool) -> bool:
    """The task until it is done, then what there is to say; is it done?"""
    guess = state.read().guess
    if at == PREDICTION:
        st.markdown(story.task(at))
        st.radio(
            "Your prediction", list(GUESSES), label_visibility="collapsed", index=None,
            format_func=GUESSES.__getitem__,
            **state.control("tour_guess", guess or None, lambda guess: state.update(guess=guess or "")),
        )  # fmt: skip
        return bool(guess)
    done = story.done(at, guess or None) if there else None
    if done is None or not done.complete:
        st.markdown(story.task(at))
    if done is not None:
        with st.container(key="tour_done" if done.complete else "tour_hint", gap="xsmall"):
            for i, line in enumerate(done.lines):
                st.text(f"✓ {line}" if done.complete and i == 0 else line)
    return done is not None and done.complete


def _draw_buttons(at: int, story: Story, complete: bool, there: bool) -> None:
    if at > 1:
        st.button("Back", key="tour_back", type="tertiary", on_click=_go, args=(at - 1, story))
    kind = "primary" if complete else "secondary"
    if not there:
        st.button("Take me there", key="tour_there", type="primary", icon=":material/arrow_forward:",
                  on_click=_go, args=(at, story))  # fmt: skip
    elif at == TRAINING and story.again() is None:
        st.button(f"Train it ({_duration(story.run)})", key="tour_train", type="primary", icon=":material/play_arrow:",
                  on_click=_train, args=(story,), disabled=_trains(story))  # fmt: skip
    elif at < story.last:
        st.button("Next" if complete else "Skip", key="tour_next", type=kind if complete else "tertiary",
                  on_click=_go, args=(at + 1, story))  # fmt: skip
    else:
        st.button("Finish", key="tour_finish", type=kind, on_click=_leave)


def _page(at: int) -> str:
    return PAGES.get(at, "heads")


def _duration(run: Run) -> str:
    """As long as the run itself took, where it says so."""
    seconds = run.meta.get("cost", {}).get("seconds")
    return f"about {max(1, round(seconds / 60))} min" if isinstance(seconds, (int, float)) else "some minutes"


def _train(story: Story) -> None:
    """The second training, as a process of its own."""
    run = story.run
    try:
        jobs.fork(
            run, story.start, jobs.free_name(f"{run.name}-no-previous"), run.config.steps, ", ".join(story.clamps)
        )
    except (ValueError, OSError) as error:
        st.toast(str(error))


def _go(at: int, story: Story | None) -> None:
    """To a step's page, set up so that the deed is still to be done; from callbacks only.

    There the page changes at once: a page that ticks meanwhile would have Streamlit clear the new one.
    """
    st.session_state.pop("tour_told", None)
    changes: dict[str, Any] = {} if story is None else story.setting(at)
    state.update(tour=at, **changes)
    st.switch_page(navigation.page(_page(at)))


def _leave() -> None:
    state.update(tour=0)
