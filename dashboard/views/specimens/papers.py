"""Findings of papers, trained again: each claim with its verdict over seeds and its control."""

from __future__ import annotations

import streamlit as st

from dashboard import loading, navigation, state, theme
from dashboard.views.specimens.chart_of_paper import draw_chart
from tracer.specimens.paper_results import PaperResults
from tracer.specimens.paper_tables import counted, rows, spent

BADGES = {
    "holds": ("✓", "green"), "weaker": ("◐", "orange"), "fails": ("✕", "red"), "too close to tell": ("≈", "gray"),
    "not at this size": ("○", "gray"), "not tested": ("○", "gray"), "error": ("!", "orange"),
}  # fmt: skip
MOST = 6
"""Runs of a paper that are offered."""


def anchor(paper: PaperResults) -> str:
    return f"paper-{paper.name}"


def draw_papers(papers: list[PaperResults]) -> None:
    """A card a paper; what is long on it stays folded."""
    st.header("Findings of the field", anchor=False)
    st.caption("Trained again on two cores. Each verdict is over seeds, beside the control against a trivial "
               "explanation, where there is one. What fails stands here too.")  # fmt: skip
    for paper in papers:
        with st.container(border=True, key=anchor(paper)):
            _draw_paper(paper)


def _draw_paper(paper: PaperResults) -> None:
    st.subheader(paper.title, anchor=anchor(paper), width="content")
    st.markdown(" ".join(badge(verdict, words) for verdict, words in counted(paper.told)))
    lead, _, rest = paper.page.partition("\n\n")
    words, picture = st.columns([4, 5], gap="large") if paper.told.get("chart") else (st.container(), st.container())
    with words:
        st.markdown(lead)
        st.caption(f"{theme.unmarked(paper.told['source'])}. {spent(paper.told)}.")
    with picture:
        draw_chart(paper)
    with st.expander(f"Its {len(paper.told['claims'])} claims, figures and controls"):
        for row in rows(paper.told):
            claim, origin, here, control = map(theme.unmarked, row[1:])
            controlled = f"Control: {control}.  \n" if row.control != "–" else ""
            with st.container(gap="xxsmall"):
                st.markdown(f"{badge(row.verdict)} &nbsp;{theme.sentence(claim)}  \n{theme.sentence(here)}")
                st.caption(f"{controlled}{theme.sentence(origin)}")
    with st.expander("What was done, and how to read it"):
        st.markdown(rest)
    here = [run.name for run in loading.runs() if run.name.startswith(f"{paper.name}-")]
    if here:
        with st.container(horizontal=True, key=f"runs-of-{paper.name}"):
            for name in here[:MOST]:
                if st.button(f"See {theme.unmarked(name)}", key=f"see {name}", type="tertiary",
                             icon=":material/arrow_forward:"):  # fmt: skip
                    state.open_run(name)
                    st.switch_page(navigation.page("heads"))
    st.code(paper.command, language=None, wrap_lines=True)


def badge(verdict: str, words: str = "") -> str:
    icon, colour = BADGES.get(verdict, ("○", "gray"))
    return f":{colour}-badge[{icon} {words or verdict}]"
