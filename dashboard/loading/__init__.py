"""Cached access to `tracer`: the only place that caches, keyed by run, step and what was asked.

Nothing here is imported at the top that brings in torch: the first page paints without it.
Models are shared between sessions and threads: safe, because interventions travel with the call
(`tracer.interventions.edits`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from dashboard.access import read_only
from dashboard.loading import listing
from dashboard.loading.kept import AS_RECORDED, OF_A_STEP
from dashboard.loading.rows import merge
from tracer.measures import in_trace
from tracer.measures.intervals import margins, within
from tracer.pictures import curves, step_heatmap
from tracer.pictures.scales import head_label
from tracer.store import ROOTS, NotARun, Run, list_runs, open_run, remote, resolve
from tracer.store.following import follow

if TYPE_CHECKING:
    import xarray as xr

    from tracer.model.protocol import HeadModel


MOST_MEASURES = 400 << 20
"""Bytes of a run's measures that are read at once: a stranger's may unpack to far more than they take on the disk."""


def runs() -> list[Run]:
    """Every run under checkpoints/, newest first; cheap enough to ask on each rerun."""
    return [*listing.found().runs]


def run(name: str) -> Run:
    """The run, or a ValueError that says why it cannot be opened."""
    _allow(name)
    try:
        opened = open_run(name)
    except NotARun as error:  # whose words are for a terminal of this machine: they hold a path
        directory = resolve(name)
        if (directory / "run.json").exists():
            raise
        what = "has no run.json, so it is not a run directory" if directory.exists() else "is not here any more"
        raise NotARun(f"{directory.name} {what}: it was renamed, moved or removed, or never was there") from error
    _ = opened.about  # every page asks for it: a damaged run.json is refused here
    return opened


def fetch(url: str) -> Path:
    """The copy of a run at a URL that somebody typed (an address names none), which is followed from now on."""
    directory = remote.fetch(url)
    if not (directory / "run.json").is_file():
        names = ", ".join(one.name for one in list_runs(directory)) or "none that can be read"
        raise ValueError(f"{url} is no run but a folder with runs ({names}): add the name of one")
    follow(url)
    return directory


def is_there(name: str) -> bool:
    """Is there a run under this name, be it damaged?"""
    _allow(name)
    return (resolve(name) / "run.json").is_file()


def _allow(name: str) -> None:
    """Where nobody may type a path, a name says a folder of `ROOTS`, and the answer does not tell what else exists."""
    directory = resolve(name)
    if read_only() and (directory.parent not in ROOTS or directory.name in ("", "..")):
        raise ValueError(f"this dashboard is read-only and shows the runs of its own folders: {name!r} is none of them")


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=AS_RECORDED)
def trace(opened: Run) -> xr.Dataset:
    """The committed trace in memory, without patterns; read again when the run has moved on."""
    dataset = opened.trace.drop_vars("pattern", errors="ignore")
    if dataset.nbytes > MOST_MEASURES:
        raise ValueError(
            f"{opened.dir.resolve()}/trace.zarr holds {dataset.nbytes >> 20:,} MB of measures, more than the "
            f"{MOST_MEASURES >> 20} MB that a page reads; in Python, run.trace reads them one by one"
        )
    try:
        return dataset.load()
    except (OSError, RuntimeError, ValueError) as error:  # what is in a chunk comes to light when it is read
        raise ValueError(
            f"{opened.dir.resolve()}/trace.zarr cannot be read ({error}): a part of it is damaged; the snapshots are "
            f"untouched"
        ) from error


def so_far(opened: Run) -> xr.Dataset | None:
    """The trace once it holds a row; None before, and where it cannot be read."""
    try:
        recorded = trace(opened)
    except ValueError:
        return None
    return recorded if recorded.sizes["step"] else None


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=AS_RECORDED)
def updates(opened: Run) -> xr.Dataset | None:
    """What was recorded at every update, in memory; None where only the trace has it, or it cannot be read."""
    try:
        found = opened.updates
        return None if found is None or found.nbytes > MOST_MEASURES else found.load()
    except (OSError, RuntimeError, ValueError, KeyError):  # the trace says as much, at fewer steps
        return None


@st.cache_data(max_entries=128, show_spinner=False, hash_funcs=AS_RECORDED)
def head_curves(opened: Run, measure: str) -> bytes:
    """A head measure over training, packed for the curves component."""
    recorded = trace(opened)
    values, around = recorded[measure].values, margins(recorded, measure)
    band = None if around is None else within(values, around, in_trace(recorded, measure))
    return curves.pack_heads(recorded["step"].values, values, band)


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=AS_RECORDED)
def head_curves_of(runs: Sequence[Run], measure: str) -> bytes:
    """The same of several runs on one picture, each dashed in its way: "L1H2" of the first, "L1H2 · name" of others."""
    traces = [(run.name, found) for run in runs if measure in (found := trace(run))]
    n_layers = max(found.sizes["layer"] for _, found in traces)
    labels, groups, dashes, series = [], [], [], []
    for i, (name, found) in enumerate(traces):
        for layer, head in np.ndindex(found.sizes["layer"], found.sizes["head"]):
            labels.append(head_label(layer, head) + (f" · {name}" if i else ""))
            groups.append(layer)
            dashes.append(i)
            series.append((found["step"].values, found[measure].values[:, layer, head]))
    union, values = merge(series)
    return curves.pack(
        union, values, labels, groups=groups, group_names=[f"layer {layer}" for layer in range(n_layers)],
        n_layers=n_layers, dashes=dashes, dash_names=[name for name, _ in traces],
    )  # fmt: skip


@st.cache_data(max_entries=128, show_spinner=False, hash_funcs=AS_RECORDED)
def head_heatmap(opened: Run, measure: str) -> bytes:
    """A head measure over training, packed for the heatmap component."""
    recorded = trace(opened)
    return step_heatmap.pack(recorded["step"].values, recorded[measure].values)


@st.cache_resource(max_entries=24, show_spinner=False, hash_funcs=OF_A_STEP)
def model(opened: Run, step: int) -> HeadModel:
    """The model after `step` updates, in eval mode; shared, never changed."""
    import torch

    torch.set_num_threads(1)  # every rerun is a new thread: a pool of workers for each would cost more than it saves
    return opened.model(step)


def size_mb(opened: Run) -> float:
    """Megabytes of the run directory."""
    size = 0
    for path in opened.dir.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # renamed meanwhile by the process that trains
            size += path.stat().st_size if path.is_file() else 0
    return size / 1e6
