"""How much fits into a budget, against numbers of tensors counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tracer.ablate.many_sets import Split, split
from tracer.config import ModelConfig

POS, ITEMSIZE = 4, 8
CASES: list[tuple[dict[str, Any], int, bool, int, int, int]] = [
    ({}, 2, True, 8 * (10 + 3 * 6) + 4 * 3 * 16, 4 * (15 + 10 + 60), 22 + 39),
    ({"mlp_hidden": (2, 1)}, 0, False, 8 * (10 + 6), 4 * (15 + 36 + 5), 22 + 39),  # the heads need more than the MLP
    ({"mlp_hidden": (), "d_model": 100}, 0, False, 8 * (200 + 6), 4 * (300 + 200), 22 + 39),
    ({"n_layers": 1, "mlp_hidden": (200,), "unembed_hidden": ()}, 0, False, 4 * (10 + 6), 4 * (15 + 10 + 600), 22),
    ({"d_vocab": None}, 0, True, 8 * (10 + 6) + 4 * 3 * 16, 4 * (15 + 10 + 60), 39),
    ({"d_vocab": 500}, 0, True, 8 * (10 + 6) + 4 * 3 * 16, 4 * (15 + 10 + 60), 1000 + 39),
]
"""Fields, draws and whether patterns are frozen; numbers that a sequence, a set on it and a row of logits take."""


def of(fields: dict[str, Any], **how: Any) -> Split:
    widths: dict[str, Any] = {"n_layers": 2, "n_heads": 3, "d_head": 2, "d_model": 5, "n_ctx": POS, "d_vocab": 11}
    config = ModelConfig(**widths | {"mlp_hidden": (7, 20), "unembed_hidden": (13, 9)} | fields)
    return split(config, POS, itemsize=ITEMSIZE, **how)


@pytest.mark.parametrize(("fields", "draws", "frozen", "sequence", "variant", "row"), CASES)
def test_a_quarter_goes_to_the_clean_run_a_half_to_the_sets_and_a_quarter_to_logits(
    fields: dict[str, Any], draws: int, frozen: bool, sequence: int, variant: int, row: int
) -> None:
    quarter = 10**6
    how: dict[str, Any] = {"draws": draws, "frozen": frozen, "budget": 4 * quarter * ITEMSIZE}
    assert of(fields, batch=1, **how) == Split(1, 2 * quarter // variant, quarter // row)
    fit = min(quarter // sequence, 2 * quarter // variant)
    assert of(fields, batch=quarter, **how) == Split(fit, 2 * quarter // (variant * fit), quarter // row)


@pytest.mark.parametrize(("fields", "draws", "frozen", "sequence", "variant", "row"), CASES)
def test_a_budget_holds_one_set_on_one_sequence_at_least(
    fields: dict[str, Any], draws: int, frozen: bool, sequence: int, variant: int, row: int
) -> None:
    needed = ITEMSIZE * max(4 * sequence, 2 * variant, 4 * row)
    how: dict[str, Any] = {"batch": 3, "draws": draws, "frozen": frozen}
    enough = of(fields, budget=needed, **how)
    assert min(enough.sequences, enough.variants, enough.rows) == 1
    with pytest.raises(ValueError, match=f"budget={needed - 1} bytes is too small: .* 4 tokens needs {needed} "):
        of(fields, budget=needed - 1, **how)
