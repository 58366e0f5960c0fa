"""A continuation is what was drawn, one token after the other, and nothing of the prompt."""

import pytest
import torch

from tests.small import SMALL, TOKENS, build
from tracer.model.generate import generate


@pytest.mark.parametrize("n_new", [0, 1, 4])
def test_the_most_likely_tokens_by_hand(n_new: int) -> None:
    model, tokens = build(), TOKENS
    found = generate(model, tokens, n_new, [0.0] * 3)
    for _ in range(n_new):
        tokens = torch.cat([tokens, model(tokens[:, -SMALL.n_ctx :])[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, tokens[:, TOKENS.shape[1] :]) and found.shape == (3, n_new)
