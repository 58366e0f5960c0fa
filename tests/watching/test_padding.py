"""Padding changes no measure: a padded batch reads as the mean of its sequences, each by itself."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

import tracer
from tracer.heads import pattern
from tracer.heads.call import AttentionCall
from tracer.watching.padding import without_padding
from tracer.watching.watcher import MEASURED

LENGTHS = (9, 6, 4)
IDS = torch.randint(2, 50, (3, 9), generator=torch.Generator().manual_seed(1))
SEQUENCES = [row[:n] for row, n in zip(IDS, LENGTHS, strict=True)]
CASES = [
    (name, kernel, side)
    for name in ("gpt2", "llama", "mistral", "gemma2", "falcon", "bert")
    for kernel in ("sdpa", "eager")
    for side in ("left", "right")
    if (name, kernel) != ("gemma2", "sdpa") and (name, side) != ("bert", "left")
]


def padded(side: str) -> dict[str, Tensor]:
    ids, mask = torch.zeros(2, 3, 9, dtype=torch.long)
    for row, sequence in enumerate(SEQUENCES):
        where = slice(9 - len(sequence), None) if side == "left" else slice(len(sequence))
        ids[row, where], mask[row, where] = sequence, 1
    position = (mask.cumsum(1) - 1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": position}


def read(model: Any, **given: Tensor) -> dict[str, np.ndarray]:
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(**given)
    found = watcher.read()
    return {name: found[name].values for name in MEASURED}


@pytest.mark.parametrize(("name", "kernel", "side"), CASES)
def test_measures_are_those_without_padding(build: Callable[..., Any], name: str, kernel: str, side: str) -> None:
    model = build(name, kernel)
    got, alone = read(model, **padded(side)), [read(model, input_ids=sequence[None]) for sequence in SEQUENCES]
    rows = np.array([len(sequence) - 1 for sequence in SEQUENCES])
    for measure, values in got.items():
        if measure.startswith("fixed_distance"):
            continue  # how far is looked depends on the length of a row: checked below
        each = np.stack([one[measure] for one in alone])
        want = each.max(0) if measure == "max_logit" else np.average(each, axis=0, weights=rows)
        if measure == "entropy_normalised" and name in ("mistral", "gemma2"):
            want = values  # rows of a window of one key have none, and so do not count: checked below
        np.testing.assert_allclose(values, want, atol=1e-5, err_msg=measure)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "bert"])
def test_both_kernels_tell_the_same(build: Callable[..., Any], name: str) -> None:
    """Which keys a mask hid, and how large scores are, is read from the scores where a model makes its own pattern."""
    side = "right" if name == "bert" else "left"
    fused, by_hand = (read(build(name, kernel), **padded(side)) for kernel in ("sdpa", "eager"))
    for measure in MEASURED:
        np.testing.assert_allclose(fused[measure], by_hand[measure], atol=1e-5, err_msg=measure)
        assert np.isfinite(fused[measure]).all(), measure


@pytest.mark.parametrize("side", ["left", "right"])
def test_tokens_back_are_those_without_padding(side: str) -> None:
    """The first real token is no key of them, wherever it stands, and a row of padding has none."""
    generator, lengths = torch.Generator().manual_seed(0), (9, 6, 3)
    q, k = torch.randn(2, 3, 9, 2, 4, generator=generator)
    real = torch.stack([torch.arange(9) >= 9 - n if side == "left" else torch.arange(9) < n for n in lengths])
    call = AttentionCall(0, k, q, k, 0.5, True, real[:, None, None])
    back = without_padding(call.stats(None), call, real, True).back
    for i, n in enumerate(lengths):
        here = slice(9 - n, None) if side == "left" else slice(n)
        alone = pattern(q[i : i + 1, here].double(), k[i : i + 1, here].double(), scale=0.5)
        for d in range(2, 5):
            want = torch.full((2, 9), torch.nan).double()
            want[:, here][:, d + 1 :] = alone[0].diagonal(-d, -2, -1)[:, 1:]
            torch.testing.assert_close(back[i, :, d - 2].double(), want, atol=1e-6, rtol=0, equal_nan=True)


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_falcon_with_alibi_and_padding_on_the_left(build: Callable[..., Any], kernel: str) -> None:
    """Its mask adds the lowest number to every key of a row of padding, which then attends to all of them evenly.

    Against softmax(q k / sqrt(d) + slope * position) in float64, of q and k as its layers make them; by hand the model
    adds its position twice, the second time with its mask (transformers 5.23).
    """
    model, batch, slopes = build("falcon", kernel), padded("left"), torch.tensor([2.0 ** -(2 * n) for n in range(1, 5)])
    with torch.no_grad(), tracer.watch(model, keep=3) as watcher:
        plain = model(**batch).logits
    mask, position = batch["attention_mask"].bool(), batch["position_ids"].double()
    seen = (mask[:, None, None] & mask[:, None, :, None]).tril()
    rows: dict[int, Tensor] = {}
    for layer, block in enumerate(model.transformer.h):
        block.self_attention.query_key_value.register_forward_hook(
            lambda _module, _args, out, layer=layer: rows.__setitem__(layer, out.double())
        )
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, plain)
    for layer, fused in rows.items():
        q, k, _ = fused.unflatten(-1, (4, 3, 6)).unbind(-2)
        bias = slopes[:, None, None] * position[:, None, None] / 6**0.5
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 6**0.5 + bias * (2 if kernel == "eager" else 1)
        pattern = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        for i, n in enumerate(LENGTHS):
            for head in range(4):
                got = watcher.pattern(layer, head, sequence=i)[-n:]
                assert (got - pattern[i, head, -n:]).abs().max() < 1e-6
        entropy = torch.special.entr(pattern).sum(-1)
        each = torch.cat([entropy[i, :, -n:][:, 1:] for i, n in enumerate(LENGTHS)], 1)
        np.testing.assert_allclose(watcher.read()["entropy"].values[layer], each.mean(1), atol=2e-6)


@pytest.mark.parametrize("hides", [True, -torch.inf])
@pytest.mark.parametrize("batch_first", [True, False])
def test_padding_of_torch_layers_in_both_its_forms(hides: Any, batch_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(3, 9, 16)
    pad = padded("right")["attention_mask"] == 0
    mask = pad if hides is True else torch.zeros(3, 9).masked_fill(pad, hides)

    def measured(x: Tensor, mask: Tensor | None) -> np.ndarray:
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(x if batch_first else x.transpose(0, 1), src_key_padding_mask=mask)
        return watcher.read()["entropy_normalised"].values

    each = [measured(row[None, :n], None) for row, n in zip(x, LENGTHS, strict=True)]
    want = np.average(np.stack(each), axis=0, weights=[n - 1 for n in LENGTHS])
    np.testing.assert_allclose(measured(x, mask), want, atol=1e-5)


def test_the_largest_score_of_nothing_and_of_what_broke() -> None:
    """One sequence of padding alone, one whose scores are not finite, one as it should be."""
    q = torch.ones(3, 4, 1, 2)
    q[1, 2] = torch.nan
    call = AttentionCall(0, q, q, torch.ones(3, 4, 1, 2), 1.0, True)
    real = torch.tensor([[False] * 4, [True] * 4, [True] * 3 + [False]])
    found = without_padding(call.stats(None), call, real, True).max_logit[:, 0]
    torch.testing.assert_close(found, torch.tensor([-torch.inf, torch.nan, 2.0]), equal_nan=True)


def nan_to_num(weights: Tensor, seen: Tensor) -> Tensor:
    return weights.nan_to_num(0.0)


def emptied(weights: Tensor, seen: Tensor) -> Tensor:
    return weights.masked_fill(~seen, 0.0)


def renormalised(weights: Tensor, seen: Tensor) -> Tensor:
    weights = weights * seen
    return weights / weights.sum(-1, keepdim=True)


class MaskedAfter(nn.Module):
    """Attention by hand to the keys that are no padding, with something done to the softmax."""

    def __init__(self, after: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.embed, self.qkv = nn.Embedding(50, 16), nn.Linear(16, 48)
        self.after = after

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        q, k, v = (x.unflatten(-1, (4, 4)).transpose(1, 2) for x in self.qkv(self.embed(ids)).split(16, -1))
        seen = attention_mask.bool()[:, None, None].expand(-1, 1, ids.shape[1], -1)
        scores = q @ k.mT / 2
        if self.after is not renormalised:
            scores = scores.masked_fill(~seen, float("-inf"))
        self.pattern = scores.double().masked_fill(~seen, float("-inf")).softmax(-1)
        return self.after(scores.softmax(-1), seen) @ v


@pytest.mark.parametrize("after", [nan_to_num, emptied, renormalised])
def test_normalised_entropy_counts_the_keys_that_can_be_seen(after: Callable[..., Tensor]) -> None:
    """H / ln n of every row by hand, n the keys that are no padding, also where the mask comes after the softmax."""
    model, ids = MaskedAfter(after), torch.randint(0, 50, (3, 10), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1] * 6 + [0] * 4, [1] * 3 + [0] * 7, [1] * 10])
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(ids, mask)
    entropy = torch.special.entr(model.pattern).sum(-1)
    share = entropy / rearrange(mask.sum(1).double().log(), "batch -> batch 1 1")
    rows = rearrange(mask * (torch.arange(10) > 0), "batch pos -> batch 1 pos")
    expected = (share * rows).sum((0, 2)) / rows.sum()
    assert np.abs(watcher.read()["entropy_normalised"].values[0] - expected.detach().numpy()).max() < 1e-6
