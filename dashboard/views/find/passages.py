"""Passages of one head: where it looks most sharply, what is typical of it, and the tokens at both ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import navigation, state, theme
from dashboard.loading import prompt_tokens
from dashboard.shared import switches
from dashboard.shared.figures import stops
from dashboard.shared.mount import draw
from dashboard.shared.plots import plot, table
from dashboard.views.find import data as finding
from dashboard.views.find.data import HeadPeaks
from tracer.measures.aliases import Head
from tracer.pictures import passages
from tracer.pictures.passages import Group
from tracer.store import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from tracer.analysis.max_activating import Hit

KINDS = {
    "sharpest": "Strongest attention",
    "induction": "After an earlier copy",
    "previous_token": "Token before",
    "farthest": "Farthest attention",
}
SCORES = {
    "sharpest": "A token’s strongest attention",
    "induction": "Share on tokens that came after an earlier copy",
    "previous_token": "Share on the token before",
    "farthest": "Largest share × distance in tokens",
}
"""What the score of a look is."""
STRONGEST = Group("The strongest", "Near-duplicates are left out; attention to whitespace comes last.")
ORDINARY = Group("Typical ones", "One from each quarter of all, at random: maxima alone mislead.", quantile=True)
READ = "find_read"
"""Where the session keeps what was asked, and the step and head that are read since."""
AFTER = 8
"""Tokens after the query that are opened along with it."""


def choose_kind() -> str:
    """What counts as a strong look."""
    return st.selectbox(
        "Look for", list(KINDS), format_func=KINDS.__getitem__,
        **state.control("kind_box", state.read().looks, lambda kind: state.update(looks=kind)),
        help="How looks are ranked. The token itself and the first token, where heads rest, are left out.",
    )  # fmt: skip


def draw_top(run: Run, step: int, head: Head, newest: int) -> None:
    """Whose passages follow; of a live run also what reads newer ones."""
    label = theme.head_label(*head)
    with st.container(
        key="passages_head", horizontal=True, horizontal_alignment="distribute", vertical_alignment="center", gap=None
    ):  # fmt: skip
        st.header(f"Where {label} looks", anchor=False, width="content")
        if _moves(run, step, newest):
            st.button(
                f"Read step {newest:,}" if step != newest else f"Step {step:,}, the newest", key="read_newest",
                icon=":material/refresh:", type="tertiary", disabled=step == newest,
                on_click=lambda: st.session_state.pop(READ, None),
                help=f"These passages are of step {step:,}. They stay while you read, and training goes on.",
            )  # fmt: skip


def _moves(run: Run, step: int, newest: int) -> bool:
    return run.live or step != newest


def draw_passages(
    run: Run, found: HeadPeaks, kind: str, head: Head, newest: int, before: HeadPeaks | None
) -> None:  # fmt: skip
    """The strongest looks and typical ones, as text; `before`: found with all heads on, where that is known."""
    label, looks, step = theme.head_label(*head), found.search.looks(kind, head), found.step
    at = f" at step {step:,}" if _moves(run, step, newest) else ""
    without = f" without {switches.named(found.off)}" if found.off else ""
    searched = f"Searched{at}{without}{':' if at or without else ''}"
    n, tokens = found.text.tokens.shape[0], int((found.text.tokens >= 0).sum())
    if not looks:
        st.caption(f"{searched} {n} {found.text.what}, {tokens:,} tokens.")
        st.info(f"No token of them has a look of this kind in {label}.", icon=":material/search_off:")
        return
    was = f"{_mean(before, kind, head)} → " if found.off and before is not None else ""
    note = f" Not held-out text: {found.text.note}." if found.text.note else ""
    with st.container(key="passages_said"):
        st.caption(
            f"{searched} {n} {found.text.what}, {tokens:,} tokens. "
            f"{SCORES[kind]}: {was}{_mean(found, kind, head)} on average.{note}",
            help=f"{looks:,} of the tokens have such a look.",
        )
    shown = finding.shown(found, kind, head)
    picture = passages.picture(
        shown.blob, rows=found.text.names, named=kind != "sharpest", digits=1 if kind == "farthest" else 2,
        groups={"top": STRONGEST, "typical": ORDINARY},
    )  # fmt: skip
    opened = draw(picture, key="passages")
    if opened is not None:
        _open(run, found, shown.hits[opened])


def _mean(found: HeadPeaks, kind: str, head: Head) -> str:
    return theme.fmt(found.search.mean(kind, head)) if kind == "farthest" else f"{found.search.mean(kind, head):.2f}"


def draw_ends(found: HeadPeaks, kind: str, head: Head) -> None:
    """The tokens at both ends of its sharpest looks, and how all its looks are spread."""
    ends = finding.ends(found, kind, head)
    if not ends.looks:
        return
    most = max([0.01, *(share for rows in ends.lists.values() for share in (*rows["share"], *rows["of all text"]))])
    share = st.column_config.ProgressColumn(format="percent", min_value=0, max_value=most, width="small")
    usual = st.column_config.NumberColumn(format="percent", width="small")
    for column, (name, rows) in zip(st.columns(2), ends.lists.items(), strict=True):
        with column:
            st.markdown(f"**{name}**")
            table(rows, key=name.replace(" ", "_").lower(), alt=name,
                  config={"share": share, "of all text": usual, "looks": None})  # fmt: skip
    st.caption(f"Tokens that stand out in its {ends.looks:,} sharpest looks, compared with the whole text.")
    st.markdown("**How its looks are spread**")
    plot(spread(ends.counts, ends.top, label=SCORES[kind]), key="spread",
         alt=f"Histogram of {int(ends.counts.sum()):,} looks by {SCORES[kind]}")  # fmt: skip


def spread(counts: np.ndarray, top: float, *, label: str) -> go.Figure:
    """How often each score from 0 to `top` occurs, its bars as dark as attention of that share."""
    import plotly.graph_objects as go

    n = len(counts)
    width = top / n
    middles = (np.arange(n) + 0.5) * width
    figure = go.Figure(
        go.Bar(
            x=middles, y=counts, width=width,
            marker={"color": np.sqrt(middles / top), "cmin": 0, "cmax": 1, "colorscale": stops("attention", 0.3)},
            customdata=np.stack([middles - width / 2, middles + width / 2], -1),
            hovertemplate="%{customdata[0]:.3~g} to %{customdata[1]:.3~g}: <b>%{y:,}</b> looks<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(height=160, bargap=0.05, margin={"l": 8, "r": 8, "t": 8, "b": 8})
    figure.update_xaxes(title={"text": label, "font": {"size": 12}}, showgrid=False)
    figure.update_yaxes(nticks=4)
    return figure


def _open(run: Run, found: HeadPeaks, hit: Hit) -> None:
    """Make this passage the prompt of every page, its look pinned, and turn to Heads."""
    if found.from_kept:
        state.update(kept=found.text.names[hit.sequence], token=hit.query, cell=(hit.query, hit.key))
        st.switch_page(navigation.page("heads"))
    else:
        take_prompt(run, found.text.tokens[hit.sequence].tolist(), hit.query, hit.key)


def take_prompt(run: Run, tokens: list[int], query: int, key: int) -> None:
    """The same of a row of tokens, which becomes a text."""
    text, (token, looked) = as_prompt(run, tokens, query, key)
    state.update(prompt=text, token=token, cell=None if looked is None else (token, looked))
    st.switch_page(navigation.page("heads"))


def as_prompt(run: Run, tokens: list[int], query: int, key: int) -> tuple[str, tuple[int, int | None]]:
    """A row up to a little after its query as text that encodes within the context, and where query and key then stand.

    A start token is put in front, so a row as long as the context loses its first tokens: the key may be None.
    """
    from tracer.data.tokenizer import text_of

    about = run.about
    stop = min(len(tokens), query + AFTER + 1)
    room = stop if about.n_ctx is None else about.n_ctx - (about.bos is not None)
    start = max(0, stop - room)
    ids = tokens[start:stop]
    if ids[0] == about.bos:
        ids = ids[1:]
    words = prompt_tokens.tokenizer(run)
    text = " ".join(map(str, ids)) if words is None else text_of(words, ids, skip_special_tokens=False)
    strings = prompt_tokens.encode(run, text, cut=True).strings

    def place(at: int) -> int:
        return position(strings, sum(map(len, prompt_tokens.strings(run, tokens[at + 1 : stop]))))

    return text, (place(query), place(key) if key >= start else None)


def position(strings: list[str], after: int) -> int:
    """The token that has `after` characters behind it: a text may be cut into other tokens than it came from."""
    at = len(strings) - 1
    while at > 0 and after > 0:
        after -= len(strings[at])
        at -= 1
    return at
