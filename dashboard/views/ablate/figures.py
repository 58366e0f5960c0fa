"""The pictures of the Ablate page: the next tokens before and after, and what patching restores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dashboard import theme
from dashboard.shared.figures import plain, stops

if TYPE_CHECKING:
    import plotly.graph_objects as go


def next_tokens(
    tokens: Sequence[str],
    before: Sequence[float],
    after: Sequence[float],
    *,
    true: int | None = None,
    ablated: bool = True,
) -> go.Figure:
    """Probabilities of tokens, two bars a token; `true` is the row of the token that really follows."""
    import plotly.graph_objects as go

    ink, rows = theme.ink(), list(range(len(tokens)))
    names = [f"<b>{plain(token)}</b> follows" if i == true else plain(token) for i, token in enumerate(tokens)]
    shown = {"orientation": "h", "y": rows, "textposition": "outside", "cliponaxis": False}
    change = [f"  {theme.signed(100 * (b - a), 1)}" for a, b in zip(before, after, strict=True)]
    figure = go.Figure()
    figure.add_bar(
        x=before, name="all heads on", marker={"color": ink.muted}, text=[f"{p:.1%}" for p in before],
        hovertemplate="%{x:.2%}<extra>all heads on</extra>", **shown,
    )  # fmt: skip
    if ablated:
        figure.add_bar(
            x=after, name="with these off", marker={"color": ink.text}, customdata=change,
            text=[f"{p:.1%}{far}" for p, far in zip(after, change, strict=True)],
            hovertemplate="%{x:.2%} (%{customdata} points)<extra>with these off</extra>", **shown,
        )  # fmt: skip
    figure.update_layout(
        height=72 + (38 if ablated else 24) * len(rows), bargap=0.25,
        showlegend=ablated, margin={"l": 8, "r": 64, "t": 8, "b": 8},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    )  # fmt: skip
    figure.update_xaxes(tickformat=".0%", rangemode="tozero", nticks=6)
    figure.update_yaxes(
        tickvals=rows, ticktext=names, autorange="reversed", showgrid=False, ticks="", ticklabelstandoff=6
    )
    return figure


def patched(share: np.ndarray, words: Sequence[str]) -> go.Figure:
    """Share restored [layer pos], a column a token."""
    import plotly.graph_objects as go

    size = max(1.0, float(np.nanmax(np.abs(share))))
    figure = go.Figure(
        go.Heatmap(
            z=share, zmin=-size, zmax=size, colorscale=stops("change"),
            text=[[plain(word) for word in words]] * len(share),
            colorbar={"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 11}},
            hovertemplate="layer %{y}, token %{text}<br><b>%{z:.3f}</b> restored<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(height=max(260, 60 + 26 * len(share)), margin={"l": 52, "r": 8, "t": 8, "b": 80})
    figure.update_xaxes(tickvals=list(range(len(words))), ticktext=[plain(word) for word in words], tickangle=-60,
                        showgrid=False, zeroline=False)  # fmt: skip
    figure.update_yaxes(title={"text": "layer", "font": {"size": 12}}, showgrid=False, zeroline=False, dtick=1,
                        autorange="reversed")  # fmt: skip
    return figure
