"""Specimens: what does each change to a transformer do, and what went wrong on the way?"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard import loading, parts, processes, state
from dashboard.components.pulse import ticking
from dashboard.loading import specimens as reading
from dashboard.loading.specimens import Reading, Setting
from dashboard.processes import Started
from dashboard.sections.specimen import (
    CLAIMS,
    MINUTES,
    STYLE,
    Place,
    draw_claim,
    draw_last_words,
    draw_specimen,
    minutes,
)
from tracer.reproduce import NOISE
from tracer.specimens import SPECIMENS
from tracer.store import Run

STORY = (
    "Two tutorials build a transformer from one attention head to four blocks, and end with a question: *what are "
    "those heads doing?* Here are their systems in that order. Each changes one thing."
)
FIGURES = (
    "Published figures are from 48 MB of Gutenberg text, 2,048 tokens, context 32, batches of 4,096, on a GPU. On "
    "other text and in small the values move; what is claimed of two runs of one setting must not. Published entropies "
    "are means over all 32 rows, of which the first is always 0; the dashed lines are without it, as ours."
)


def page() -> None:
    parts.heading("Specimens", "What does each change to a transformer do, and what went wrong on the way?")
    st.html(STYLE)
    state.read()
    found = reading.trained(loading.runs())
    setting = _choose_setting(list(found))
    runs = found[setting] if setting is not None else {}
    readings = reading.readings(runs)
    _watch(_moving(found))
    trainable = setting is None or reading.is_small(setting)
    _draw_overview(runs, readings, trainable)
    names = list(SPECIMENS)
    for i, name in enumerate(names):
        mine = [one for one in readings if name in one.needs]
        before = runs.get(names[i - 1]) if i else None
        after = SPECIMENS[names[i + 1]] if i + 1 < len(names) else None
        draw_specimen(Place(i + 1, SPECIMENS[name], runs.get(name), before, after, mine, trainable))


def _choose_setting(settings: list[Setting]) -> Setting | None:
    """Runs of another width, text or seed are another experiment."""
    if len(settings) < 2:
        return settings[0] if settings else None
    return st.selectbox("Setting", settings, key="setting_box", format_func=lambda setting: setting.text)


def _moving(found: Mapping[Setting, Mapping[str, Run]]) -> list[tuple[str, str]]:
    """What is on its way: when this changes, the page is another."""
    runs = [(run.name, run.status) for runs in found.values() for run in runs.values()]
    started = [(one.name, str(one.alive)) for one in processes.started() if one.command == "train"]
    series = processes.reproducing()
    return [*runs, *started, *([("", str(series.alive))] if series else [])]


def _watch(seen: list[tuple[str, str]]) -> None:
    """Draws the page again when a training begins or ends; does nothing while nothing moves."""
    if not any(status in ("training", "True") for _, status in seen):
        return

    def look() -> None:
        if _moving(reading.trained(loading.runs())) != seen:
            st.rerun()

    ticking(look, key="specimens")


def _draw_overview(runs: Mapping[str, Run], readings: list[Reading], trainable: bool) -> None:
    with st.container(key="specimen-overview"):
        left, right = st.columns([7, 5], gap="large")
        with left:
            st.markdown(STORY)
            if answer := _answer(runs):
                st.markdown(answer)
            st.caption(FIGURES)
            st.container(key="specimen-contents").markdown(
                " · ".join(f"[{i}&nbsp;{one.title}](#{one.name})" for i, one in enumerate(SPECIMENS.values(), 1))
            )
            if trainable:
                _draw_series(runs)
        with right:
            _draw_standing(readings)


def _answer(runs: Mapping[str, Run]) -> str:
    """What the runs here say to the tutorials' question."""
    shares = {}
    for name in ("single-head-scaled", "single-head-residual"):
        found = reading.result(runs[name]) if name in runs and runs[name].status in reading.DONE else None
        if found is not None:
            shares[name] = (found.own_token, reading.previous_share(runs[name]))
    if len(shares) < 2:
        return ""
    (own, before), (freed, then) = shares["single-head-scaled"], shares["single-head-residual"]
    told = (
        f"Without a residual connection {own:.0%} of a head's attention ends on the token itself and {before:.0%} on "
        f"the token before; with it {freed:.0%} and {then:.0%}."
    )
    if own > freed and then > before:
        return (
            f"**The answer here.** {told} A head that nothing passes by does the residual connection's work; once it "
            "is freed of that, it turns to the token before."
        )
    return f"**The answer here.** {told}"


def _draw_series(runs: Mapping[str, Run]) -> None:
    """One button for all that are not trained yet, or how that stands."""
    missing = [name for name in SPECIMENS if name not in runs or runs[name].status not in reading.DONE]
    what = "Train all" if len(missing) == len(SPECIMENS) else f"Train the {len(missing)} that are missing"
    series = processes.reproducing()
    if series is not None and series.alive:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption("Training all that are missing, one after the other.", width="content")
            st.button("Stop", key="stop_series", icon=":material/stop:", type="tertiary", on_click=_stop,
                      args=(series,))  # fmt: skip
        return
    if series is not None and series.failed and st.session_state.get("series_stopped") != series.process.pid:
        draw_last_words(series)
    if missing:
        busy = any(run.live for run in runs.values()) or any(one.alive for one in processes.started())
        st.button(
            f"{what} (about {minutes(sum(MINUTES[name] for name in missing))})", key="train_all",
            icon=":material/play_arrow:", type="primary", on_click=_train_all, args=(missing,), disabled=busy,
            help="In small, one after the other, as `tracer reproduce` does.",
        )  # fmt: skip


def _train_all(names: list[str]) -> None:
    processes.reproduce(names)


def _stop(series: Started) -> None:
    processes.cancel(series)
    st.session_state["series_stopped"] = series.process.pid


def _draw_standing(readings: list[Reading]) -> None:
    """How many claims hold, and those that do not."""
    count = {holds: [one for one in readings if one.holds is holds] for holds in CLAIMS}
    judged = len(count[True]) + len(count[False])
    words = [f"{len(count[True])} of {judged} tested claims hold here"] if judged else ["No claim is tested yet"]
    words += [f"{len(count[False])} {'does' if len(count[False]) == 1 else 'do'} not"] if count[False] else []
    words += [f"{len(count[None])} wait for a run"] if judged and count[None] else []
    st.markdown(f"**{', '.join(words)}.**")
    for one in count[False]:
        draw_claim(one)
    if count[False]:
        st.caption(f"One seed each; “no worse” allows {NOISE:g} nats, which seeds differ by.")
    with st.expander("Every claim"):
        for one in readings:
            draw_claim(one)
