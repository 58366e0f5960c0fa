"""What heads are called: by the roles that the server was started with, then by ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.analysis.head_roles import ROLES, HeadRole, Role, given_roles, nearest_role
from tracer.analysis.timeline import roles_at, roles_over
from tracer.measures.aliases import Head
from tracer.named_code import ROLES as SETTING
from tracer.named_code import remembered
from tracer.pictures.atlas import Roles

if TYPE_CHECKING:
    import xarray as xr


def own() -> tuple[tuple[Role, ...], str]:
    """Those that this server was started with, and why one is none."""
    try:
        return given_roles(remembered(SETTING)), ""
    except ValueError as error:
        return (), str(error)


def table() -> tuple[Role, ...]:
    """All roles; a head that has several is called by the first."""
    return (*own()[0], *ROLES)


def labels() -> tuple[str, ...]:
    return tuple(role.label for role in table())


def of_rows(trace: xr.Dataset, rows: list[int]) -> Roles:
    """Those of every head at each of these records, [row layer head]."""
    return roles_over(trace, rows, table())


def of_step(trace: xr.Dataset, step: int | None) -> Roles:
    """Those of every head at the record nearest to a step."""
    return roles_at(trace, step, table())


def of_head(trace: xr.Dataset, head: Head, step: int | None) -> tuple[HeadRole, bool] | None:
    """The role of a head at the record nearest to a step and True, or the one that it is nearest to and False."""
    return nearest_role(trace, head, step, table())
