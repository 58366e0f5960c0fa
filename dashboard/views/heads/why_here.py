"""Why does this head look there? Of the pinned cell: who wrote its query and its key, and what the cell moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard import state, theme
from dashboard.shared import patterns, switches
from dashboard.shared.export.snippets import rebuilt
from dashboard.shared.figures import places, plain, step_axis, stops
from dashboard.shared.plots import plot, table
from dashboard.views.heads import data
from dashboard.views.heads.data import Answer, Tokens
from tracer.measures.aliases import Head
from tracer.pictures.pattern import Cell
from tracer.pictures.payload import visible
from tracer.pictures.prompt_patterns import PromptPatterns
from tracer.store import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr
    from streamlit.delta_generator import DeltaGenerator

Place = tuple[Run, int, Tokens]
"""Run, step and prompt."""
SHOWN = {"above": "for this key", "score": "the whole score"}
NORMS = "Each norm keeps the scale that it has on this prompt."
INPUTS = {"q": "queries", "k": "keys", "v": "values"}


def draw_why(run: Run, shown: PromptPatterns, head: Head, near: DeltaGenerator, pin: Cell | None) -> None:
    """The answer for the pinned cell, in brief `near` the pattern, where one clicks; until somebody pins one that of
    `pin`, and an invitation; nothing where the model cannot be run."""
    tokens = shown.key[2]
    if not isinstance(tokens, tuple):  # a prompt that the run kept
        return
    label, chosen = theme.head_label(*head), patterns.pinned(shown)
    at, place = chosen or pin, (run, shown.step, tokens)
    found = None
    st.header(f"Why {label} looks there", anchor="why")
    if at is not None and at[1] <= at[0] < len(shown.strings):
        try:
            found = data.answer(*place, head, at, shown.off)
        except ValueError as error:
            with st.container(key="exactly-why"):
                st.text(str(error))
            return
        if not np.isfinite(found.score.attrs["pattern"]):
            st.caption(f"At this step the attention of {label} is not finite.")
            return
        with near, st.container(key="why_said", gap="xsmall"):
            _say(shown, at, found, chosen is not None)
    if found is None or at is None or chosen is None:
        with st.container(key="only_here_why"):
            st.caption("Click a cell of the pattern to see who wrote its query and its key.")
        return
    query, key = _ends(shown, at)
    with st.container(key="why_cell"):
        st.text(f"{query} → {key}. {found.reason.sentence}")
    left, right = st.columns([5, 4], gap="large")
    with left:
        _draw_pairs(label, found)
    with right:
        _draw_without(place, head, at, found, shown.off)
        _draw_moves(found)
    if head in shown.off:
        st.caption(f"{label} is off: what it moves is what it would move.")
    _draw_training(place, head, at, found)
    with st.expander("These numbers in Python", icon=":material/code:", type="compact"):
        st.code(snippet(run, shown.step, tokens, head, at, shown.off), language="python")


def _ends(shown: PromptPatterns, at: Cell) -> list[str]:
    """Query and key, as text: a token is whatever somebody typed."""
    return [f"“{visible(shown.strings[i])}” ({i})" for i in at]


def _say(shown: PromptPatterns, at: Cell, found: Answer, is_chosen: bool) -> None:
    """Why, in brief, and where there is more."""
    query, key = _ends(shown, at)
    weight, each = found.score.attrs["pattern"], 1 / (at[0] + 1)
    share, even = (theme.fmt(x, "share" if x >= 0.005 else "") for x in (weight, each))
    looks = weight > each or not at[0]
    st.text(f"Why {query} {'' if looks else 'hardly '}looks at {key}")
    st.text(f"{share} of its attention (even share {even})")
    if looks or is_chosen:  # what is left of a look that went with a head has no reason of its own
        st.text(found.reason.brief)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if looks:
            _offer_switch(found, shown.off)
        if is_chosen:
            st.markdown("[More](#why)", width="content")
        else:
            st.button("More", key="why_more", type="tertiary", on_click=state.update, kwargs={"cell": at},
                      help="Pins this cell: below, who wrote its query and its key, and what it moves.")  # fmt: skip


def _offer_switch(found: Answer, off: tuple[Head, ...]) -> None:
    """The switch of the head that wrote most of the key, which is what a person would try next."""
    source = found.reason.key_source
    if source.startswith("L") and (head := theme.parse_head(source)) not in off:
        switches.draw_switch(head, key="switch_source")


def _draw_pairs(label: str, found: Answer) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.markdown("**Who wrote the query, by who wrote the key**")
        what = st.segmented_control(
            "What is shown", list(SHOWN), key="why_what", default="above", required=True,
            format_func=SHOWN.__getitem__, label_visibility="collapsed", width="content",
        )  # fmt: skip
    few, attrs = found.few, found.score.attrs
    values = few["above"] if what == "above" else few
    total = theme.signed(float(values.sum()))
    same = [str(name) for name in found.score["key_source"].values[found.score["cancels"].values]]
    if what == "above":
        st.caption(f"What each pair adds to this key's score, less its mean over the other keys that the query sees: "
                   f"{total} in all. {NORMS}")  # fmt: skip
    else:
        st.caption(f"The parts of the score, {total} in all, as the model computed it. {NORMS}"
                   + (f" The same at every key, so without effect: {', '.join(same)}." if same else ""))  # fmt: skip
    columns = {"query \\ key": values["query_source"].values.tolist()} | {
        str(name): values.sel(key_source=name).values.tolist() for name in values["key_source"].values
    }
    plot(
        _heat(values), key="why_pairs", numbers=lambda: columns,
        alt=f"Query sources by key sources of the score of {label} from {attrs['query']} to {attrs['key']}",
    )  # fmt: skip


def _heat(values: xr.DataArray) -> go.Figure:
    """Query sources down, key sources across; zero in the middle of the colours."""
    import plotly.graph_objects as go

    z = values.values
    most = max(float(abs(z).max()), 1e-9)
    figure = go.Figure(
        go.Heatmap(
            z=z, x=[plain(str(x)) for x in values["key_source"].values], texttemplate="%{text}",
            y=[plain(str(y)) for y in values["query_source"].values],
            text=[[theme.signed(v, theme.digits([most], 1)) if abs(v) >= 0.05 * most else "" for v in row]
                  for row in z],
            zmin=-most, zmax=most, colorscale=stops("change"), showscale=False, xgap=1, ygap=1,
            hovertemplate="query side %{y}<br>key side %{x}<br><b>%{z:+.3f}</b><extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(height=110 + 30 * len(z), margin={"l": 8, "r": 8, "t": 8, "b": 8})
    title = {"font": {"size": 12}, "standoff": 6}
    figure.update_xaxes(title={"text": "wrote the key", **title}, showgrid=False, zeroline=False, automargin=True)
    figure.update_yaxes(title={"text": "wrote the query", **title}, showgrid=False, zeroline=False, automargin=True)
    figure.update_yaxes(autorange="reversed")
    return figure


def _draw_without(place: Place, head: Head, at: Cell, found: Answer, off: tuple[Head, ...]) -> None:
    """The attention on this key if the head did not read one source, as an estimate and by real computation."""
    names = [str(name) for name in found.score["key_source"].values if str(name) != data.OWN]
    st.markdown("**Without one of them**")
    first = found.reason.key_source if found.reason.key_source in names else names[0]
    source = st.selectbox("Source that is not read", names, index=names.index(first), key=f"why_without {head} {at}")
    rows = data.without(*place, head, at[0], source, off)
    said = {
        "as it is": "as_is", "estimate, with the same norms": "estimate", "with norms computed again": "recomputed",
        "off in the whole model": "everywhere",
    }  # fmt: skip
    shares = {words: float(rows[name].values[at[1]]) for words, name in said.items()}
    kept = {words: share for words, share in shares.items() if share == share}
    config = {"attention to this key": st.column_config.ProgressColumn(format="%.3f", min_value=0, max_value=1)}
    table({"": list(kept), "attention to this key": list(kept.values())}, key="why_without_table", config=config,
          alt=f"Attention of the cell without {source}")  # fmt: skip


def _draw_moves(found: Answer) -> None:
    st.markdown("**What the cell moves**")
    precise = theme.digits((value for _, value in (*found.raised, *found.lowered)), 3)
    raised, lowered = ([(visible(token), theme.signed(value, precise)) for token, value in side]
                       for side in (found.raised, found.lowered))  # fmt: skip
    columns = {
        "raises": [token for token, _ in raised], "by": [value for _, value in raised],
        "lowers": [token for token, _ in lowered], "by ": [value for _, value in lowered],
    }  # fmt: skip
    table(columns, key="why_logits", alt="Tokens whose logits this cell raises and lowers most")
    st.caption("Logits of the next token, straight from this cell; what later parts make of it is not in it.")
    if found.readers:
        precise = theme.digits((100 * share for *_, share in found.readers), 0)
        readers = ", ".join(
            f"{theme.head_label(*head)}'s {INPUTS[into]} ({share:.{precise}%})" for head, into, share in found.readers
        )
        st.caption(f"Later heads that read it here, by its share of what they read: {readers}.")


def _draw_training(place: Place, head: Head, at: Cell, found: Answer) -> None:
    """The same cell at every snapshot, once it is asked for."""
    steps = tuple(place[0].steps)
    if len(steps) < 2:
        return
    opened = st.expander(
        "The same cell over training", icon=":material/timeline:", key="why_training", on_change="rerun"
    )
    with opened:
        if not opened.open:
            return
        try:
            over = data.over_training(*place, head, at, steps)
        except ValueError as error:
            st.text(str(error))
            return
        pair = found.reason.query_source, found.reason.key_source
        lines = {
            f"{pair[0]} × {pair[1]}": over["above"].sel(query_source=pair[0], key_source=pair[1]).values,
            "all pairs": over["above"].sum(["query_source", "key_source"]).values,
        }
        shown = over["step"].values.tolist()
        listed = {"step": shown} | {name: values.tolist() for name, values in lines.items()}
        listed["attention"] = over["pattern"].values.tolist()
        st.caption(
            "The score of this key above the mean of the other keys, and what one pair adds to it: the one that is "
            "strongest at the step above. With all heads on."
        )
        plot(_lines(shown, lines), key="why_over", numbers=lambda: listed,
             alt="The cell's score above other keys over training")  # fmt: skip


def _lines(steps: list[int], lines: Mapping[str, np.ndarray]) -> go.Figure:
    import plotly.graph_objects as go

    ink, log_x = theme.ink(), state.read().log
    figure = go.Figure([
        go.Scatter(x=places(steps, log_x), y=y, name=plain(name), mode="lines", line={"color": colour, "width": 2})
        for (name, y), colour in zip(lines.items(), (ink.text, ink.muted), strict=True)
    ])  # fmt: skip
    figure.update_layout(
        height=260, margin={"l": 40, "r": 12, "t": 30, "b": 40},
        legend={"orientation": "h", "y": 1.15, "x": 0}, hovermode="x unified",
    )  # fmt: skip
    step_axis(figure, log_x)
    return figure


def snippet(run: Run, step: int, tokens: Tokens, head: Head, at: Cell, off: tuple[Head, ...] = ()) -> str:
    """Lines that compute the matrix again, for the runs under checkpoints/ where the reader works."""
    asked = f"tracer.why(model, tokens, layer={head[0]}, head={head[1]}, query={at[0]}, key={at[1]})"
    lines = [f"with zeroed(model, tokens, {list(off)}):", f"    found = {asked}"] if off else [f"found = {asked}"]
    return "\n".join([
        "import torch", "import tracer", *(["from tracer.ablate import zeroed"] if off else []), "",
        f"model = tracer.open_run({f'checkpoints/{run.name}'!r}).{rebuilt(run, step)}",
        f"tokens = torch.tensor([{list(tokens[: at[0] + 1])}])",
        *lines,
        "found.above.to_pandas()  # what each pair adds for this key; found.sum() is the model's score",
    ])  # fmt: skip
