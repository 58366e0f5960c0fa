"""What was asked for and has not begun: it waits here, or in another dashboard, or was lost with one that ended."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from zlib import crc32

import streamlit as st

from dashboard import jobs, theme, work_queue
from dashboard.jobs import Started
from dashboard.shared.run_bar import draw_name, tried
from tracer.store.waiting import FOLDER, Waiting


def draw_waiting(one: Started) -> None:
    """A process of this server that waits for others to end."""
    key = f"waiting-{one.name}-{one.command}"  # a run of that name may be there
    with st.container(border=True, key=key, gap="xsmall"):
        draw_name(one.name, "waiting", key=key)
        st.caption(
            f"It begins when one of the {work_queue.PROCESSES} processes at work here ends. If the dashboard ends "
            "before, this page offers to start it again."
        )
        st.button("Remove", key=f"remove {key}", icon=":material/close:", on_click=_cancel, args=(one,))


def draw_not_begun() -> None:
    """What is not this server's; what was lost begins when somebody says so."""
    found = jobs.not_begun()
    lost = [one for one in found if one.asked is not None and not one.held]
    if len(lost) > 1:
        with st.container(horizontal=True, vertical_alignment="center", key="lost"):
            st.text(f"{len(lost)} waited when their dashboard ended.", width="content")
            st.button("Start all in order", key="start_lost", icon=":material/play_arrow:", on_click=_start,
                      args=(lost,))  # fmt: skip
            st.button("Forget all", key="forget_lost", type="tertiary", on_click=_forget, args=(lost,))
    for one in found:
        _draw(one)


def _draw(one: Waiting) -> None:
    key = _key(one)
    with st.container(border=True, key=key, gap="xsmall"):
        if one.asked is None or one.since is None:
            draw_name("Something that waited", "lost", key=key)
            st.text(theme.sentence(one.damage))
        else:
            draw_name(one.asked.name or "Papers", "waiting" if one.held else "lost", key=key)
            elsewhere = "" if one.host == jobs.host() else f" on {one.host}"
            fate = "It waits in another dashboard." if one.held else "The dashboard in which it waited has ended."
            st.text(f"Asked for at {one.since.astimezone():%H:%M on %-d %B}{elsewhere}. {fate}")
            st.code(shlex.join(["tracer", *jobs.arguments(one.asked)]), language=None, wrap_lines=True)
        with st.container(horizontal=True):
            if one.asked is not None and not one.held:
                st.button("Start", key=f"start {key}", icon=":material/play_arrow:", on_click=_start, args=([one],))
            if one.path.parent.name == FOLDER:
                st.button("Remove" if one.held else "Forget", key=f"forget {key}", icon=":material/close:",
                          type="tertiary", on_click=_forget, args=([one],))  # fmt: skip
        if message := st.session_state.get(f"problem {key}"):
            st.text(theme.sentence(message))


def _key(one: Waiting) -> str:
    """A file may be called by any bytes."""
    return f"notbegun-{crc32(os.fsencode(one.path.name))}"


def _start(these: Sequence[Waiting]) -> None:
    for one in these:
        tried(f"problem {_key(one)}", lambda one=one: jobs.start_again(one))


def _forget(these: Sequence[Waiting]) -> None:
    for one in these:
        tried(f"problem {_key(one)}", lambda one=one: jobs.take_back(one))


def _cancel(one: Started) -> None:
    jobs.cancel(one)
    jobs.forget(one)
