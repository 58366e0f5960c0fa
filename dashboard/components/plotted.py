"""A Plotly chart as PNG, SVG and CSV: the bar below it, which the browser serves alone."""

from collections.abc import Sequence

from dashboard.components.host import Part, controlled

_PART = Part("plotted")


def plotted(of: str, *, columns: Sequence[str], series: Sequence[str] = ()) -> None:
    """Offer the chart with the key `of`; `columns` name its table, `series` its grids where it has several."""
    cue = {"of": of, "columns": list(columns), "series": list(series)}
    controlled(_PART, None, cue, key=f"{of}_files", current=None, read=lambda v: v, on_change=None)
