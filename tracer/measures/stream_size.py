"""How large the vectors of a residual stream are."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def resid_rms(stream: Float[Tensor, "*batch d_model"]) -> Float[Tensor, ""]:
    """The root mean square of a vector, median over tokens.

    Source: `tracer.measures`, resid_rms.
    """
    return stream.float().square().mean(-1).sqrt().median()
