"""What would give a number that means nothing is refused, and says what to do."""

from typing import Any

import numpy as np
import pytest
import torch

from tracer import ablate
from tracer.ablate import effect, sweep
from tracer.ablate.planner import ready
from tracer.config import ModelConfig
from tracer.interventions.replacements import head_of
from tracer.model import Transformer

TOKENS = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(0))


def build(**changes: Any) -> Transformer:
    return Transformer(ModelConfig(n_layers=2, n_heads=2, d_model=8, d_vocab=11, n_ctx=8, **changes), seed=0)


MODEL = build().eval()


@pytest.mark.parametrize("given", [0, "L0H1", (0.7, 1), (0, 1, 1), None, "L0", [[0], [1]]])
def test_what_is_no_head_is_not_passed_over(given: Any) -> None:
    with pytest.raises(ValueError, match=r"nothing that can be switched off: a head is \(layer, head\)"):
        head_of(given)


@pytest.mark.parametrize("given", [(1, 0), [1, 0], np.array([1, 0]), torch.tensor([1, 0]), (True, False)])
def test_any_two_whole_numbers_are_a_head(given: Any) -> None:
    assert head_of(given) == (1, 0)


@pytest.mark.parametrize("tokens", [TOKENS.tolist(), TOKENS[0], TOKENS.float(), TOKENS[:0], TOKENS.int()])
def test_tokens_that_are_none(tokens: Any) -> None:
    with pytest.raises(ValueError, match=r"tokens must be a tensor of whole numbers \(torch.int64\) \[batch pos\]"):
        ready(MODEL, tokens)


def test_one_token_has_no_loss() -> None:
    with pytest.raises(ValueError, match="no next one"):
        effect(MODEL, TOKENS[:, :1], [(0, 0)])


@pytest.mark.parametrize("call", [effect, ablate.outcomes])
def test_the_mean_of_one_sequence_is_no_replacement(call: Any) -> None:
    with pytest.raises(ValueError, match="the mean is that of the other sequences, and here is only one"):
        call(MODEL, TOKENS[:1], [(0, 0)], "mean")
    with pytest.raises(ValueError, match="the mean is that of the other sequences, and here is only one"):
        sweep(MODEL, TOKENS[:1], "mean")
    with pytest.raises(ValueError, match="here is only one"):
        ablate.plan([(0, 0)], "mean", ablate.reference_z(MODEL, TOKENS[:1]))
    assert effect(MODEL, TOKENS[:1], [(1, 0)], "mean", reference=TOKENS[1:2]).mean != 0


def test_dropout_is_no_effect() -> None:
    model = build(dropout=0.2).train()
    for ask in (lambda: effect(model, TOKENS, [(0, 0)]), lambda: sweep(model, TOKENS)):
        with pytest.raises(ValueError, match=r"dropout=0.2: call model.eval\(\) first"):
            ask()
    model.eval()
    assert sweep(model, TOKENS).shape == (2, 2)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: ablate.null(MODEL, TOKENS, [(1, 0)], n=0), "n=0 random sets: ask for at least 1"),
        (lambda: ablate.build_up(MODEL, TOKENS, target=90), "target=90 is a share of the behaviour: above 0, and at"),
        (lambda: ablate.knock_down(MODEL, TOKENS, target=0), "target=0 is a share"),
    ],
)
def test_amounts_that_mean_nothing(ask: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ask()
