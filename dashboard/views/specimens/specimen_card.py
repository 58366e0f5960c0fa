"""One specimen on a card: what was changed, what to expect, and what one's own run did beside the published figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import jobs, loading, navigation, shipped, state, theme
from dashboard.jobs import Started
from dashboard.loading import diagnoses
from dashboard.loading.run_summaries import status_word
from dashboard.shared.health_panel import draw_title
from dashboard.shared.mount import draw
from dashboard.shared.pulse import ticking
from dashboard.shared.run_bar import BADGES, draw_resume, draw_stop, standing, tried
from dashboard.views.specimens import data as reading
from dashboard.views.specimens.claims import claimed
from dashboard.views.specimens.data import Lines
from dashboard.views.specimens.exercise import draw_checks, draw_heads
from dashboard.views.specimens.fold import fold, line
from dashboard.views.specimens.small import draw_small
from tracer.diagnosis import verdict
from tracer.measures.chance import uniform_one_key
from tracer.measures.setting import Setting
from tracer.pictures import atlas, curves
from tracer.presets import PRESETS
from tracer.specimens.paper_verdicts import ClaimAnswer
from tracer.specimens.system_figures import Outcome
from tracer.specimens.systems import Check, System
from tracer.specimens.tutorials import TRAINED, TUTORIAL, TUTORIALS
from tracer.store import Run

MINUTES = {
    "single-head-unscaled": 2, "single-head-scaled": 2, "single-head-residual": 2, "single-head": 2,
    "multi-head-full": 3, "multi-head": 2, "two-blocks": 3, "four-blocks": 0, "four-blocks-rms": 6,
    "many-eyes": 0, "many-eyes-bare": 0,
}  # fmt: skip
"""In small, as measured on two cores of a busy machine; half of that where nothing else runs. 0 is less than one."""
SIDES = (4, 7)
"""Widths of words and pictures; the story above them is set on the same lines."""
HEIGHT = 200
ALONE, PICTURE = 176, 88
"""Width of a head's pattern, where there is one head and where there are several."""
MOSTLY = 0.5
"""Share of its attention from which a head is said to look mostly there."""


@dataclass(frozen=True)
class StoryPlace:
    """A specimen in the story."""

    number: int
    specimen: System
    run: Run | None
    """One's own run of it, in the setting that is shown."""
    before: Run | None
    """The run of the specimen before it."""
    after: System | None
    readings: Sequence[ClaimAnswer]
    """The claims that it is part of."""
    outcomes: Mapping[str, Outcome]
    """What the specimens of its series came to."""
    answered: Sequence[Check]
    """What trained runs say to its author's questions."""
    trainable: bool
    """Is the setting that of `tracer reproduce`, so that a run started here belongs to it?"""


def folds(place: StoryPlace) -> str | None:
    """The line that the card is folded to; None where it is not."""
    return line(place.specimen, place.run, place.readings, place.outcomes, place.answered)


def draw_specimen(place: StoryPlace) -> None:
    """What was changed and what came of it, small; the whole of it below a line that somebody opens."""
    specimen, told = place.specimen, folds(place)
    with st.container(border=True, key=f"specimen-{specimen.name}", gap="small"):
        _draw_head(place)
        _draw_story(place)
        if place.run is None or shipped.is_shipped(place.run):
            _draw_started(place)
        if told is None:
            _draw_body(place)
            return
        with fold(specimen.name, told) as folded:
            if folded.open:
                _draw_body(place)


def _draw_body(place: StoryPlace) -> None:
    """What came out, whole; while its run trains, it is drawn again every 2 s."""
    specimen, run = place.specimen, place.run
    if run is not None and run.live:
        ticking(lambda: _draw_run(place, run), key=f"specimen {specimen.name}")
    elif run is not None:
        _draw_run(place, run)
    elif specimen.exercise:
        left, right = st.columns(SIDES, gap="large")
        with left:
            draw_checks(specimen, place.answered)
        with right:
            draw_heads(specimen)


def _draw_head(place: StoryPlace) -> None:
    """Its name and how it stands, and the ways on."""
    specimen, run = place.specimen, place.run
    ours = run is not None and shipped.is_shipped(run)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", width="content"):
            st.subheader(f"{place.number}. {specimen.title}", anchor=specimen.name, width="content")
            if ours:
                st.badge("shipped, seed 0", color="gray")
            elif run is not None:
                icon, colour = BADGES[status_word(run)]
                st.badge(f"{icon} {status_word(run)}", color=colour)
        with st.container(horizontal=True, gap="xsmall", width="content"):
            if run is not None and not ours:
                _draw_ways(place, run)
            elif specimen.name in TRAINED:
                _draw_train(place)


