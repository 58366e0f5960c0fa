"""Every head over a corpus of the reader's choice: distances, passages by decile, and the separate jobs of one head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.access import read_only
from dashboard.shared.figures import plain
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot, table
from dashboard.views.find import survey_data
from dashboard.views.find.all_heads import MEANS
from dashboard.views.find.passages import take_prompt
from dashboard.views.find.survey_data import SurveyPassages
from tracer.measures.aliases import Head
from tracer.named_code import MEASURES, remembered
from tracer.pictures import passages
from tracer.pictures.passages import Group
from tracer.pictures.payload import visible
from tracer.store import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr

    from tracer.analysis.head_jobs import HeadJob, Jobs

TOKENS = (2**14, 2**16, 2**18, 2**20)
GROUPS = {
    "top": Group("The strongest", "The largest shares on one token that were seen."),
    "decile": Group(
        "One of each tenth", "Of all looks by share, the highest tenth first, drawn at random.", quantile=True
    ),
}
COLOURS = ("#3b6be0", "#c2571a", "#2a8c5a", "#8b4bb8", "#a8862a", "#4a7a8c")


def draw_survey(run: Run, step: int, head: Head) -> xr.Dataset | None:
    """What was read of a corpus, which is returned, or the offer to read one."""
    st.header("Over a corpus", anchor=False)
    if not read_only():
        _offer(run, step)
    try:
        found = survey_data.kept(run, step)
    except ValueError as error:
        with st.container(key="exactly-survey"):
            st.text(str(error))
        return None
    if found is None or not found.attrs["tokens_read"]:
        return None
    _draw_found(run, step, found, head)
    return found


def _offer(run: Run, step: int) -> None:
    """A corpus, how much of it, and the button; while it reads, a bar, and a button that ends it."""
    with st.form("survey_form", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        corpus = st.text_input(
            "Corpus", placeholder="the run's held-out text", key="survey_corpus", max_chars=400,
            help="A text file, a folder of them, or hf:NAME, on the machine where this runs; empty: the held-out text.",
        )  # fmt: skip
        tokens = st.selectbox("Tokens", TOKENS, index=1, format_func=lambda n: f"{n:,}", key="survey_tokens", width=140)
        asked = st.form_submit_button("Read it", icon=":material/menu_book:")
        if own := remembered(MEASURES):
            st.caption(f"Measured too: {', '.join(own)}")
    if not asked:
        return
    bar = st.progress(0.0, "Reading …")
    st.button("Stop", key="survey_stop", help="What was read stays; reading again goes on from there.")

    def told(done: int, of: int) -> None:
        bar.progress(done / of, f"{done:,} of {of:,} tokens")

    try:
        survey_data.make(run, step, corpus.strip(), tokens, told)
    except ValueError as error:
        with st.container(key="exactly-survey_refused"):
            st.text(str(error))
        return
    st.rerun()


def _draw_found(run: Run, step: int, found: xr.Dataset, head: Head) -> None:
    label, key, one = (
        theme.head_label(*head),
        survey_data.key_of(run, step, found),
        found.isel(layer=head[0], head=head[1]),
    )
    attrs, looks = found.attrs, int(one["n_looks"])
    part = "" if attrs["complete"] else f" of {attrs['tokens_to_read']:,}"
    with st.container(key="survey_said"):
        st.text(
            f"{attrs['tokens_read']:,}{part} tokens of {attrs['corpus']}, read at step {step:,}. "
            f"In each row one token of every {attrs['one_query_in']} was a query: {looks:,} looks of {label}."
            f"{' With all heads on.' if state.read().off else ''}"
        )
    if not looks:
        return
    left, right = st.columns([4, 5], gap="large")
    with left:
        means = MEANS | {name: row.label_with_unit for name, row in survey_data.own_means(found).items()}
        numbers = {
            label: [float(one[name]) for name in means], "standard error": [float(one[f"{name}_se"]) for name in means],
            "all heads": [float(found[name].mean()) for name in means],
        }  # fmt: skip
        table({"mean over its looks": list(means.values()), **numbers},
              key="survey_means", alt=f"Means of {label} over the corpus",
              config={name: st.column_config.NumberColumn(format="%.3f") for name in numbers})  # fmt: skip
        st.markdown("**How far it looks**")
        names, mass = found["distance"].values.tolist(), one["mass"].values.tolist()
        plot(_bars(names, mass, found["mass"].mean(["layer", "head"]).values.tolist(), label),
             key="survey_distance", numbers=lambda: {"tokens back": names, label: mass},
             alt=f"Share of the attention of {label} by distance")  # fmt: skip
        found_jobs = _ask_jobs(run, step, found, head)
    with right:
        if found_jobs is None:
            _draw_passages(run, survey_data.by_decile(key, head, found), GROUPS)
        else:
            _draw_passages(run, survey_data.of_jobs(key, head, found, found_jobs), _job_groups(found_jobs))


def _ask_jobs(run: Run, step: int, found: xr.Dataset, head: Head) -> Jobs | None:
    """The head's jobs once they are asked for."""
    label = theme.head_label(*head)
    st.markdown("**Its separate jobs**")
    about = "Groups of what it writes, by direction, and what switching it off costs in each."
    if not st.toggle(f"Tell the jobs of {label} apart", key="survey_jobs", help=about):
        return None
    try:
        made = survey_data.jobs(survey_data.key_of(run, step, found), head, found)
    except ValueError as error:
        with st.container(key="exactly-jobs"):
            st.text(str(error))
        return None
    n = len(made.kept)
    if len(made.jobs) == 1:
        st.caption(
            f"One job: what it writes at {n} looks falls into no groups with a gap between them, "
            "as a line, a circle or a Gaussian would not."
        )
    else:
        st.caption(
            f"{len(made.jobs)} groups of {n} looks, by the direction of what the head writes; silhouette "
            f"{made.silhouette:.2f} (1: far apart, 0: they touch), with a gap between any two. Writes: the group's "
            "share of all that the head writes. First token: the attention that rests there. Cost: the rise of the "
            "next token's loss with the head off, ± 1.96 standard errors."
        )
    columns = {
        "job": [str(i + 1) for i in range(len(made.jobs))],
        "looks": [job.share for job in made.jobs], "writes": [job.written for job in made.jobs],
        "first token": [job.first for job in made.jobs], "cost (nats)": [_cost(job) for job in made.jobs],
        "looks from": [_tokens(run, job.queries) for job in made.jobs],
        "looks to": [_tokens(run, job.keys) for job in made.jobs],
    }  # fmt: skip
    share = st.column_config.NumberColumn(format="%.2f", width=70)
    table(columns, key="survey_jobs_table", alt=f"The jobs of {label}",
          config={name: share for name in ("looks", "writes", "first token")})  # fmt: skip
    plot(_scatter(made), key="survey_scatter",
         alt=f"What {label} writes, on two principal components of its directions")  # fmt: skip
    st.caption(f"Directions of its outputs on two of {made.components.shape[1]} principal components, which hold "
               f"{made.explained:.0%} of their variance together.")  # fmt: skip
    return made


