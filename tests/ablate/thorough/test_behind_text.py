"""What takes long of tests/ablate/test_behind_text.py: heads that reach each number of places, and other models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.ablate.test_behind_text import AMOUNTS, BLOCK, PERIOD, ROWS, WORDS, early, matching_by_hand
from tests.ablate.test_head_by_head import Models, models  # noqa: F401
from tests.ablate.test_verdict import CTX
from tracer.ablate.behind_text import LONGEST, _read, behind_filler, behind_other_text
from tracer.ablate.repeats import Repeats
from tracer.data.probes import repeated


@pytest.mark.parametrize("places", range(6, 32))
def test_every_reach_by_hand(places: int) -> None:
    """The least of the amounts, and whether each is strong and above chance, of a head that knows so many places."""
    rows, means, beaten = behind_filler(WORDS, 0, CTX, 32), {}, []
    periods = (PERIOD + np.linspace(0, BLOCK, 32).round().astype(int)).tolist()
    for amount in AMOUNTS:
        read = zip(rows[amount].tolist(), periods, strict=True)
        values = np.array([matching_by_hand(row, 1 + amount, period, places) for row, period in read])
        chance = np.mean([1 / (q + 1) for p in periods for q in range(1 + amount + p, 1 + amount + p + BLOCK)])
        means[amount] = values.mean()
        beaten.append(values.mean() >= 0.4 and values.mean() - 2.04 * values.std(ddof=1) / 32**0.5 > chance)
    found = behind_other_text(early(places), ROWS, (1, 0))
    assert means[0] > 0.4 and found.value == pytest.approx(min(list(means.values())[1:]), abs=1e-9)
    assert found.passed is all(beaten[1:]) and found.passed is (places >= 18)


def test_heads_that_are_called_one_by_one(models: Models) -> None:  # noqa: F811
    rows = Repeats(repeated(17, 24, batch=8).tokens)
    for head in ((0, 1), (1, 0), (1, 2)):
        (ours, right), (theirs, same) = (_read(model, rows, head) for model in models)
        np.testing.assert_allclose(theirs, ours, atol=1e-9)
        np.testing.assert_array_equal(same, right)
        pattern = models[0].run_with_cache(rows.tokens)[1]["pattern", head[0]][:, head[1]]
        by_hand = [
            np.mean([float(pattern[b, q, row.index(row[q]) + 1]) for q in range(1, 16) if row[q] in row[:q]])
            for b, row in enumerate(rows.tokens[:, :16].tolist())
        ]
        np.testing.assert_allclose(ours, by_hand, atol=1e-9)


def test_long_contexts_are_read_as_far_as_is_cheap() -> None:
    rows = behind_filler(torch.arange(1, 500), 0, 400, 3)
    assert list(rows) == [0, 74, 149, 223] and rows[223].shape == (3, LONGEST)
