"""Share, in the header of a page: its link, one file that works offline, and Python that shows it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from dashboard import loading, state
from dashboard.loading import head_scores, prompt_tokens
from dashboard.shared import choosers, prompts
from dashboard.shared.comparing import is_compared
from dashboard.shared.export import data as taking
from dashboard.shared.export import drawing
from dashboard.shared.export.snippets import PAGES, View, as_notebook, snippet
from dashboard.shared.mount import DRAWN, serve
from dashboard.shared.patterns import is_long
from tracer.analysis import notebook
from tracer.measures import Setting
from tracer.measures.aliases import Head
from tracer.pictures.page import is_local
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.pictures.taken import Block
from tracer.store import Run

ON_SNAPSHOTS = ("ablate", "circuits")
"""Pages whose steps are those of the snapshots, not of every record."""
OF_HEADS = ("ablate", "circuits", "find")
"""Pages that show nothing of a run without heads."""
SHOWN = "heads_shown"
"""Where the session keeps what Heads shows: a live page draws it again and again, its header once."""
OFFERED = "taker_place"
"""Where the session keeps the place of the button that takes this page, and what makes its file."""
ASKED = "taking"
"""Where the session keeps the key of a pressed button and what it said: the time, and each chart as SVG by its key."""
Make = Callable[[list[Block]], tuple[str, str]]
"""The name and the text of a file, of what a page drew."""


def forget() -> None:
    """What the parts of another page were given; before a page is drawn."""
    st.session_state[DRAWN] = {}
    for name in (OFFERED, SHOWN):
        st.session_state.pop(name, None)


def _offer(label: str, make: Make) -> None:
    """Room for the button, which comes once all is drawn."""
    st.session_state[OFFERED] = st.container(), label, make


def draw_taker(page: str, messages: Iterable[Any]) -> None:
    """The button, which says how its charts stand, and after a press the file of what `messages` drew; last of all."""
    key, (pressed, asked) = f"taker_{page}", st.session_state.pop(ASKED, ("", {}))
    if OFFERED not in st.session_state:
        return
    place, label, make = st.session_state[OFFERED]
    data = {"label": label}
    if pressed == key:  # not on a page that was turned to meanwhile
        drawn = drawing.blocks(messages)
        for block in drawn:
            if block["kind"] == "still":
                block["svg"] = asked["stills"].get(block["key"])
        name, text = make(drawn)
        data |= {"time": asked["time"], "name": name, "html": text}

    def take() -> None:
        st.session_state[ASKED] = key, st.session_state[key]["take"]

    with place:
        serve("taker", key=key, data=data, on_take_change=take)


def draw_page_taking(page: str, title: str) -> None:
    """Share, of a page that is about one run; after all that it shows."""
    if page == "heads":
        if SHOWN in st.session_state:
            _draw_heads_taking(*st.session_state[SHOWN])
        return
    if page not in PAGES or (view := _view(page)) is None:
        return
    layer, head = view.head or (None, None)
    selection = replace(state.read(), run=state.read().run or view.run.name, step=view.step, layer=layer, head=head)
    link, code = _link(selection), snippet(page, view)
    with _popover():
        _draw_link(link)
        _draw_file("its pictures to hover and click")
        _offer("Download this view", _maker(title, view.run, view.step, view.head, code, link))
        _draw_python(title, link, code)


def draw_story_taking(
    title: str, line: str, code: str, *, setting: Setting | None = None, command: str = "", more: str = "",
    instead: Callable[[], list[Block]] | None = None,
) -> None:  # fmt: skip
    """The same for a page about many runs; `setting` is what they share, `command` trains them again, and a file holds
    what `instead` makes in place of what the page drew."""
    link = _link(state.read())

    def make(blocks: list[Block]) -> tuple[str, str]:
        shown = instead() if instead else blocks
        text = taking.story(title, line, shown, st.session_state[DRAWN], setting=setting, code=code, link=link)
        return f"{title.lower()}.html", text

    with _popover():
        _draw_link(link)
        _draw_file("its pictures to hover", more)
        _offer("Download this view", make)
        if command:
            st.markdown("**As a command**")
            st.code(command, language="bash", wrap_lines=True)
        _draw_python(title, link, code)


def _maker(title: str, run: Run, step: int, head: Head | None, code: str, link: str) -> Make:
    """Name and text of a file of the page as it stands."""

    def make(blocks: list[Block]) -> tuple[str, str]:
        text = taking.page(title, run, step, blocks, st.session_state[DRAWN], code=code, link=link, head=head)
        return f"{title.lower()}-{run.name}-step-{step}.html", text

    return make


def _view(page: str) -> View | None:
    """What this page shows; None while its run shows nothing."""
    try:
        run = loading.run(state.read().run or "")
    except (ValueError, OSError):
        return None
    trace = loading.so_far(run)
    if trace is None:
        return None
    heads = head_scores.has_heads(trace)
    if page in OF_HEADS and not heads:  # it shows nothing but why there are none
        return None
    runs = prompts.can_read(run)
    kept = prompts.searched(run) if page == "find" else run.steps if page in ON_SNAPSHOTS else []
    step = choosers.step_in_force(kept or [int(step) for step in trace["step"].values])
    return View(run, trace, step, choosers.focus(trace, step) if heads else None, state.read(), runs)


def draw_taking(run: Run, shown: PromptPatterns, focus: Head, measure: str) -> None:
    """What Heads shows now, for its Share."""
    st.session_state[SHOWN] = run, shown, focus, measure


def _draw_heads_taking(run: Run, shown: PromptPatterns, focus: Head, measure: str) -> None:
    """Of Heads the file is made from its prompt, so that another head can be chosen in it, and its film played."""
    selection = replace(
        state.read(), run=state.read().run or run.name, step=shown.step, layer=focus[0], head=focus[1], measure=measure
    )
    link, (prompt, code) = _link(selection), _words(run, shown, focus, measure)
    given = st.session_state[DRAWN]  # a download is made without the session
    with _popover():
        _draw_link(link)
        _draw_file("these pictures to hover, click and play")
        st.download_button(
            "Download this view", key="take", icon=":material/download:", on_click="ignore", mime="text/html",
            data=lambda: taking.heads(
                run, loading.trace(run), shown, focus, measure, prompt=prompt, code=code, link=link,
                token=selection.token, given=given,
            ),
            file_name=f"heads-{run.name}-step-{shown.step}.html",
        )  # fmt: skip
        if is_compared(run) or is_long(shown):
            st.caption("That file shows one prompt at one step, and of a long prompt its end. The page as it stands, "
                       "with what it is compared with:")  # fmt: skip
            _offer("Download the whole page", _maker("Heads", run, shown.step, focus, code, link))
        _draw_python("Heads", link, code)


def _popover() -> Any:
    """In the header's place, which every page has."""
    place = st.session_state["share_place"]
    return place.popover("Share", icon=":material/ios_share:", type="tertiary", key="share")