def _draw_ways(place: StoryPlace, run: Run) -> None:
    """To the pages that say more of this run."""
    name = place.specimen.name
    word = standing(run)
    draw_stop(run, word, quiet=True)
    draw_resume(run, word, quiet=True)
    st.button("Heads", key=f"heads {name}", icon=":material/grid_view:", type="tertiary", on_click=_open,
              args=("heads", run), help="Every pattern of this run, at every step")  # fmt: skip
    st.button("Training", key=f"training {name}", icon=":material/show_chart:", type="tertiary", on_click=_open,
              args=("training", run), help="Every curve of this run")  # fmt: skip
    if place.before is not None:
        st.button("Beside the one before", key=f"beside {name}", icon=":material/compare_arrows:", type="tertiary",
                  on_click=_open, args=("training", run, place.before.name),
                  help="Its curves over those of the specimen before it")  # fmt: skip


def _open(page: str, run: Run, beside: str | None = None) -> None:
    state.open_run(run.name)
    state.update(compare=beside)
    st.switch_page(navigation.page(page))


def _draw_story(place: StoryPlace) -> None:
    """In words, and beside them what its run shows."""
    specimen, run = place.specimen, place.run
    published = theme.sentence(specimen.published)
    told = {"Changed": specimen.changed, "Expect": specimen.expects, f"Published{_source(specimen)}": published}
    said = [f"**{title}**  \n{theme.unmarked(text)}" for title, text in told.items()]
    if run is None:
        for column, text in zip(st.columns(3, gap="large"), said, strict=True):
            column.markdown(text)
        return
    left, right = st.columns(SIDES, gap="large")
    left.markdown("\n\n".join(said))
    with right:
        draw_small(run)


def _source(specimen: System) -> str:
    """Who published it, as a link."""
    source, _, address = TUTORIALS[TUTORIAL[specimen.name]].paper.source.rpartition(", ")
    return f" by [{source}]({address})" if address.startswith("https://") else ""


def _draw_train(place: StoryPlace) -> None:
    """The button that trains it, where one may."""
    preset, started = TRAINED[place.specimen.name].preset, _started(place)
    if not place.trainable:
        st.caption("No run of it in this setting.", width="content")
    elif started is None or not started.alive:
        series, about = jobs.reproducing(), minutes(MINUTES[place.specimen.name])
        st.button(
            f"Train it here (about {about})", key=f"train {preset}", icon=":material/play_arrow:", on_click=tried,
            args=(f"problem {preset}", lambda: jobs.train(preset, preset, 0, PRESETS[preset].config.steps)),
            disabled=series is not None and series.alive, help="In small, on this machine's processor.",
        )  # fmt: skip


def _draw_started(place: StoryPlace) -> None:
    """How a training stands that has written no run yet."""
    if not (place.trainable and place.specimen.name in TRAINED):
        return
    started = _started(place)
    if started is not None and started.alive:
        st.caption("Reading the text and building the model: this takes a few seconds, longer the first time.")
        return
    if message := st.session_state.get(f"problem {TRAINED[place.specimen.name].preset}"):
        st.text(message)
    if started is not None and started.failed:
        draw_last_words(started)


def _started(place: StoryPlace) -> Started | None:
    preset = TRAINED[place.specimen.name].preset
    return next((one for one in jobs.started() if one.name == preset), None)


def draw_last_words(one: Started) -> None:
    """What a process that failed said."""
    st.caption("It failed. End of its log:")
    st.code(one.tail(), language=None, wrap_lines=True)


def minutes(number: int) -> str:
    return "10 seconds" if number == 0 else "1 minute" if number == 1 else f"{number} minutes"


def _draw_run(place: StoryPlace, run: Run) -> None:
    specimen, found = place.specimen, reading.result(run)
    if found is None:
        st.caption("Nothing is recorded yet." if run.live else "Its trace cannot be read; Training says why.")
        return
    left, right = st.columns(SIDES, gap="large")
    with left:
        _draw_table(specimen, found)
        _draw_doing(run, found)
        _draw_wrong(place, run)
        if specimen.exercise:
            draw_checks(specimen, place.answered)
    with right:
        try:
            _draw_pictures(specimen, run, reading.lines(run))
        except (ValueError, OSError, RuntimeError) as error:  # a chunk that is damaged
            st.text(str(error))
        if place.readings:
            st.markdown("**Claims that it is part of**")
            for one in place.readings:
                st.markdown(claimed(one))


