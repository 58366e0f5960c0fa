"""What switching off each head costs at each snapshot: what the run keeps of it, the button, the progress."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import streamlit as st

from dashboard import jobs
from dashboard.access import read_only
from dashboard.loading import ablation
from dashboard.shared.pulse import ticking
from dashboard.shared.run_bar import tried
from tracer.store import Run

if TYPE_CHECKING:
    import xarray as xr


LINE = re.compile(r"sweeping: (\d+) of (\d+) ablations(?:, about (\d+) s to go)?")


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
    done = ablation.swept(run)
    left = len(run.steps) - done
    many = f"{left} snapshot{'s' * (left > 1)}"
    if one is not None and one.failed:
        st.text("The sweep failed. End of its log:")
        st.code(one.tail(), language=None, wrap_lines=True)
    st.button(
        f"Measure the {many} missing" if done else f"Measure {many}",
        key="sweep_run", icon=":material/play_arrow:", on_click=_sweep, args=(run,),
        help="Every head, zero, mean and resample, in a process of its own; the numbers stay in the run.",
    )  # fmt: skip
    if message := st.session_state.get(f"problem sweep {run.name}"):
        st.text(message)


def _sweep(run: Run) -> None:
    tried(f"problem sweep {run.name}", lambda: jobs.sweep(run))


def _draw_progress(run: Run, one: jobs.Started) -> None:
    if not one.alive:
        st.rerun()
    share, said = progress(one.tail())
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(share, text=said)
        st.button("Cancel", key="cancel_sweep", icon=":material/stop:", on_click=lambda: jobs.cancel(one),
                  help="What is whole stays in the run; the rest can be measured later.")  # fmt: skip


def progress(tail: str) -> tuple[float, str]:
    """The share that is done, and the words beside it, from what `tracer sweep` has printed last."""
    found = LINE.findall(tail)
    if not found:
        return 0.0, "Reading the model and its text …"
    done, of, left = (int(number or 0) for number in found[-1])
    left = f", about {left} s left" if 0 < left < 90 else f", about {left / 60:.0f} min left" if left else ""
    return done / max(of, 1), f"{done:,} of {of:,} ablations{left}"
