"""Charts and tables of libraries, drawn here and nowhere else; what they show is kept for a file of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard import theme
from dashboard.shared.mount import DRAWN

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOTLY, TABLE = "plotly", "table"
"""The parts that these are in the registry of what a page drew."""
ROW, HEAD = 35, 37
"""Pixels of a table's row, and of its head with the frame."""


def plot(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    on_pick: Callable[[Any], None] | None = None,
    on_set: Callable[[list[Any]], None] | None = None,
    numbers: Callable[[], Mapping[str, Sequence[Any]]] | None = None,
    over_steps: bool = False,
) -> None:
    """Draw a figure that has a height; a click on a point gives `on_pick` its customdata, `numbers` is its table.

    With `on_set` dragging draws a lasso or a box, and gives it the customdata of all points inside. Where x is steps of
    training (`over_steps`), a line goes along with the timeline. The page's colours come here. Streamlit mounts a
    chart anew whenever its figure changes: the box around it keeps what is below in its place.
    """
    figure.update_layout(template=theme.plotly_template())
    _remember(key, PLOTLY, figure)
    config = {
        "displaylogo": False,
        "doubleClickDelay": 500,  # ms, as everywhere else: in Plotly's own 300 a busy page has not yet seen the second
        "modeBarButtonsToRemove": [*(["lasso2d", "select2d"] if on_set is None else []), "autoScale2d"],
        "toImageButtonOptions": {"format": "svg", "filename": key},
    }
    options: dict[str, Any] = {}
    if on_pick is not None:
        modes = "points" if on_set is None else ("points", "box", "lasso")
        options = {"on_select": lambda: _pick(key, on_pick, on_set), "selection_mode": modes}
        figure.update_layout(dragmode="zoom" if on_set is None else "lasso")  # Streamlit would pan
    if on_set is not None:  # the host keeps a figure's outline, and a drag within it would move that one
        figure.update_layout(meta=st.session_state.get(f"{key}_sets", 0))
    high: Any = figure.layout["height"]
    with st.container(height=int(high), border=False, key=f"{key}{'_over_steps' * over_steps}_chart"):
        st.plotly_chart(figure, theme=None, key=key, config=config, alt=alt, **options)
    if numbers is not None:
        with st.expander("Show as table", key=f"{key}_numbers", on_change="rerun", type="compact") as folded:
            if folded.open:
                table(numbers(), key=f"{key}_table", alt=alt)


def _pick(key: str, on_pick: Callable[[Any], None], on_set: Callable[[list[Any]], None] | None) -> None:
    chosen = st.session_state[key]["selection"]
    points = [point["customdata"] for point in chosen["points"]]
    if on_set is not None and (chosen["lasso"] or chosen["box"]):
        st.session_state[f"{key}_sets"] = st.session_state.get(f"{key}_sets", 0) + 1
        on_set(points)
    elif points:
        on_pick(points[0])


def table(
    columns: Mapping[str, Sequence[Any]],
    *,
    key: str,
    alt: str,
    most: int = 12,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Draw columns of equal length, `most` of their rows in view; `config` as in st.dataframe."""
    _remember(key, TABLE, columns)
    rows = len(next(iter(columns.values()), ()))
    drawn = {name: unsigned_zeros(values, (config or {}).get(name)) for name, values in columns.items()}
    with st.container(key=f"{key}_box"):  # a table that is only shown has no name of its own on the page
        st.dataframe(
            drawn, hide_index=True, key=key, alt=alt, row_height=ROW, column_config=config,
            height=HEAD + ROW * max(1, min(rows, most)), **options,
        )  # fmt: skip


def unsigned_zeros(values: Sequence[Any], column: Any) -> Sequence[Any]:
    """Of a column with so many decimals: what is printed as -0.000 becomes 0; others are as they were."""
    decimals = re.fullmatch(r"%\d*\.(\d)f", str(((column or {}).get("type_config") or {}).get("format")))
    if decimals is None:
        return values
    least = 0.5 * 10.0 ** -int(decimals[1])
    return [0.0 if isinstance(value, float) and -least < value <= 0 else value for value in values]


def _remember(key: str, kind: str, shown: Any) -> None:
    st.session_state.setdefault(DRAWN, {})[key] = kind, shown