def _cost(job: HeadJob) -> str:
    margin = f" ± {theme.fmt(1.96 * job.cost_se, 'loss')}" if np.isfinite(job.cost_se) else ""
    return f"{theme.signed(job.cost)}{margin}"


def _tokens(run: Run, counted: list[tuple[int, float]]) -> str:
    from dashboard.loading.prompt_tokens import strings

    return "  ".join(visible(text, 12) for text in strings(run, [token for token, _ in counted]))


def _job_groups(made: Jobs) -> dict[str, Group]:
    about = "of its looks: those in the middle of the group."
    return {f"job{i}": Group(f"Job {i + 1}", f"{job.share:.0%} {about}") for i, job in enumerate(made.jobs)}


def _draw_passages(run: Run, shown: SurveyPassages, groups: dict[str, Group]) -> None:
    """Passages; one that is opened becomes the prompt of every page, its look pinned."""
    opened = draw(passages.picture(shown.blob, rows=shown.rows, groups=groups), key="survey_passages")
    if opened is not None:
        take_prompt(run, *shown.looks[opened])


def _bars(names: list[str], mass: list[float], others: list[float], label: str) -> go.Figure:
    import plotly.graph_objects as go

    ink = theme.ink()
    figure = go.Figure([
        go.Bar(x=names, y=mass, name=plain(label), marker={"color": ink.text}),
        go.Bar(x=names, y=others, name="all heads", marker={"color": ink.grid}),
    ])  # fmt: skip
    figure.update_layout(
        height=220, margin={"l": 40, "r": 8, "t": 30, "b": 40}, bargap=0.15,
        legend={"orientation": "h", "y": 1.2, "x": 0},
    )  # fmt: skip
    figure.update_xaxes(title={"text": "tokens back", "font": {"size": 12}}, type="category", showgrid=False)
    figure.update_yaxes(rangemode="tozero", nticks=4)
    return figure


def _scatter(made: Jobs) -> go.Figure:
    import plotly.graph_objects as go

    x = made.components
    second = x[:, 1] if x.shape[1] > 1 else np.zeros(len(x))
    figure = go.Figure([
        go.Scatter(x=x[made.group == i, 0], y=second[made.group == i], mode="markers", name=f"job {i + 1}",
                   marker={"color": COLOURS[i % len(COLOURS)], "size": 6, "opacity": 0.7})
        for i in range(len(made.jobs))
    ])  # fmt: skip
    figure.update_layout(
        height=260, margin={"l": 40, "r": 8, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 1.18, "x": 0},
    )  # fmt: skip
    figure.update_xaxes(title={"text": "component 1", "font": {"size": 12}}, zeroline=False)
    figure.update_yaxes(title={"text": "component 2", "font": {"size": 12}}, zeroline=False)
    return figure
