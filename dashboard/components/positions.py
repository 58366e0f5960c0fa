"""What one head would attend to if there were positions and no tokens: queries down, keys across."""

from numpy.typing import ArrayLike

from dashboard.components.host import Part, controlled
from tracer.pictures import payload

_PART = Part("positions")


def positions(pattern: ArrayLike, *, key: str, label: str, before: float, max_size: int = 380) -> None:
    """Draw [query_pos key_pos]; `before` is the mean share of the position before, for who cannot see the picture."""
    shares = payload.quantise_linear(pattern, 0, 1)
    if shares.ndim != 2 or shares.shape[0] != shares.shape[1]:
        raise ValueError(f"pattern must be [query_pos key_pos] of equal sizes, got shape {shares.shape}")
    blob = payload.pack({"label": label}, shares=shares)
    controlled(_PART, blob, {"before": before, "max_size": max_size}, key=key, current=None, read=lambda v: v,
               on_change=None)  # fmt: skip
