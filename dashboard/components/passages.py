"""Passages in which a head looks sharply, shaded by its attention; a button of each opens it as a prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from dashboard.components.host import Part, controlled

_PART = Part("passages")


@dataclass(frozen=True)
class Group:
    """What stands above some passages."""

    title: str
    about: str
    quantile: bool = False
    """Is it said of each where it stands among all looks?"""


def passages(
    blob: bytes, *, key: str, groups: Mapping[str, Group], rows: Sequence[str], digits: int = 2, named: bool = False
) -> int | None:
    """Draw finding.passages(...); returns the number of a passage that was just opened, else None.

    `rows` names the sequences; `named`: a score is not a share, so the share is said as well.
    """
    cue = {
        "groups": {name: asdict(group) for name, group in groups.items()}, "rows": list(rows), "digits": digits,
        "named": named,
    }  # fmt: skip
    return controlled(_PART, blob, cue, key=key, current=None, read=int, on_change=None)
