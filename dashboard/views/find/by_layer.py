"""Every head by its layer and one measure: where in the depth of the model the heads are that have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dashboard import theme
from dashboard.shared.figures import rule

if TYPE_CHECKING:
    import plotly.graph_objects as go

Head = tuple[int, int]


def by_layer(values: np.ndarray, scale: theme.Scale, selected: Head | None = None, *, dark: bool = False) -> go.Figure:
    """A point a head of values [layer head], nan left out; a dashed line stands at the scale's chance.

    The largest of each layer and the selected one are named, the others under the pointer: names would overlap.
    """
    import plotly.graph_objects as go

    if values.ndim != 2:
        raise ValueError(f"values must be [layer head], got shape {values.shape}")
    ink, figure = theme.ink(dark), go.Figure()
    for layer, colour in enumerate(theme.layer_colours(len(values))["dark" if dark else "light"]):
        heads = np.flatnonzero(np.isfinite(values[layer])).tolist()
        labels = [theme.head_label(layer, head) for head in heads]
        largest = max(heads, key=lambda head: values[layer, head], default=None)
        chosen = [(layer, head) == selected for head in heads]
        named = [head == largest or one for head, one in zip(heads, chosen, strict=True)]
        figure.add_scatter(
            x=values[layer, heads], y=[layer] * len(heads), customdata=[[layer, head] for head in heads],
            mode="markers+text", text=[label if one else "" for label, one in zip(labels, named, strict=True)],
            hovertext=labels, textposition="top center", textfont={"size": 11}, cliponaxis=False,
            unselected={"marker": {"opacity": 0.85}},
            marker={"size": [14 if one else 9 for one in chosen], "color": colour, "opacity": 0.85,
                    "line": {"width": [2.5 if one else 0 for one in chosen], "color": ink.text}},
            hovertemplate="<b>%{hovertext}</b> %{x:.3f}<extra></extra>",
        )  # fmt: skip
    if scale.chance is not None:
        rule(figure, scale.chance, ink.muted, dash="dash", width=1)
        figure.add_annotation(
            text="chance", x=scale.chance, y=1, yref="paper", xanchor="left", yanchor="bottom", showarrow=False,
            font={"size": 11, "color": ink.muted},
        )  # fmt: skip
    figure.update_layout(
        template=theme.plotly_template(dark), height=120 + 44 * min(len(values), 12), showlegend=False,
        margin={"l": 8, "r": 24, "t": 24, "b": 8},
    )  # fmt: skip
    unit = f" ({scale.unit})" if scale.unit else ""
    figure.update_xaxes(title={"text": f"{scale.label}{unit}", "font": {"size": 12}})
    figure.update_yaxes(
        title={"text": "layer", "font": {"size": 12}}, range=[-0.6, len(values) - 0.3], dtick=max(1, len(values) // 12),
        zeroline=False,
    )  # fmt: skip
    return figure
