"""Clamps in loops of Hugging Face models, of both kernels and with grouped keys."""

from pathlib import Path

import pytest
import torch

from tests.interventions.test_own_clamps import halved, previous
from tests.watching.conftest import family
from tests.watching.test_loop_clamps import held, train


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_other_heads_keep_the_models_own_kernel(name: str, here: Path) -> None:
    """Of both kernels, and grouped keys: the same gradients as where the model makes its pattern itself."""
    found = []
    for kernel in ("sdpa", "eager"):
        model = family(name, kernel)
        train(model, kernel, 1, held({"L0H1": previous, "L1H2": halved}))
        found.append([p.grad for p in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
