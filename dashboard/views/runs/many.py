"""More runs than fit on a page, as a table: found by words, ticked, compared and laid over each other."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import streamlit as st

from dashboard import navigation, state, theme
from dashboard.loading import listing
from dashboard.loading.kept import kept
from dashboard.loading.run_summaries import recorded_last, settings_of, summary, when
from dashboard.shared.plots import table
from dashboard.state import MOST_OVER
from tracer.pictures.taken import Block
from tracer.store import Run
from tracer.store.choosing import ABOUT, differences, wanted

MANY = 12
"""Runs above which there is a table, and cards only for those that train or are ticked."""
READ = 40
"""Runs whose records are read unasked: each takes some 50 ms the first time."""
VARYING = 6
"""Columns that are shown unasked, of the settings in which the runs differ."""
FIRST = ("seed", "optim.lr", "model.n_layers", "model.n_heads", "model.d_model", "optim.batch_size", "data.corpus")
"""What most readers vary."""
EXAMPLE = "lr>0.01 seed=1 demo"


def draw_many(runs: Sequence[Run]) -> list[str]:
    """The words that are asked for, the table of the runs that hold them, and the names of the ticked ones."""
    rows = _rows(runs)
    find, shown = st.columns([3, 4], vertical_alignment="bottom")
    with find:
        st.text_input("Find runs", placeholder=EXAMPLE, icon=":material/search:", help=(
            "All words must hold, or what `or` and `not` make of them. `lr>0.01`, `seed=1`, `model.n_layers>=2` and "
            "`created>=2026-11` compare settings of a run, `accuracy>0.4` and `induction>0.5` the last of what it "
            "recorded (of heads, any), `tag=mine` its tags; other words are looked for in its name, preset, status, "
            "note and tags."
        ), **state.control("runs_find", state.read().runs, lambda text: state.update(runs=text.strip())))  # fmt: skip
    asked = state.read().runs
    by_name = {run.name: run for run in runs}
    try:
        holds = wanted(asked)
    except ValueError as error:
        st.caption(theme.unmarked(str(error)))
        holds = wanted("")
    held = [row for row in rows if holds(row, functools.partial(recorded_last, by_name[row["run"]]))]
    with shown, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom"):
        columns = _choose_columns(held)
        read = st.toggle("Loss and strongest head", value=len(held) <= READ, key=f"runs_read_{len(held) <= READ}")
    shown_now = crc32("/".join([asked, *(row["run"] for row in held)]).encode())
    key = f"runs_table_{shown_now}"  # rows are ticked by their place: other rows, none ticked
    cells, config = _cells(held, columns, [by_name[row["run"]] for row in held] if read else [])
    table(
        cells, key=key, alt=f"{len(held)} runs", most=15, config=config, selection_mode="multi-row", on_select="rerun"
    )
    ticked = [held[row] for row in st.session_state[key]["selection"]["rows"] if row < len(held)]
    several = f"{len(held):,} of {len(rows):,} runs" if len(held) < len(rows) else f"{len(rows):,} runs"
    if len(ticked) < 2:
        st.caption(f"{several}. Tick one to get its card, several to see in what they differ.")
    else:
        _draw_differences(ticked)
    return [row["run"] for row in ticked]


def _rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    rows = []
    for run in runs:
        try:
            rows.append(settings_of(run))
        except (ValueError, TypeError, KeyError):
            rows.append({"run": run.name, "status": "damaged"})
    return rows


def _choose_columns(held: Sequence[dict[str, Any]]) -> list[str]:
    """Settings by their dotted names: until some are chosen, the first in which these runs differ."""
    offered, varying = _columns(held)
    with st.popover("Columns", icon=":material/view_column:"):
        chosen = st.multiselect("Settings", offered, key="runs_columns", placeholder="those in which these runs differ")
    return [name for name in chosen if name in offered] or varying


def _columns(held: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """All settings of these runs, and those that are shown unasked; kept until a run.json changes."""

    def made() -> tuple[list[str], list[str]]:
        return list(dict.fromkeys(name for row in held for name in row if name not in ABOUT)), _varying(held)

    stamp = listing.found().stamp
    return made() if stamp is None else kept("columns of runs", (stamp, *(row["run"] for row in held)), made)


def _varying(held: Sequence[dict[str, Any]]) -> list[str]:
    differ = [name for name in differences(held) if name != "steps"]  # has its column: those that were made
    return sorted(differ, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))[:VARYING]


def _cells(
    held: Sequence[dict[str, Any]], columns: Sequence[str], read: Sequence[Run]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of the table and how each is written."""
    short = {name: name.rpartition(".")[2] for name in columns}
    if len(set(short.values())) < len(short):
        short = {name: name for name in columns}
    cells: dict[str, Any] = {
        "Run": [row["run"] for row in held],
        "Status": [row["status"] for row in held],
        "Kind": [row.get("preset") or row.get("author") or row.get("kind") for row in held],
        "Steps": [row.get("step") for row in held],
    }
    config: dict[str, Any] = {"Steps": st.column_config.NumberColumn(format="localized", width=75),
                              "Run": st.column_config.TextColumn(pinned=True, width=130)}  # fmt: skip
    if read:
        facts = [_read(run) for run in read]
        loss = _loss_of(read)
        cells |= {name: [one[i] for one in facts] for i, name in enumerate((loss, "Head", "Induction"))}
        config[loss] = st.column_config.NumberColumn(format="%.3f", help="at the last record", width=95)
        config["Head"] = st.column_config.TextColumn(help="the strongest induction head", width=65)
        config["Induction"] = st.column_config.ProgressColumn(
            format="%.2f", min_value=0, max_value=1, help="its induction score", width=110
        )
    cells |= {short[name]: _column([row.get(name) for row in held]) for name in columns}
    cells["Parameters"] = [row.get("n_params") for row in held]
    cells["Made"] = [when(row.get("created", "")) for row in held]
    config["Parameters"] = st.column_config.NumberColumn(format="compact", width=85)
    config["Made"] = st.column_config.DatetimeColumn(format="D MMM YYYY, HH:mm", width=140)
    if any(row.get("note") for row in held):
        cells["Note"] = [row.get("note") for row in held]
    if any(row.get("tags") for row in held):
        cells["Tags"] = [row.get("tags") for row in held]
    return cells, config


