"""What a training did and when, and what its heads are called, as pictures take it."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracer.analysis.head_roles import ROLES, Role, is_known, lost_codes, role_codes
from tracer.analysis.training_curves import Curve, Reads, by_chance, compositions, course, events, readable
from tracer.pictures.atlas import Roles
from tracer.pictures.scrubber import Event
from tracer.store import Run, nearest_row

if TYPE_CHECKING:
    import xarray as xr

CHEAP_BYTES = 4e8
"""Of weights, that are read unasked."""


def happened(run: Run, trace: xr.Dataset) -> list[Event]:
    """Every change that a run dates, as Phases does: with K-composition where its weights are read unasked."""
    return events_of(course(trace, reads(run) if readable(run) and is_cheap(run) else None))


def is_cheap(run: Run) -> bool:
    """Are the weights of all its snapshots read in a moment?"""
    return 4 * run.meta["n_params"] * len(run.steps) <= CHEAP_BYTES


def reads(run: Run, held: MutableMapping[int, NDArray[np.float32]] | None = None) -> Reads | None:
    """K-composition at every snapshot, None where none can be read; what is `held` is not read again, others join."""
    import torch

    held, threads = {} if held is None else held, torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small: threads that wait for each other take ten times as long
    try:
        held.update(compositions(run, [step for step in run.steps if step not in held]))
    except ValueError:  # a damaged tokenizer: no model can be made, the curves of the trace are whole
        return None
    finally:
        torch.set_num_threads(threads)
    steps = [step for step in run.steps if step in held]
    return Reads(steps, np.stack([held[step] for step in steps]), by_chance(run, steps[0])) if steps else None


def events_of(curves: Iterable[Curve]) -> list[Event]:
    """Every change that these curves date, in order, by the names of `training_curves.MARKS` and HAPPENS."""
    return [
        Event(curve.change.midpoint, curve.change.low, curve.change.high, curve.mark, curve.happens)
        for curve in events(curves) if curve.change
    ]  # fmt: skip


def roles_at(trace: xr.Dataset, step: int | None, table: Sequence[Role] = ROLES) -> Roles:
    """By what each head is called at the record nearest to a step (default: the last), by this table."""
    found = roles_over(trace, [nearest_row(trace["step"].values, step)], table)
    return found._replace(codes=np.asarray(found.codes)[0], lost=np.asarray(found.lost)[0])


def roles_over(trace: xr.Dataset, rows: Sequence[int], table: Sequence[Role] = ROLES) -> Roles:
    """The same at each of these records, [row layer head], with what each head was called before."""
    rows = list(rows)
    return Roles(
        [role.label for role in table], role_codes(trace, table)[rows], lost_codes(trace, table)[rows],
        {role.label: (role.detail, role.after) for role in table if role.detail},
        {role.label: role.measure for role in table if role.measure in trace and is_known(trace[role.measure])},
    )  # fmt: skip
