"""Metrics against the full logits, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tracer.ablate import (
    BUDGET,
    LogitDifference,
    LogProb,
    Loss,
    Metric,
    OwnMetric,
    attribution,
    effect,
    freeze,
    integrated_gradients,
    kl,
    metric_under_ablation,
    patch,
    plan,
    sweep,
)
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


def cost(logits: Tensor, targets: Tensor, clean: Tensor) -> Tensor:
    """The loss, as somebody would write it, at one number a sequence."""
    return -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0].mean(-1)


def moved(logits: Tensor, targets: Tensor, clean: Tensor) -> Tensor:
    """Squared distance to the clean logits."""
    return (logits - clean).pow(2).sum((1, 2))


SETS = [[], [(0, 1)], [(1, 0)], [(0, 1), (1, 1)]]
OWN = {"a function": cost, "by name": "tests.ablate.test_metrics:cost", "with its positions": OwnMetric(cost)}


@pytest.mark.parametrize("metric", OWN.values(), ids=list(OWN))
@pytest.mark.parametrize("edited", [False, True], ids=["together", "one by one"])
def test_a_metric_of_ones_own(model: Transformer, metric: Any, edited: bool) -> None:
    with applied(plan([(0, 0)], "zero") if edited else []):
        found = metric_under_ablation(model, TOKENS, SETS, "resample", metric=metric)
        expected = metric_under_ablation(model, TOKENS, SETS, "resample")
        torch.testing.assert_close(found, expected.mean(2, keepdim=True), atol=1e-12, rtol=0)


@pytest.mark.parametrize("budget", [BUDGET, 200_000], ids=["whole", "in pieces"])
@pytest.mark.parametrize("frozen", [False, True])
def test_it_sees_the_clean_logits_of_the_same_rows(model: Transformer, budget: int, frozen: bool) -> None:
    """Whatever is off, however the work is split: the clean run is beside itself, each row beside its own."""
    where = slice(2, 5)
    off = metric_under_ablation(
        model, TOKENS, [[], [(0, 1)]], metric=OwnMetric(moved, where), frozen=frozen, budget=budget
    )
    before = model(TOKENS)
    with applied([*plan([(0, 1)], "zero"), *(freeze(model, TOKENS) if frozen else [])]):
        expected = (model(TOKENS) - before)[:, where].pow(2).sum((1, 2))
    torch.testing.assert_close(off[:, :, 0], torch.stack([torch.zeros(3).double(), expected]), atol=1e-12, rtol=0)
    assert expected.min() > 1e-3


def test_kl_to_the_clean_model_in_every_question(model: Transformer) -> None:
    before = model(TOKENS)[:, :-1].log_softmax(-1)
    with applied(plan([(1, 0)], "zero")):
        after = model(TOKENS)[:, :-1].log_softmax(-1)
    expected = (before.exp() * (before - after)).sum(-1).mean()
    assert float(effect(model, TOKENS, [(1, 0)], metric="kl").mean) == pytest.approx(float(expected), rel=1e-9)
    assert float(sweep(model, TOKENS, metric="kl").sel(layer=1, head=0)) == pytest.approx(float(expected), rel=1e-9)
    found = integrated_gradients(model, TOKENS, metric="kl", steps=32, verify=4)
    assert float(found["exact"][1, 0]) == pytest.approx(float(expected), rel=1e-9)
    layer = metric_under_ablation(model, TOKENS, [[(1, 0), (1, 1)]], metric="kl").mean()
    assert float(found["estimate"][1].sum()) == pytest.approx(float(layer), rel=0.01), "heads sum to the whole layer"
    same = patch(model, TOKENS, TOKENS, "z", OwnMetric(kl))
    assert float(abs(same).max()) < 1e-12, "nothing of one prompt changes another run of it"
    with pytest.raises(ValueError, match="where its gradient is 0"):
        attribution(model, TOKENS, metric="kl")


SAYS: list[tuple[Any, str]] = [
    (lambda logits, targets, clean: logits.mean((0, 1, 2)), r"<lambda> returned shape \[\] .* one number a sequence"),
    (lambda logits, targets, clean: 0.5, r"<lambda> returned a float .* a tensor \[3\]"),
    (lambda logits, targets, clean: logits.mean((1, 2)) * float("nan"), "<lambda> returned nan for 3 of 3 sequences"),
    ("los", "metric='los' is none: there are loss, kl, or write module:name"),
    ("tests.ablate.test_metrics:nothing", "has no nothing"),
    (Loss, "is none: give a name"),
]


@pytest.mark.parametrize(("metric", "message"), SAYS, ids=range(len(SAYS)))
def test_what_is_no_metric_is_refused_by_name(model: Transformer, metric: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metric_under_ablation(model, TOKENS, [[(0, 1)]], metric=metric)


def test_of_a_kl_no_change_is_no_hypothesis() -> None:
    """It is above 0 wherever anything changes: a test of 0 would reject for every head."""
    from tests.small import TOKENS as rows
    from tests.small import build
    from tracer.ablate import sweep

    found = sweep(build(), rows, metric="kl", interval=True)
    assert found.p_holm.isnull().all() and "not tested" in found.p_holm.attrs["note"]
    assert sweep(build(), rows, interval=True).p_holm.notnull().all()
