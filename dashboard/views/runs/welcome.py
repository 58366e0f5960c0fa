"""What this is and where to begin: the first thing that a newcomer sees."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import jobs, navigation, shipped
from dashboard.access import read_only
from dashboard.shared.mount import draw
from dashboard.shared.tour.steps import draw_start
from dashboard.views.runs.new_run import start
from tracer.pictures import forming
from tracer.presets import PRESETS
from tracer.store import Run

WHAT = "See what every *attention head* looks at while it trains, and switch it off to find out what it is for."
INDUCTION = (
    "An *induction head* looks at what followed a token the last time it came. It needs a head below it that looks at "
    "the token before."
)
LOCAL = "Nothing leaves this machine."
FILM = "24 random tokens, twice: each row looks at its columns."
COMING = (
    (0, "the loss falls fast: it learns which tokens are frequent.", "training"),
    (200, "a head of layer 0 turns to the token before: a sharp diagonal.", "heads"),
    (550, "a head of layer 1 finds what came next the last time, and the loss on repeated tokens drops.", "heads"),
    (1300, "it is done. Switch that head off, and see what breaks.", ""),
)
"""Of the demo: from which step, what, and on which page; the same within 100 steps for the seeds that were tried."""
STYLE = """<style>
ol.coming { list-style: none; margin: .2rem 0 .4rem; padding: 0; line-height: 1.5; }
ol.coming li { display: grid; grid-template-columns: 5.4rem 1fr; gap: .8rem; margin: 0; padding: 0 0 .7rem; }
ol.coming li > span { position: relative; padding: 0 0 0 1.3rem; }
ol.coming li > span::before { content: ""; position: absolute; left: 0; top: .42rem; width: .55rem; height: .55rem;
  border-radius: 50%; background: currentColor; }
ol.coming li:not(:last-child) > span::after { content: ""; position: absolute; left: .22rem; top: 1.15rem;
  bottom: -.95rem; width: 1.5px; background: color-mix(in srgb, currentColor 33%, transparent); }
ol.coming b { font-weight: 500; text-align: right; opacity: .72; font-variant-numeric: tabular-nums; }
</style>"""


def draw_welcome(toured: Run | None, draw_ways: Callable[[], None], *, first: bool) -> None:
    """`toured`: a run with an induction head; without one the demo makes it. `draw_ways`: what else one can begin.

    `first`: there is nothing else here, so that there is room for all of it.
    """
    with st.container(border=first, key="welcome" if first else "welcome_band"):
        words, picture = st.columns([6, 5], gap="large", vertical_alignment="top")
        with words:
            st.header("Watch a transformer learn to look back", anchor=False)
            st.markdown(WHAT)
            if first:
                st.markdown(INDUCTION)
                st.html(STYLE + _timeline())
            with st.container(horizontal=True, gap="small", key="welcome_ways"):
                if toured is not None:
                    draw_start(toured, key="welcome_tour", primary=True)
                elif not read_only():
                    st.button(
                        "Train the demo (some minutes)", type="primary", icon=":material/play_arrow:", key="train_demo",
                        on_click=_train_demo,
                    )  # fmt: skip
                draw_ways()
            if first:
                st.caption(LOCAL)
        with picture:
            draw(forming.picture(shipped.film(), max_size=256 if first else 120, in_a_line=not first), key="forming")
            if first:
                st.caption(FILM)


def _train_demo() -> None:
    """Beside one that was stopped, under a name of its own; a second click on one that starts changes nothing."""
    if not any(one.name.startswith("demo-0") for one in jobs.making()):
        start("demo", 0, PRESETS["demo"].config.steps, jobs.free_name("demo-0"))


def _timeline() -> str:
    """The demo's course as a list, a step beside each event; our own words only."""
    lines = (f"<li><b>step {start:,}</b><span>{what[0].upper()}{what[1:]}</span></li>" for start, what, _ in COMING)
    return f'<ol class="coming">{"".join(lines)}</ol>'


def draw_coming(step: int) -> None:
    """What there is to see while the demo trains, with the part that is going on marked."""
    here = sum(step >= start for start, _, _ in COMING) - 1
    with st.container(border=True, key="coming", gap="xsmall"):
        st.markdown("**What you will see**")
        for i, (start, what, page) in enumerate(COMING):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                line = f"{'✓' if i < here else '◐' if i == here else '○'} {_since(start)}, {what}"
                st.markdown(f"**{line}**" if i == here else line, width="content")
                if i == here and page and step:
                    st.page_link(navigation.page(page), label=f"Look at {page.capitalize()}", width="content")


def _since(step: int) -> str:
    return f"From about step {step:,}" if step else "At first"
