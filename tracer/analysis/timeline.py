"""What a training did and when, and what its heads are called, as pictures take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tracer.analysis.head_roles import ROLES, Role, is_known, lost_codes, role_codes
from tracer.analysis.training_curves import Curve, events
from tracer.pictures.atlas import Roles
from tracer.pictures.scrubber import Event
from tracer.store import nearest_row

if TYPE_CHECKING:
    import xarray as xr


def events_of(curves: Iterable[Curve]) -> list[Event]:
    """Every change that these curves date, in order, by the names of `training_curves.HAPPENS`."""
    return [
        Event(curve.change.midpoint, curve.change.low, curve.change.high, curve.happens)
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
