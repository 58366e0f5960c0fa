"""The picture of the Find page that is not a head's own: how all its looks are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dashboard import theme
from dashboard.shared.figures import stops

if TYPE_CHECKING:
    import plotly.graph_objects as go


def spread(counts: np.ndarray, top: float, *, label: str, dark: bool = False) -> go.Figure:
    """How often each score from 0 to `top` occurs, its bars as dark as attention of that share."""
    import plotly.graph_objects as go

    n = len(counts)
    width = top / n
    middles = (np.arange(n) + 0.5) * width
    figure = go.Figure(
        go.Bar(
            x=middles, y=counts, width=width,
            marker={"color": np.sqrt(middles / top), "cmin": 0, "cmax": 1, "colorscale": stops("attention", dark, 0.3)},
            customdata=np.stack([middles - width / 2, middles + width / 2], -1),
            hovertemplate="%{customdata[0]:.3~g} to %{customdata[1]:.3~g}: <b>%{y:,}</b> looks<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(
        template=theme.plotly_template(dark), height=160, bargap=0.05, margin={"l": 8, "r": 8, "t": 8, "b": 8}
    )
    figure.update_xaxes(title={"text": label, "font": {"size": 12}}, showgrid=False)
    figure.update_yaxes(nticks=4)
    return figure
