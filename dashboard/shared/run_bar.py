"""How the chosen run stands, in one quiet line beside its name; of a live run it counts along."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import streamlit as st

from dashboard import jobs, loading, navigation, state, theme
from dashboard.access import read_only
from dashboard.loading.run_summaries import Summary, status_word, summary
from dashboard.shared.health_panel import chip, draw_health
from dashboard.shared.pulse import ticking
from tracer.store import Run

Colour = Literal["blue", "green", "gray", "orange", "red"]
BADGES: dict[str, tuple[str, Colour]] = {
    "training": ("◐", "blue"), "measuring": ("◐", "blue"), "starting": ("◐", "blue"), "resuming": ("◐", "blue"),
    "stopping": ("◐", "gray"), "finished": ("✓", "green"), "opened": ("✓", "green"), "stopped": ("■", "gray"),
    "interrupted": ("◌", "orange"), "diverged": ("✕", "red"), "failed": ("✕", "red"), "waiting": ("○", "gray"),
    "lost": ("◌", "orange"),
}  # fmt: skip
"""The mark before the word for how a run stands, and its colour: never colour alone."""

WELL = ("finished", "opened")
"""What has ended well, of which its health says more."""
LONGEST_CLAMPS = 60
"""Characters that the bar has room for; the page Runs says all."""


def moves(run: Run) -> bool:
    """Is its line drawn again and again?"""
    return run.live or standing(run) in ("resuming", "stopping")


def draw_run_bar(run: Run) -> None:
    """Status, progress and what can be done; only the line itself is drawn again, every 2 s while something moves."""
    live, word, health = run.live, standing(run), chip(run)

    def line() -> None:
        if not loading.is_there(str(run.dir)) or (run.live, standing(run), chip(run)) != (live, word, health):
            st.rerun()
        st.caption(_line(run, word))
        here = run.dir.resolve()
        if others := sum(other.live and other.dir.resolve() != here for other in loading.runs()):
            words = f"{others} others are training" if others > 1 else "1 other is training"
            st.page_link(navigation.page("runs"), label=words, width="content")

    key = "run_ended" if word in WELL and health else "run_line"
    with st.container(key=key, width="content", horizontal=True, vertical_alignment="center", gap="small"):
        if moves(run):
            ticking(line, key="run_bar")
        else:
            line()
    draw_health(run)
    if clamps := clamps_of(run):
        said = ", ".join(clamps)
        said = said if len(said) <= LONGEST_CLAMPS else f"{len(clamps)} times"
        st.caption(f"clamped: {theme.unmarked(said)}", width="content")
    if numbering := run.about.numbering:
        st.text(numbering)  # paths of others are never Markdown
    if message := st.session_state.get(f"problem {run.name}"):
        st.text(message)
    if not run.why_not("resume"):
        with st.session_state["run_deeds_place"]:
            _draw_deeds(run, word)


def _draw_deeds(run: Run, word: str) -> None:
    """What can be done with it; Stop and Resume last, for what comes after a button would move it from a click."""
    if run.steps and not read_only():
        st.button("Fork", key="bar_fork", icon=":material/fork_right:", type="tertiary", on_click=_fork, args=(run,),
                  help="Train on from this step, as another run.")  # fmt: skip
    draw_stop(run, word, quiet=True)
    draw_resume(run, word, quiet=True)


def clamps_of(run: Run) -> list[str]:
    """What is held while it trains, in words; a stranger's config may hold anything there."""
    clamps = run.meta.get("config", run.meta).get("clamp")
    return [str(clamp) for clamp in clamps] if isinstance(clamps, list) else []


def standing(run: Run) -> str:
    """How a run stands, as a word of `BADGES`; it is resuming until its new process writes its own number in run.json.

    The lock changes hands before run.json is written again, and is let go of after the last word in it; a run is
    stopping until its process has ended, before which no other can go on.
    """
    live, pid = run.live, run.meta.get("pid")
    ours = [one for one in jobs.started() if one.alive and one.directory.resolve() == run.dir.resolve()]
    if any(one.command == "resume" and one.process.pid != pid for one in ours):
        return "resuming"
    word = status_word(run)
    asked = pid is not None and st.session_state.get(f"stopping {run.name}") == pid
    ending = word == "stopped" and any(one.process.pid == pid for one in ours)
    return "stopping" if live and asked or ending else word


