"""What looks like attention and is none, and masks in other people's words."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from tracer.hooks.refusals import CannotWatch

T, HEADS, D = 9, 2, 8
X = torch.randn(2, T, HEADS * D, generator=torch.Generator().manual_seed(0))


def split(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], HEADS, D).transpose(1, 2)


def join(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Attention by a function of its scores' way to the values, then a mixture of streams at every position."""

    def __init__(self, attend: Callable[[Tensor], Tensor], mixes: bool = False, fused: bool = False) -> None:
        super().__init__()
        self.attend, self.mixes, self.fused = attend, mixes, fused

    def forward(self, x: Tensor) -> Tensor:
        out = join(self.attend(split(x)))
        if not self.mixes:
            return x + out
        streams = torch.stack([x, out, x + out, x - out], 2)  # [batch pos stream d_model]
        if self.fused:
            return F.scaled_dot_product_attention(streams, streams, streams).sum(2)
        return (torch.softmax(streams @ streams.mT, -1) @ streams).sum(2)


def scores(x: Tensor) -> Tensor:
    return (x @ x.mT / D**0.5).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)


def plain(x: Tensor) -> Tensor:
    return scores(x).softmax(-1) @ x


def talking(x: Tensor) -> Tensor:
    """Heads are mixed behind the softmax (Shazeer et al. 2020), so that none has a pattern of its own."""
    return torch.einsum("bhqk,hg->bgqk", scores(x).softmax(-1), torch.ones(HEADS, HEADS) / HEADS) @ x


@pytest.mark.parametrize("fused", [False, True])
def test_positions_are_no_heads(fused: bool) -> None:
    """A softmax over streams, at each position by itself, is not one more layer of nine heads."""
    model = nn.Sequential(Block(plain, mixes=True, fused=fused), Block(plain))
    with torch.no_grad():
        before = model(X)
        with tracer.watch(model) as watcher:
            assert (model(X) - before).abs().max() < 1e-5
    assert [(one.name, one.n_heads) for one in watcher.layers] == [("0", HEADS), ("1", HEADS)]
    torch.testing.assert_close(watcher.pattern(0, 1), scores(split(X)).softmax(-1)[0, 1])


def test_layers_that_would_be_missing_are_told() -> None:
    model = nn.Sequential(Block(plain), Block(talking))
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(X)
    with pytest.raises(CannotWatch, match="1: its softmax is changed .* unlike that of 0"):
        watcher.read()


def test_rows_that_were_emptied_see_no_key() -> None:
    hidden = torch.arange(T) < 3

    def attend(x: Tensor) -> Tensor:
        return scores(x).softmax(-1).masked_fill(hidden[:, None], 0.0) @ x

    model = nn.Sequential(Block(attend))
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(X)
    rows = torch.special.entr(scores(split(X)).softmax(-1)).sum(-1)[:, :, 3:].mean((0, 2))
    torch.testing.assert_close(torch.from_numpy(watcher.read()["entropy"].values[0]), rows)


@pytest.mark.parametrize("hides", [-1e4, -1e9, -1e20, torch.finfo(torch.float32).min, -math.inf])
@pytest.mark.parametrize("fused", [False, True])
def test_a_mask_is_a_mask_whatever_number_hides(hides: float, fused: bool) -> None:
    mask = torch.full((T, T), hides).triu(1)

    def attend(x: Tensor) -> Tensor:
        if fused:
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return (x @ x.mT / D**0.5 + mask).softmax(-1) @ x

    model, same = nn.Sequential(Block(attend)), nn.Sequential(Block(plain))
    with torch.no_grad(), tracer.watch(model) as watcher, tracer.watch(same) as expected:
        model(X)
        same(X)
    assert watcher.layers[0].causal
    found, want = watcher.read(), expected.read()
    for name in ("entropy", "entropy_normalised", "max_logit", "first_token"):
        torch.testing.assert_close(torch.from_numpy(found[name].values), torch.from_numpy(want[name].values))
    seen = torch.arange(1, T + 1)
    rows = torch.special.entr(scores(split(X)).softmax(-1)).sum(-1)[:, :, 1:] / seen[1:].log()
    torch.testing.assert_close(torch.from_numpy(found["entropy_normalised"].values[0]), rows.mean((0, 2)))


class Positions(nn.Module):
    """Positions come first, spread over the batch as the tokens are."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.places, self.inner = nn.Embedding(32, 24), inner

    def forward(self, given: Any) -> Tensor:
        idx = (given["batch"][0] if isinstance(given, dict) else given).long()
        self.places(torch.arange(idx.shape[1]).expand_as(idx))
        return self.inner(idx)[0]


def test_positions_that_are_looked_up_first_are_no_tokens(gpt: Callable[..., Any]) -> None:
    inner = gpt().eval()
    ids = torch.randint(2, 8, (3, 9), generator=torch.Generator().manual_seed(0))
    found = []
    for given in (None, ids, {"batch": [ids]}, ids.int()):
        model = inner if given is None else Positions(inner)
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(ids if given is None else given)
        assert watcher.tokens is not None and torch.equal(watcher.tokens, ids) and watcher.d_vocab == 20
        found.append(watcher.read())
    for one in found[1:]:
        assert float(abs(found[0]["duplicate_token"] - one["duplicate_token"]).max()) < 1e-6


class Parts(nn.Module):
    """Looks up ids that it makes of what it is given, then, as it is given, in which part of a text they are."""

    def __init__(self, inner: nn.Module, make: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.make, self.words, self.parts, self.inner = make, nn.Embedding(20, 24), nn.Embedding(3, 24), inner

    def forward(self, idx: Tensor, parts: Tensor) -> Tensor:
        ids = self.make(idx)
        self.words(ids)
        self.parts(parts)
        return self.inner(ids)[0]


@pytest.mark.parametrize(
    ("make", "n"), [(torch.clone, 9), (lambda ids: ids + 1, 1)], ids=["a copy that counts up", "one position"]
)
def test_tokens_that_look_like_positions_are_tokens(
    gpt: Callable[..., Any], make: Callable[[Tensor], Tensor], n: int
) -> None:
    model, ids = Parts(gpt().eval(), make), torch.arange(n).expand(3, n)
    with torch.no_grad(), tracer.watch(model) as watcher:
        model(ids, torch.zeros_like(ids))
    assert watcher.tokens is not None and torch.equal(watcher.tokens, make(ids)) and watcher.d_vocab == 20
