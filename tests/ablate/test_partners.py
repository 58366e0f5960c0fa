"""The set of earlier heads that bring a head the token before: no larger than it must be."""

from __future__ import annotations

import numpy as np

from tracer.ablate.induction_tests import partners
from tracer.ablate.repeats import Repeats, by_row
from tracer.config import ModelConfig
from tracer.data import probes
from tracer.interventions.edits import recording
from tracer.model import Transformer

ROWS = Repeats(probes.repeated(9, 16, batch=4, seed=0).tokens)
HEAD = (1, 3)


def model(n_heads: int = 4, size: float = 3) -> Transformer:
    """Of random weights, in this size so large that its patterns are sharp."""
    config = ModelConfig(
        n_layers=2, n_heads=n_heads, d_model=16, d_head=6, n_ctx=16, d_vocab=9, norm="none", attn_scale="none"
    )
    found = Transformer(config, seed=0).double().eval().requires_grad_(False)
    for parameter in found.parameters():
        parameter.mul_(size)
    return found


def matching(of: Transformer) -> np.ndarray:
    with recording("blocks.1.attn.hook_pattern") as seen:
        of(ROWS.tokens)
    return by_row((seen["blocks.1.attn.hook_pattern"][:, HEAD[1]] * ROWS.matches).sum(-1), ROWS.seen)


def test_a_head_that_was_taken_first_is_dropped_where_the_others_do() -> None:
    """L0H0 costs most by itself; beside L0H1 and L0H2 it is not needed, and each of these two is."""
    found = partners(model(), ROWS, HEAD, whole := matching(model()), np.full((2, 4), 0.5))
    assert found.heads == ((0, 1), (0, 2)) and found.found
    assert found.cut.mean() <= whole.mean() / 2
    for kept in found.heads:
        back = np.zeros((2, 4))
        back[kept] = 0.5
        alone = partners(model(), ROWS, HEAD, whole, back)
        assert alone.heads == (kept,) and not alone.found and alone.cut.mean() > whole.mean() / 2


def test_a_head_that_never_looks_at_the_token_before_is_not_tried() -> None:
    found = partners(model(), ROWS, HEAD, whole := matching(model()), np.zeros((2, 4)))
    assert found.heads == () and not found.found
    np.testing.assert_array_equal(found.cut, whole)


def test_the_eight_that_attend_most_to_the_token_before_are_tried() -> None:
    """Of ten; no set of them cuts a thousandth of what there is by half, so that each is taken."""
    wide = model(10, size=1)
    previous = np.array([np.linspace(1, 0.1, 10), np.zeros(10)])[:, ::-1]
    found = partners(wide, ROWS, HEAD, matching(wide) / 1e6, previous)
    assert sorted(found.heads) == [(0, head) for head in range(2, 10)] and not found.found