def draw_name(name: str, status: str, *, key: str = "") -> None:
    """A run's name with how it stands; a name is whatever a folder is called, so it is never Markdown."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"name-{key or name}"):
        st.text(name)
        icon, colour = BADGES[status]
        st.badge(f"{icon} {status}", color=colour)


def draw_starting() -> None:
    """The line of a run that is not there yet."""
    st.caption(badge("starting"))


def _fork(run: Run) -> None:
    chosen = state.read().step
    at = run.steps[-1] if chosen is None else min(run.steps, key=lambda step: abs(step - chosen))
    where = str(run.dir.resolve())
    st.session_state.update({"forking": where, "fork_run": where, f"fork_step {where}": at})
    st.switch_page(navigation.page("runs"))


def draw_stop(run: Run, word: str, quiet: bool = False) -> None:
    """Asks a live run of ours, which stands so, to stop; a button without a frame where it is `quiet`."""
    if word not in ("training", "stopping") or read_only():
        return
    asked = word == "stopping"
    st.button(
        "Stopping …" if asked else "Stop", key=f"stop {run.name}", icon=":material/stop:", disabled=asked,
        type="tertiary" if quiet else "secondary", on_click=_stop, args=(run,),
        help="Stops after this step and keeps everything; Resume goes on from there.",
    )  # fmt: skip


def draw_resume(run: Run, word: str, quiet: bool = False) -> None:
    """Lets a run of ours, which stands so, go on if it was stopped or killed and kept what that takes."""
    if read_only() or run.live or word not in ("stopped", "interrupted") or (step := run.resume_step()) is None:
        return  # live: another process, of a terminal perhaps, has the lock and not yet said so in run.json
    st.button(
        "Resume", key=f"resume {run.name}", icon=":material/play_arrow:", on_click=tried,
        args=(f"problem {run.name}", lambda: jobs.resume(run)),
        type="tertiary" if quiet else "secondary", help=f"Goes on from step {step:,} as if it had never stopped.",
    )  # fmt: skip


def _stop(run: Run) -> None:
    def stop() -> None:
        jobs.stop(run)
        st.session_state[f"stopping {run.name}"] = run.meta.get("pid")

    tried(f"problem {run.name}", stop)


def tried(key: str, do: Callable[[], object]) -> None:
    """Do it; why that cannot be is kept under `key`, for whoever draws it, until it is tried again."""
    try:
        do()
        st.session_state.pop(key, None)
    except (ValueError, OSError) as error:
        st.session_state[key] = str(error)


def pace(run: Run, facts: Summary) -> str:
    """What is left and how fast it goes, such as "40 s left · 52k tokens/s"; empty while nothing is timed."""
    left, speed = facts.seconds_left, tokens_per_second(run, facts.step_ms)
    words = [] if not math.isfinite(left) else [f"{left:.0f} s left" if left < 90 else f"{left / 60:.0f} min left"]
    return " · ".join([*words, *([f"{short(speed)} tokens/s"] if math.isfinite(speed) else [])])


def tokens_per_second(run: Run, step_ms: float) -> float:
    """Tokens of a step over the time that steps took lately; nan where either is unknown."""
    tokens = run.about.batch_tokens
    return float("nan") if tokens is None else 1000 * tokens / step_ms


def steps(count: int) -> str:
    """A count of steps: 1 step, 1,200 steps."""
    return f"{count:,} step{'s' * (count != 1)}"


def short(count: float) -> str:
    """A count to three digits: 950, 45.4k, 23.1M."""
    if count >= 1e6:
        return f"{count / 1e6:.3g}M"
    return f"{count / 1e3:.3g}k" if count >= 1e3 else f"{count:.0f}"


def _line(run: Run, word: str) -> str:
    """The line as Markdown, made of our own words and numbers only."""
    mark = badge(word)
    try:
        facts = summary(run)
    except ValueError:
        return mark
    if run.why_not("training"):
        return f"{mark} {len(run.steps):,} checkpoints" if len(run.steps) > 1 else mark
    if word == "finished":
        return f"{mark} &nbsp;{steps(facts.step)}"
    words = [f"step {facts.step:,}" + ("" if facts.steps is None else f" of {facts.steps:,}")]
    if word == "training":
        words += filter(None, [pace(run, facts)])
    return f"{mark} &nbsp;{' · '.join(words)}"


def badge(word: str) -> str:
    """A word of `BADGES` as Markdown."""
    icon, colour = BADGES[word]
    return f":{colour}-badge[{icon} {word}]"
