"""What one does with a run as a whole: rename it, note something, delete it, and take that back."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import jobs, state
from dashboard.access import read_only
from dashboard.loading.run_summaries import Summary
from dashboard.shared.run_bar import clamps_of, tried
from dashboard.shared.tour.steps import draw_start
from tracer.presets import PRESETS
from tracer.store import Run, housekeeping

MOST_LABELS = 6
"""Settings of a person's own that are said of a run."""
DELETED = "deleted"
"""Where the session keeps what was deleted since this page was opened."""
A_DAY = 86_400.0


def arrive() -> None:
    """What was deleted before the page was left goes for good, and so does what nobody came back for."""
    shown = st.session_state.setdefault("shown", set())  # emptied when a page is turned
    if "arrived" in shown or read_only():
        return
    shown.add("arrived")
    for removed in st.session_state.pop(DELETED, []):
        housekeeping.discard(removed)
    housekeeping.empty_trash(A_DAY)


def draw_more(run: Run, facts: Summary, *, toured: bool) -> None:
    """A menu of what is rarely done with a run, below what has no room in its row; `toured`: can the tour show it?"""
    name = run.name
    with st.popover("More", key=f"more {name}", icon=":material/more_horiz:", type="tertiary", width="content"):
        st.caption(_kept(facts))
        for said in filter(None, (_origin(run), _labels(run))):
            st.text(said)
        if toured:
            draw_start(run, key=f"tour {name}")
        if not read_only():
            _draw_deeds(run, facts)


def _draw_deeds(run: Run, facts: Summary) -> None:
    name, live = run.name, run.live
    with st.container(gap="small"):
        st.text_input("Name", value=name, key=f"rename {name}", disabled=live, on_change=_rename, args=(run,))
        st.text_area(
            "Note", value=housekeeping.note(run), key=f"note {name}", height=90, on_change=tried,
            args=(f"manage {name}", lambda: housekeeping.write_note(run, st.session_state[f"note {name}"])),
            max_chars=housekeeping.LONGEST_NOTE, placeholder="what this run is for, what came of it",
        )  # fmt: skip
        if run.steps and run.can("resume"):
            st.button("Fork", key=f"fork {name}", icon=":material/fork_right:", on_click=_fork, args=(run,),
                      help="Train on from one of its steps as a new run, with heads clamped if you like.")  # fmt: skip
        if live:
            st.caption("It is training: stop it first to rename or delete it.")
        elif st.session_state.get("deleting") == name:
            st.markdown(f"Delete this run and its {facts.megabytes:,.0f} MB?")
            with st.container(horizontal=True):
                st.button("Yes, delete", key=f"delete {name}", icon=":material/delete:", on_click=_delete, args=(run,))
                st.button("Keep", key=f"keep {name}", type="tertiary", on_click=_ask, args=(None,))
        else:
            st.button("Delete", key=f"ask {name}", icon=":material/delete:", on_click=_ask, args=(name,))
        if said := st.session_state.get(f"manage {name}"):
            with st.container(key=f"problem_{name}"):
                st.text(said)


def draw_deleted() -> None:
    """What can still be taken back."""
    for removed in st.session_state.get(DELETED, []):
        name = removed.name.partition("-")[2]
        with st.container(horizontal=True, vertical_alignment="center", key=f"deleted-{name}"):
            st.text(f"{name} is deleted; for good when you leave this page.")
            st.button("Undo", key=f"undo {removed.name}", icon=":material/undo:", on_click=_undo, args=(removed,))


def said_of(run: Run) -> list[str]:
    """Where it is from, what somebody wrote about it, and its labels: names of others, to be drawn as text."""
    return [said for said in (_origin(run), housekeeping.note(run), _labels(run)) if said]


def _origin(run: Run) -> str:
    """Where a forked run began, and what is held while it trains."""
    said = []
    match run.meta.get("replay") or run.meta.get("remedy") or run.meta.get("parent"):
        case {"run": str(parent), "first": int(first), "last": int(last), "parts": parts}:
            at = parts if parts is not None else run.meta["replay"].get("losses_part")
            same = "equal to the bit" if at is None else f"parted at step {at:,}"
            said.append(f"steps {first:,} to {last:,} of {parent} again, {same}")
        case {"run": str(parent), "start": int(start), "words": str(words)}:
            said.append(f"again from step {start:,} of {parent}: {words}")
        case {"run": str(parent), "step": int(step)}:
            said.append(f"from {parent} at step {step:,}")
    if clamps := clamps_of(run):
        said.append(f"clamped: {', '.join(clamps)}")
    text = ", ".join(said)
    return text[:1].upper() + text[1:]


def _labels(run: Run) -> str:
    """The tags and the settings that its author gave it; the table has all of them."""
    tags, given = run.meta.get("tags") or [], list((run.meta.get("settings") or {}).items())
    said = [f"#{tag}" for tag in tags] + [f"{name} {value}" for name, value in given[:MOST_LABELS]]
    said += [f"and {len(given) - MOST_LABELS} more settings"] if len(given) > MOST_LABELS else []
    return ", ".join(said)


def _kept(facts: Summary) -> str:
    """What made it, what it takes on the disk, and since when: only words of ours, so no preset that is not ours."""
    made_by = facts.preset if facts.preset in PRESETS else "own configuration"
    if facts.kind != "trained":
        made_by = f"{facts.kind} {facts.author if facts.author.isidentifier() else 'model'}"
    size = f"{facts.megabytes:,.0f} MB" if facts.megabytes >= 1 else "under 1 MB"
    return f"{made_by} · {size}" + (f" · {facts.created:%-d %b %H:%M}" if facts.created else "")


def _fork(run: Run) -> None:
    """The form is on top of the page, outside of what is drawn again by itself."""
    where = str(run.dir.resolve())
    st.session_state.update(forking=where, fork_run=where)


def _ask(name: str | None) -> None:
    st.session_state["deleting"] = name


def _rename(run: Run) -> None:
    def rename() -> None:
        name = st.session_state[f"rename {run.name}"].strip()
        if name and name != run.name:
            housekeeping.rename(run, name)
            _forget(run)
            if state.read().run == run.name:
                state.update(run=name)

    tried(f"manage {run.name}", rename)


def _delete(run: Run) -> None:
    def delete() -> None:
        st.session_state.setdefault(DELETED, []).append(housekeeping.remove(run))
        _forget(run)
        if state.read().run == run.name:
            state.open_run(None)

    _ask(None)
    tried(f"manage {run.name}", delete)


def _undo(removed: Path) -> None:
    try:
        housekeeping.restore(removed)
        st.session_state[DELETED].remove(removed)
    except (ValueError, OSError) as error:
        st.toast(str(error))


def _forget(run: Run) -> None:
    """A process that ended made this run: it would be taken for one that made none."""
    for one in jobs.started():
        if one.directory.resolve() == run.dir.resolve() and not one.alive:
            jobs.forget(one)
