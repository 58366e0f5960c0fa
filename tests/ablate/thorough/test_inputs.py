"""What takes long of tests/ablate/test_inputs.py."""

import subprocess
import sys

ASKS = """
import numpy, torch
from tracer import ablate
from tracer.config import ModelConfig
from tracer.model import Transformer
model = Transformer(ModelConfig(n_layers=2, n_heads=2, d_model=8, d_vocab=11, n_ctx=8), seed=0).eval()
tokens = torch.arange(21).view(3, 7) % 11
assert ablate.effect(model, tokens, numpy.array([[1, 0]])).mean == ablate.effect(model, tokens, [(1, 0)]).mean != 0
for ask in (lambda: ablate.effect(model, tokens, (1, 0)), lambda: ablate.losses(model, tokens, [["L1H0"]]),
            lambda: ablate.null(model, tokens, [0]), lambda: ablate.sweep(model, tokens[0]),
            lambda: ablate.effect(model, [[1, 2]], [(1, 0)]), lambda: ablate.outcomes(model, tokens[:0], [(1, 0)]),
            lambda: ablate.sweep("a run", tokens), lambda: ablate.pairs(object(), tokens),
            lambda: ablate.build_up(None, tokens), lambda: ablate.verdict(3, 0, 0),
            lambda: ablate.sweep(model, tokens, positions=[2, 3]), lambda: ablate.sweep(model, tokens, positions=3)):
    try:
        ask()
    except ValueError as error:
        print("told:", error)
"""


def test_users_are_told_without_type_checks() -> None:
    """Tests run with types checked, which users' programs do not."""
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, check=True)
    assert done.stdout.count("told:") == 12, done.stdout
    assert done.stdout.count("is no model with heads: take that of a run") == 4, done.stdout
    assert done.stdout.count("`effect` switches heads off at chosen query positions") == 2, done.stdout
