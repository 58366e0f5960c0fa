"""What switching off each head costs at each snapshot: what the run keeps of it, the button, the progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import jobs
from dashboard.access import read_only
from dashboard.loading import ablation
from dashboard.shared.pulse import ticking
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


def draw_sweeping(run: Run) -> xr.Dataset | None:
    """What was swept, which is returned; above it the button that measures what is missing, or how far that is.

    ValueError where what the run keeps is damaged.
    """
    one = jobs.sweeping(run)
    found, done = _read(run, writing=one is not None and one.alive)
    if one is not None and one.alive:
        ticking(lambda: _draw_progress(run, one), key="sweep", seconds=1.0)
    elif done < len(run.steps) and not read_only():
        _draw_start(run, one)
    return found


def _read(run: Run, writing: bool) -> tuple[xr.Dataset | None, int]:
    """What was swept, and how many snapshots; nothing in the moment in which a row is written: it is read again."""
    try:
        return ablation.effects(run), ablation.swept(run)
    except ValueError:
        if not writing:
            raise
        return None, 0


def _draw_start(run: Run, one: jobs.Started | None) -> None:
    done, of = ablation.swept(run), len(run.steps)
    if one is not None and one.failed:
        st.text("The sweep ended before it was done. Its last words:")
        st.code(one.tail(), language=None, wrap_lines=True)
    st.button(
        _label(done, of),
        key="sweep_run", icon=":material/play_arrow:", on_click=_sweep, args=(run,),
        help="Every head, zero, mean and resample, in a process of its own; the numbers stay in the run.",
    )  # fmt: skip


def _label(done: int, of: int) -> str:
    many = f"{of - done} snapshot{'s' * (of - done > 1)}"
    return f"Measure {many}" if not done else f"Measure the {many} missing"


def _sweep(run: Run) -> None:
    jobs.sweep(run)


def _draw_progress(run: Run, one: jobs.Started) -> None:
    if not one.alive:
        st.rerun()
    seen: dict[int, float] = st.session_state.setdefault(f"swept {one.began}", {})
    done, of = max(_read(run, writing=True)[1], *seen, 0), len(run.steps)
    left = seconds_left(seen, done, of, time.monotonic())
    left = "" if left is None else f", about {left:.0f} s left"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(done / of, text=f"{done} of {of} snapshots{left}")
        st.button("Cancel", key="cancel_sweep", icon=":material/stop:", on_click=lambda: jobs.cancel(one),
                  help="What is done stays in the run; the rest can be measured later.")  # fmt: skip


def seconds_left(seen: dict[int, float], done: int, of: int, now: float) -> float | None:
    """From when each number of snapshots was first seen; None before the second of them: a process starts slowly."""
    seen.setdefault(done, now)
    moved = list(seen.items())[1:]
    if len(moved) < 2:
        return None
    (first, began), (last, ended) = moved[0], moved[-1]
    return (ended - began) / (last - first) * (of - done)
