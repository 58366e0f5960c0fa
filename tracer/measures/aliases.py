"""Types that many rooms share; this is the lowest room that all of them read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Head = tuple[int, int]
"""(layer, head), counted from zero."""
Floats = NDArray[np.float64]
Progress = Callable[[int, int], object]
"""Called with how much of the work is done, and how much there is; what it raises ends the work."""
