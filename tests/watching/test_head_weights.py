"""Which rows of which weight are a head's, where attention is written by hand and neither q nor k is seen."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

import tracer
from tests.tiers import quick
from tracer.store import open_run

WIDTH, HEADS, SIZE, VOCABULARY = 24, 4, 6, 20
LAYOUTS = {
    "one after the other": "batch pos (qkv head d) -> qkv batch head pos d",
    "by head": "batch pos (head qkv d) -> qkv batch head pos d",
    "taken apart": "batch pos (qkv d head) -> qkv batch head pos d",
}


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(torch.ones(n, n).triu(1) > 0, -math.inf).softmax(-1) @ v


class Packed(nn.Module):
    """One map for q, k and v of all heads, in one of LAYOUTS."""

    def __init__(self, layout: str, turned: bool = False) -> None:
        super().__init__()
        self.layout, self.turned = layout, turned
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = rearrange(self.mixed(x), LAYOUTS[self.layout], qkv=3, head=HEADS)
        if self.turned:  # as rotary embeddings do: two features by an angle that grows with the position
            q, k = (y * torch.exp(0.3j * torch.arange(x.shape[1]))[:, None] for y in map(as_complex, (q, k)))
            q, k = (torch.view_as_real(y).flatten(-2) for y in (q, k))
        z = attended(q, k, v)
        apart = self.layout == "taken apart"
        return self.out(rearrange(z, f"batch head pos d -> batch pos ({'d head' if apart else 'head d'})"))

    def slices(self) -> list[Tensor]:
        """Each matrix's weight [head ...] by head."""
        rows = rearrange(self.mixed.weight, LAYOUTS[self.layout].split(" -> ")[0].replace("batch pos", "").strip()
                         + " x -> qkv head d x", qkv=3, head=HEADS)  # fmt: skip
        order = "x (d head) -> head d x" if self.layout == "taken apart" else "x (head d) -> head d x"
        return [*rows, rearrange(self.out.weight, order, head=HEADS)]


def as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())


class Apart(nn.Module):
    """A map each for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.queries, self.values, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        maps = (self.queries, self.keys, self.values)
        q, k, v = (rearrange(one(x), "batch pos (head d) -> batch head pos d", head=HEADS) for one in maps)
        return self.out(rearrange(attended(q, k, v), "batch head pos d -> batch pos (head d)"))

    def slices(self) -> list[Tensor]:
        maps = (self.queries, self.keys, self.values)
        rows = [one.weight.unflatten(0, (HEADS, SIZE)) for one in maps]
        return [*rows, rearrange(self.out.weight, "x (head d) -> head d x", head=HEADS)]


class Head(nn.Module):
    """One head as a module of its own, as tutorials write it."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(WIDTH, SIZE, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return attended(self.query(x), self.key(x), self.value(x))


class OneByOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.proj = nn.ModuleList(Head() for _ in range(HEADS)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], -1))

    def slices(self) -> list[Tensor]:
        rows = [torch.stack([getattr(head, name).weight for head in self.heads]) for name in ("query", "key", "value")]
        return [*rows, rearrange(self.proj.weight, "x (head d) -> head d x", head=HEADS)]


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), attention
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self, *attentions: nn.Module) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(map(Block, attentions))
        self.unembed = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


def recorded(*attentions: Any) -> list[list[Tensor]]:
    """Norms of the last gradient by matrix and head, of each attention, after a run of three updates."""
    torch.manual_seed(1)
    model = Model(*attentions)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with tracer.watch(model, run="r", every=1) as recorder:
        for _ in range(3):
            ids = torch.randint(0, VOCABULARY, (4, 40))
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    assert recorder.off is None
    with torch.no_grad():
        return [[x.flatten(1).norm(dim=1) for x in one.slices()] for one in attentions]


@pytest.mark.parametrize("kind", quick([*LAYOUTS, "a map each", "a module each"], ("by head", "a module each")))
def test_weights_of_heads_that_are_written_by_hand(kind: str, here: object) -> None:
    torch.manual_seed(0)
    made = {"a map each": Apart, "a module each": OneByOne}
    attentions = [made[kind]() if kind in made else Packed(kind) for _ in range(2)]
    expected = recorded(*attentions)
    norms = torch.from_numpy(open_run("r").trace["head_weight_norm"].values[-1])
    for layer in range(2):
        torch.testing.assert_close(norms[layer].T, torch.stack(expected[layer]), rtol=1e-5, atol=0)


def test_a_dead_head_written_by_hand_is_found(here: object) -> None:
    torch.manual_seed(0)
    attentions: list[Any] = [Packed("by head"), Apart()]
    for x in (attentions[1].values.weight, attentions[1].values.bias):
        x.data[SIZE : 2 * SIZE] = 0
        x.register_hook(lambda grad: grad.index_fill(0, torch.arange(SIZE, 2 * SIZE), 0))
    recorded(*attentions)
    run = open_run("r")
    assert torch.from_numpy(run.trace["head_weight_norm"].values).isfinite().all()
    assert [one.heads for one in tracer.diagnose(run) if one.kind == "dead"] == [((1, 1),)]