def as_blocks(runs: Sequence[Run]) -> list[Block]:
    """The same table for a file, of runs that are cards on the page."""
    rows = [row for row in _rows(runs) if row["status"] != "damaged"]
    by_name = {run.name: run for run in runs}
    cells, _ = _cells(rows, _varying(rows), [by_name[row["run"]] for row in rows])
    lines = zip(*([_printed(value) for value in column] for column in cells.values()), strict=True)
    return [{"kind": "table", "rows": [list(cells), *map(list, lines)], "more": 0, "at": None}]


def _printed(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
    return f"{value:%-d %b %Y, %H:%M}"


def _column(values: list[Any]) -> list[Any]:
    """Numbers where all are; else the texts that run.json has."""
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return values
    return ["" if value is None else str(value) for value in values]


def _loss_of(read: Sequence[Run]) -> str:
    """What the losses of all these runs are; a mere loss where those of some are held-out ones, of others not."""
    found = set()
    for run in read:
        with suppress(ValueError):
            found.add(summary(run).loss)
    return found.pop().capitalize() if len(found) == 1 else "Loss"


def _read(run: Run) -> tuple[float | None, str | None, float | None]:
    """Last loss, strongest induction head and its score; None for what is not recorded, or stands out."""
    try:
        facts = summary(run)
    except ValueError:
        return None, None, None
    loss = facts.losses[-1] if facts.losses else None
    if facts.best is None or not facts.stands_out:
        return loss, None, None
    return loss, theme.head_label(*facts.best), facts.score


def _draw_differences(ticked: Sequence[dict[str, Any]]) -> None:
    """In what several ticked runs differ, and a way to lay their curves over each other."""
    differ = differences(ticked)
    with st.container(horizontal=True, vertical_alignment="center"):
        if not differ:
            st.text(f"These {len(ticked)} runs have the same settings.")
        elif set(differ) == {"seed"}:
            st.text(f"These {len(ticked)} runs differ only in the seed.")
        else:
            st.text(f"These {len(ticked)} runs differ in {len(differ)} setting{'s' * (len(differ) > 1)}.")
        st.button("Lay over each other", icon=":material/stacked_line_chart:", type="primary", key="runs_over",
                  disabled=len(ticked) > MOST_OVER, on_click=_lay_over, args=([row["run"] for row in ticked],),
                  help=f"Their curves on Training, of up to {MOST_OVER} runs")  # fmt: skip
    if differ:
        cells = {"Setting": list(differ)}
        for i, row in enumerate(ticked[:MOST_OVER]):
            cells[row["run"]] = ["" if values[i] is None else str(values[i]) for values in differ.values()]
        table(cells, key="runs_differ", alt="the settings in which the ticked runs differ", most=8)


def _lay_over(names: list[str]) -> None:
    first, second, *others = names
    state.open_run(first)
    state.update(compare=second, over=tuple(others))
    st.switch_page(navigation.page("training"))
