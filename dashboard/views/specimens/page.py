"""Papers: what was published, and what came out here?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import streamlit as st

from dashboard import jobs, loading, shipped, state
from dashboard.access import read_only
from dashboard.jobs import Started
from dashboard.shared import choosers
from dashboard.shared.export.page_file import draw_story_taking
from dashboard.shared.export.snippets import reproduce, series
from dashboard.shared.mount import serve
from dashboard.shared.pulse import ticking
from dashboard.shared.run_bar import tried
from dashboard.views.specimens import data as reading
from dashboard.views.specimens import fold
from dashboard.views.specimens.claims import claimed
from dashboard.views.specimens.data import LossSetting
from dashboard.views.specimens.papers import draw_papers
from dashboard.views.specimens.specimen_card import MINUTES, StoryPlace, draw_last_words, draw_specimen, folds, minutes
from dashboard.views.specimens.wall import draw_wall, verdict_of
from tracer.specimens.paper_results import PaperResults, results
from tracer.specimens.paper_verdicts import ClaimAnswer
from tracer.specimens.tutorials import CLAIMS, SPECIMENS, TRAINED, TUTORIAL, TUTORIALS
from tracer.store import Run

SERIES = tuple(name for name in TRAINED if any(name in claim.needs for claim in CLAIMS))
"""The first two tutorials, whose runs are compared."""
CHARACTERS = tuple(name for name in TRAINED if name not in SERIES)
SHIPPED = (
    "The runs on these cards come along with manyeyes: trained in small, 64 wide on 512 tokens of Python’s standard "
    "library, seed 0, without their weights. Train one here to see it live, with every page; it takes their place."
)
FIGURES = (
    "Published figures are from 48 MB of Gutenberg text, 2,048 tokens, context 32, batches of 4,096, on a GPU. On "
    "other text, or in small, the values differ; a claim that compares two runs of one setting must still hold. "
    "Dashed: the published value, without the first row, which is always 0."
)
NOISE = next(claim.noise for claim in CLAIMS if claim.noise is not None)
NEAR = (
    f"One seed each. Two losses count as different when they are {NOISE:g} nats apart: runs of one system that differ "
    "in their seed alone are nearer than that 19 times in 20."
)


def page() -> None:
    choosers.heading("Papers", "Do published claims hold when they are trained again?", of_run=False)
    with st.container(key="arrival"):
        serve("landing", key="landing", data=0)
    found = reading.with_shipped(reading.trained(loading.runs(), SERIES), SERIES)
    setting = _choose_setting(list(found))
    runs = found[setting]
    readings = reading.readings(runs)
    _watch(_moving())
    small = not read_only() and reading.is_small(setting)
    on_characters = reading.with_shipped(reading.trained(loading.runs(), CHARACTERS), CHARACTERS)
    theirs = next(iter(on_characters))
    runs = runs | on_characters[theirs]
    own = {name: run for name, run in runs.items() if not shipped.is_shipped(run)}
    trainable = dict.fromkeys(SERIES, small) | dict.fromkeys(
        CHARACTERS, not read_only() and reading.is_small(theirs, CHARACTERS[0])
    )
    _keep_watched(own)
    places = _places(runs, readings, trainable)
    papers = [one for one in results() if one.name not in TUTORIALS]
    folded = [place.specimen.name for place in places if folds(place) is not None]
    _draw_overview(runs, own, places, readings, papers, small, folded)
    draw_wall(places, papers)
    answer = _answer(runs)
    for i, place in enumerate(places):
        tutorial = TUTORIAL[place.specimen.name]
        if not i or tutorial != TUTORIAL[places[i - 1].specimen.name]:
            with st.container(key=f"tutorial-{tutorial}"):
                st.header(TUTORIALS[tutorial].paper.title, anchor=False)
                if not i and answer:
                    st.markdown(answer)
        draw_specimen(place)
    if papers:
        draw_papers(papers)
    _draw_taking(own, readings, setting, alone=len(found) == 1)


def _draw_taking(runs: Mapping[str, Run], readings: list[ClaimAnswer], setting: LossSetting, *, alone: bool) -> None:
    """Of the open cards with what their claims compare them with; of all while none is open.

    Of several settings the chosen one is told by its own choice.
    """
    chosen = {name for name in state.read().cards if name in SPECIMENS}
    needed = chosen | {name for one in readings if chosen & {*one.claim.needs} for name in one.claim.needs}
    done = {name: run for name, run in runs.items() if run.status in reading.DONE and (name in needed or not chosen)}
    small = not read_only() and reading.is_small(setting)
    known = small or all(run.meta["preset"] == name for name, run in done.items())
    command = reproduce([name for name in SPECIMENS if name in needed], done) if known else ""
    told = f"{len(SPECIMENS)} systems, {len(runs)} trained here"
    draw_story_taking(
        "Papers", f"{told}; {setting.text}" if alone else told, series(done, command), command=command,
        setting=next((run.about.setting for run in done.values()), None),
        more=" Of a folded card it holds one line: first open the cards that you want whole.",
    )  # fmt: skip


def _places(runs: Mapping[str, Run], readings: list[ClaimAnswer], trainable: Mapping[str, bool]) -> list[StoryPlace]:
    """Every specimen in the order of the story."""
    names, outcomes, places = list(SPECIMENS), reading.outcomes(runs), []
    for i, (name, one) in enumerate(SPECIMENS.items()):
        mine = [one for one in readings if name in one.claim.needs]
        previous = names[i - 1] if i and (names[i - 1] in SERIES) == (name in SERIES) else ""
        after = SPECIMENS[names[i + 1]] if i + 1 < len(names) else None
        run, before, answered = runs.get(name), runs.get(previous), reading.answered(name, runs)
        may = trainable.get(name, False)
        places.append(StoryPlace(i + 1, one, run, before, after, mine, outcomes, answered, may))
    return places


def _keep_watched(runs: Mapping[str, Run]) -> None:
    """A card whose run has just ended stays open: somebody may be looking at it."""
    live = {name for name, run in runs.items() if run.live}
    if ended := st.session_state.get("live_cards", set()) - live:
        fold.keep_open({*state.read().cards, *ended})
    st.session_state["live_cards"] = live


def _choose_setting(settings: list[LossSetting]) -> LossSetting:
    """Runs of another width, text or seed are another experiment."""
    texts = {setting.text: setting for setting in settings}
    chosen = state.among("setting", texts) or next(iter(texts))
    if len(texts) > 1:
        control = state.control("setting_box", chosen, lambda text: state.update(setting=text))
        st.selectbox("Setting", list(texts), **control)
    return texts[chosen]


def _moving() -> list[tuple[str, str]]:
    """What is on its way: when this changes, the page is another."""
    found = reading.trained(loading.runs())
    runs = [(run.name, run.status) for runs in found.values() for run in runs.values()]
    started = [(one.name, str(one.alive)) for one in jobs.started() if one.command == "train"]
    series = jobs.reproducing()
    return [*runs, *started, *([("", str(series.alive))] if series else [])]


def _watch(seen: list[tuple[str, str]]) -> None:
    """Draws the page again when a training begins or ends; does nothing while nothing moves."""
    if not any(status in ("training", "True") for _, status in seen):
        return

    def look() -> None:
        if _moving() != seen:
            st.rerun()

    ticking(look, key="specimens")


def _draw_overview(
    runs: Mapping[str, Run], own: Mapping[str, Run], places: list[StoryPlace], readings: list[ClaimAnswer],
    papers: list[PaperResults], trainable: bool, folded: list[str],
) -> None:  # fmt: skip
    with st.container(key="specimen-overview"):
        _draw_standing(places, readings, papers)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if trainable:
                _draw_series(own)
            fold.draw_all(folded)
            with st.popover("Every claim", type="tertiary", key="every_claim"):
                for one in readings:
                    st.markdown(claimed(one))
            with st.popover("How is this measured?", type="tertiary", key="how_measured"):
                if len(own) < len(runs):
                    st.markdown(SHIPPED)
                st.markdown(FIGURES)
                st.markdown(NEAR)


def _answer(runs: Mapping[str, Run]) -> str:
    """What the runs here say to the question with which two of the tutorials end."""
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
        told += (
            " Without a residual connection the head itself has to carry each token on; with one it is free, and turns "
            "to the token before."
        )
    return f"**What are those heads doing?** {told}"


def _draw_series(runs: Mapping[str, Run]) -> None:
    """One button for all that are not trained yet, or how that stands."""
    missing = [name for name in TRAINED if name not in runs or runs[name].status not in reading.DONE]
    models = f"{len(missing)} tutorial model{'s' * (len(missing) > 1)}"
    what = f"Train all {models}" if len(missing) == len(TRAINED) else f"Train the {models} not trained here"
    series = jobs.reproducing()
    if series is not None and series.alive:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption("Training all that are missing, one after the other.", width="content")
            st.button("Stop", key="stop_series", icon=":material/stop:", type="tertiary", on_click=_stop,
                      args=(series,))  # fmt: skip
        return
    if series is not None and series.failed and st.session_state.get("series_stopped") != series.process.pid:
        draw_last_words(series)
    if missing:
        busy = any(run.live for run in runs.values()) or any(one.alive for one in jobs.started())
        st.button(
            f"{what} (about {minutes(sum(MINUTES[name] for name in missing))})", key="train_all",
            icon=":material/play_arrow:", on_click=_train_all, args=(missing,), disabled=busy,
            help="In small, one after the other, as `tracer reproduce` does.",
        )  # fmt: skip
        if message := st.session_state.get("problem series"):
            st.text(message)


def _train_all(names: list[str]) -> None:
    tried("problem series", lambda: jobs.reproduce(names))


def _stop(series: Started) -> None:
    jobs.cancel(series)
    st.session_state["series_stopped"] = series.process.pid


def _of_papers(papers: list[PaperResults]) -> str:
    """How many of their claims hold, how many fail, and of how many nobody knows."""
    verdicts = [claim["verdict"] for paper in papers for claim in paper.told["claims"]]
    holding, failing = (sum(one in kinds for one in verdicts) for kinds in (("holds",), ("fails", "weaker")))
    open_ = f", {rest} open" if (rest := len(verdicts) - holding - failing) else ""
    return f" Papers: of {len(verdicts)} claims {holding} hold, {failing} fail{open_}." if verdicts else ""


def _draw_standing(places: list[StoryPlace], readings: list[ClaimAnswer], papers: list[PaperResults]) -> None:
    """How many of the findings in sight hold, and the claims that do not."""
    found = Counter(filter(None, map(verdict_of, places)))
    untested, close = found.pop("not tested", 0), found["too close to tell"]
    tested, others = found.total(), found.total() - found["holds"] - close
    words = [f"Tutorials: {found['holds']} of {tested} findings hold here"] if tested else ["No finding is tested yet"]
    words += [f"{others} {'does' if others == 1 else 'do'} not"] if others else []
    words += [f"{close} {'is' if close == 1 else 'are'} too close to tell"] if close else []
    words += [f"{untested} {'is' if untested == 1 else 'are'} not tested"] if tested and untested else []
    st.markdown(f"**{', '.join(words)}.{_of_papers(papers)}**")
    for one in readings:
        if one.verdict not in ("holds", "too close to tell", "not tested"):
            st.markdown(claimed(one))
