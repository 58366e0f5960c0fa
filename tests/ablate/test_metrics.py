"""Metrics against the full logits, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tracer.ablate import LogitDifference, LogProb, Loss, Metric, attribution, metric_under_ablation, patch, plan
from tracer.config import InitConfig, ModelConfig
from tracer.data.probes import per_token_loss
from tracer.interventions.edits import applied
from tracer.model import Transformer

CONFIG = ModelConfig(
    n_layers=2, n_heads=2, d_model=12, n_ctx=9, d_vocab=11, mlp_hidden=(16,), init=InitConfig(attn=0.6)
)
TOKENS = torch.randint(0, 11, (3, 8), generator=torch.Generator().manual_seed(2))
RIGHT, WRONG, ENDS = torch.tensor([1, 2, 3]), torch.tensor([4, 4, 5]), torch.tensor([7, 3, -2])
B = torch.arange(3)


def difference(logits: Tensor) -> Tensor:
    return (logits[B, ENDS % 8, RIGHT] - logits[B, ENDS % 8, WRONG])[:, None]


CASES: dict[str, tuple[Metric, Any]] = {
    "every loss": (Loss(), lambda logits: per_token_loss(logits, TOKENS)),
    "some losses": (Loss(slice(2, 6, 3)), lambda logits: per_token_loss(logits, TOKENS)[:, 2:6:3]),
    "the last loss": (Loss(slice(-1, None)), lambda logits: per_token_loss(logits, TOKENS)[:, -1:]),
    "difference": (LogitDifference(3, 4), lambda logits: logits[:, -1:, 3] - logits[:, -1:, 4]),
    "of each sequence": (LogitDifference(RIGHT, WRONG, positions=ENDS), difference),
    "log-probability": (LogProb(6, positions=(0, -1)), lambda logits: logits.log_softmax(-1)[:, [0, 7], 6]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("head", [(0, 1), (1, 0)])
def test_read_from_the_full_logits(model: Transformer, name: str, head: tuple[int, int]) -> None:
    metric, expected = CASES[name]
    clean, off = metric_under_ablation(model, TOKENS, [[], [head]], metric=metric)
    torch.testing.assert_close(clean, expected(model(TOKENS)), atol=1e-12, rtol=0)
    with applied(plan([head], "zero")):
        torch.testing.assert_close(off, expected(model(TOKENS)), atol=1e-12, rtol=0)
    assert (off - clean).abs().max() > 1e-3


@pytest.mark.parametrize(("name", "read"), [("every loss", 7), ("some losses", 2), ("difference", 1)])
def test_only_what_is_read_is_unembedded(name: str, read: int) -> None:
    model, rows = Transformer(CONFIG).eval(), []
    assert isinstance(model.unembed, nn.Module)
    model.unembed.register_forward_hook(lambda module, args, out: rows.append(out.shape[:-1].numel()))
    metric_under_ablation(model, TOKENS, [[(0, 1)], [(1, 0)]], metric=CASES[name][0])
    assert sum(rows) == 2 * 3 * read  # two sets of three sequences; the clean run, which nobody asked for, is not read
    rows.clear()
    metric_under_ablation(model, TOKENS, [[], [(0, 1)], [(1, 0)]], metric=CASES[name][0])
    assert sum(rows) == 3 * 3 * read


BAD = [
    (Loss(slice(7, 9)), r"slice\(7, 9, None\) picks none of the 7 loss positions"),
    (LogProb(1, positions=8), "the input has positions 0 to 7"),
    (LogProb(1, positions=(0, -9)), "the input has positions 0 to 7"),
    (LogProb(1, positions=()), "the input has positions 0 to 7"),
    (LogProb(RIGHT[:2]), "2 tokens for 3 sequences: give one, or one for each"),
    (LogitDifference(1, 2, positions=ENDS[:2]), "2 positions for 3 sequences: give one for each"),
    (LogitDifference(1, 11), "token 11 is outside the vocabulary: 0 to 10"),
]


@pytest.mark.parametrize(("metric", "message"), BAD, ids=range(len(BAD)))
def test_errors_name_what_is_wrong(model: Transformer, metric: Metric, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric_under_ablation(model, TOKENS, [[(0, 1)]], metric=metric)


@pytest.mark.parametrize("token", [11, -100])
def test_a_token_that_is_none_is_named_wherever_a_metric_is_read(model: Transformer, token: int) -> None:
    """-100, which PyTorch's cross-entropy ignores, once gave an effect of 0."""
    for asked in (
        lambda: metric_under_ablation(model, TOKENS, [[(0, 1)]], metric=LogProb(token)),
        lambda: attribution(model, TOKENS, metric=LogProb(token)),
        lambda: patch(model, TOKENS, TOKENS.flip(0), metric=LogProb(token)),
    ):
        with pytest.raises(ValueError, match=f"token {token} is outside the vocabulary: 0 to 10"):
            asked()
