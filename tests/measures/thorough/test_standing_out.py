"""Of models of random heads of many shapes, at most 5 % have a pair that stands out on Circuits."""

import pytest

from tests.measures.test_composition import ribbons, untrained


@pytest.mark.parametrize(
    ("shape", "models", "most"),
    [
        ((12, 12, 96, 8), 12, 3), ((12, 12, 48, 4), 12, 3), ((6, 6, 48, 8), 80, 10), ((4, 4, 64, 16), 100, 12),
        ((2, 2, 16, 4), 200, 20),
    ],
)  # fmt: skip
def test_of_random_heads_no_pair_stands_out(shape: tuple[int, int, int, int], models: int, most: int) -> None:
    assert sum(ribbons(untrained(shape, 1000 + seed)) > 0 for seed in range(models)) <= most