def _link(selection: state.Selection) -> str:
    query = urlencode(state.to_query(selection))
    return f"{st.context.url or ''}{'?' * bool(query)}{query}"


def _draw_link(link: str) -> None:
    st.markdown("**As a link**")
    st.code(link, language=None, wrap_lines=True)
    if is_local(link):
        st.caption("It opens on this computer only: others take the file below.")


def _draw_file(what: str, more: str = "") -> None:
    st.markdown("**As a file**")
    st.caption(f"One HTML file, {what}: it opens anywhere, without a network.{more}")


def _draw_python(title: str, link: str, code: str) -> None:
    st.markdown("**As Python**")
    st.code(code, language="python", wrap_lines=True)
    st.download_button(
        "Download as a notebook", key="take_notebook", icon=":material/book_2:", on_click="ignore",
        data=as_notebook(title, link, code), file_name=f"{title.lower()}.ipynb", mime="application/x-ipynb+json",
    )  # fmt: skip


def _words(run: Run, shown: PromptPatterns, focus: Head, measure: str) -> tuple[str, str]:
    """The prompt in words, and the code that shows it again; of a kept prompt only the numbers can be had."""
    asked = shown.key[2]
    if isinstance(asked, str):
        where = f"prompt={asked!r}, step={shown.step}"
        opened = f"tracer.open_run({f'checkpoints/{run.name}'!r})"
        return asked, f"import tracer\n\n{opened}.trace.pattern.sel({where})[{focus[0]}, {focus[1]}]"
    text = state.read().prompt or prompt_tokens.example(run)
    ids = asked if isinstance(asked, tuple) and prompt_tokens.tokenizer(run) is None else None
    return text, notebook.snippet(run, ids or text, shown.step, focus, measure, shown.off)