def _draw_table(specimen: System, found: Outcome) -> None:
    """Published beside ours, in numbers."""
    before = specimen.entropy or (None, None)
    ours = {
        "entropy at the start": (before[0], found.entropy_start),
        "entropy at the end": (before[1], found.entropy_end),
        "held-out perplexity": (specimen.perplexity, math.exp(found.loss) if found.loss < 50 else math.nan),
    }
    if specimen.loss is not None:
        ours["loss"] = (specimen.loss, found.loss)
    rows = [(label, _number(label, theirs), _number(label, value)) for label, (theirs, value) in ours.items()]
    rows.append(("parameters", "–" if specimen.n_params is None else f"{specimen.n_params:,}", f"{found.n_params:,}"))
    if all(theirs == "–" for _, theirs, _ in rows):  # a tutorial of exercises, not of figures
        lines = [
            f"| | here, step {found.step:,} |",
            "|:---|---:|",
            *(f"| {label} | {value} |" for label, _, value in rows),
        ]
    else:
        lines = [f"| | published | here, step {found.step:,} |", "|:---|---:|---:|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    st.markdown("\n".join(lines))


def _number(label: str, value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.{2 if 'perplexity' in label else 3}f}"


def _draw_pictures(specimen: System, run: Run, packed: Lines) -> None:
    """The heads at both ends of training and their entropy; below it where they look, and the loss."""
    known, n_ctx, several = reading.published_entropy(specimen), run.config.model.n_ctx, packed.n_heads > 1
    mark = "" if specimen.entropy is None else f"published end {specimen.entropy[1]:.3f}, without its first row"
    entropy = theme.Scale("Entropy", "nats", digits=3, chance=known, mark=mark)
    share = theme.Scale("Attention", digits=2, chance=uniform_one_key(Setting(n_ctx, 0, 0)), mark="even")
    top = st.columns(2 if several else [5, 5, 6], gap="medium")
    _draw_ends(specimen, run, top)
    with st.container(key=f"{'three' if several else 'two'}-{specimen.name}"):
        lower = st.columns(3 if several else 2, gap="medium")
    with lower[0] if several else top[2]:
        _draw_lines(specimen, "entropy", packed.entropy, entropy)
    with lower[-2]:
        _draw_lines(specimen, "looks", packed.looks, share)
    with lower[-1]:
        _draw_lines(specimen, "loss", packed.loss, theme.Scale("Loss", "nats", digits=3))


def _draw_lines(specimen: System, name: str, blob: bytes, scale: theme.Scale) -> None:
    picture = curves.picture(blob, scale=scale, selectable=False, height=HEIGHT)
    draw(picture, key=f"{_word(specimen)} {name}")


def _word(specimen: System) -> str:
    """Its name in a component's key, which a dash would part."""
    return specimen.name.replace("-", "_")


def _draw_ends(specimen: System, run: Run, columns: Sequence[DeltaGenerator]) -> None:
    """Every head on the run's first kept prompt, at the first and at the last step at which it was kept."""
    found = reading.ends(run)
    if not found:
        columns[0].caption("This run keeps no patterns.")
        return
    for column, end, word in zip(columns, found, ("At the start", "Now" if run.live else "At the end"), strict=False):
        with column:
            st.markdown(f"**{word}**, step {end.step:,}")
            picture = atlas.picture(end.atlas, max_cell=ALONE if end.alone else PICTURE)
            draw(picture, key=f"{_word(specimen)} atlas {word}")
    if len(found) == 1 and not run.live:
        columns[1].caption("Patterns were kept at this step only: the run ended before the next.")


def _draw_doing(run: Run, found: Outcome) -> None:
    """The tutorials' question, answered with two shares."""
    before = reading.previous_share(run)
    when = "before it breaks" if found.status == "diverged" else "so far" if run.live else "at the end"
    st.markdown(
        f"**What its attention does {when}.** {found.own_token:.0%} of it is on the token itself, {before:.0%} on "
        f"the token before, {max(0.0, 1 - found.own_token - before):.0%} elsewhere."
    )
    if said := _of_heads(run):
        st.markdown(said)


def _of_heads(run: Run) -> str:
    """How many heads look mostly where; empty for a single head."""
    trace = loading.trace(run)
    own, before = (trace[name].values for name in ("current_token", "previous_token"))
    last = np.flatnonzero(np.isfinite(own).all(axis=(1, 2)))[-1]
    own, before = own[last], before[last]
    if own.size == 1:
        return ""
    words = []
    for text, mask in (("the token itself", own > MOSTLY), ("the token before", before > MOSTLY)):
        labels = [theme.head_label(int(layer), int(head)) for layer, head in np.argwhere(mask)]
        if labels:
            words.append(f"to {text} in {', '.join(labels) if len(labels) <= 4 else f'{len(labels)} heads'}")
    if not words:
        return f"None of its {own.size} heads gives more than half of it to either."
    rest = int(((own <= MOSTLY) & (before <= MOSTLY)).sum())
    return f"Of {own.size} heads: more than half goes {', '.join(words)}{f', to neither in {rest}' if rest else ''}."


def _draw_wrong(place: StoryPlace, run: Run) -> None:
    """What `tracer.diagnose` says, and what the next specimen does about it."""
    try:
        diagnosis = diagnoses.diagnosis(run)
    except (ValueError, OSError, RuntimeError) as error:
        st.text(str(error))
        return
    said = verdict(diagnosis)
    st.markdown("**What went wrong.**" + (f" Health: {said.text}." if said.severity != "unknown" else ""))
    for one in diagnosis.findings:
        with st.container(gap=None):
            draw_title(one, f", since step {one.step:,}")
            st.text(theme.sentence(one.evidence))
    if place.specimen.cure:
        link = "" if place.after is None else f" [{place.after.title} ↓](#{place.after.name})"
        st.markdown(f"**The cure.** {theme.unmarked(place.specimen.cure.removesuffix(': the next one.'))}.{link}")
