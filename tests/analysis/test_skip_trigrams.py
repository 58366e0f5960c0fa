"""Skip-trigrams: streamed equals the dense cube in float64, shares by hand, and a one-layer model says what is read."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tracer.analysis import skip_trigrams, token_circuits
from tracer.analysis.skip_trigrams import share, sources, strongest
from tracer.config import ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer

N = 17


def halves(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    who, left = (torch.randn(N, 4, generator=generator).double() for _ in range(2))
    whom, right = (torch.randn(4, N, generator=generator).double() for _ in range(2))
    return who, whom, left, right


def cube(who: Tensor, whom: Tensor, left: Tensor, right: Tensor, place: float) -> Tensor:
    """share x OV of every A, B, C, written out [A B C]."""
    scores, ov = who @ whom, left @ right
    found = torch.empty(N, N, N, dtype=torch.float64)
    for a in range(N):
        for b in range(N):
            weight = scores[b, a].exp() / scores[b].exp().mean()
            part = place * weight / (place * weight + 1 - place)
            found[a, b] = part * (ov[a] - ov[a].mean())
    return found


@pytest.mark.parametrize("block", [1, 40, 2**22])
@pytest.mark.parametrize("place", [1 / 64, 0.5, 0.97])
@pytest.mark.parametrize("seed", [0, 1])
def test_streamed_is_the_dense_cube(seed: int, place: float, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_circuits, "BLOCK", block)
    given = halves(seed)
    found, dense = strongest(sources(*given), place, 5), cube(*given, place)
    values, at = dense.amax((1, 2)).topk(5)
    torch.testing.assert_close(found.values, values)
    assert found.sources.tolist() == at.tolist()
    for i, a in enumerate(at.tolist()):
        b, c = divmod(int(dense[a].argmax()), N)
        assert (int(found.looks[i, 0]), int(found.raises[i, 0])) == (b, c)
        assert found.looks[i].tolist() == dense[a, :, c].topk(3).indices.tolist()  # by B, for the best C
        assert found.raises[i].tolist() == dense[a, b].topk(3).indices.tolist()
        torch.testing.assert_close(found.shares[i, 0] * found.logits[i], dense[a, b].topk(3).values)


@pytest.mark.parametrize(
    ("lift", "place", "wanted"),
    [
        (0.0, 0.25, 0.25),  # as the average token: the place's own share
        (math.log(3), 0.25, 0.5),  # 3 times as much: 3 against 3
        (math.log(9), 0.5, 0.9),
        (-math.log(9), 0.5, 0.1),
    ],
)
def test_shares_by_hand(lift: float, place: float, wanted: float) -> None:
    assert float(share(torch.tensor(lift), place)) == pytest.approx(wanted)


def test_a_head_without_a_preference_gives_every_token_its_place() -> None:
    who, whom, left, right = halves(2)
    found = sources(torch.zeros_like(who), whom, left, right)
    torch.testing.assert_close(found.lifts, torch.zeros_like(found.lifts))
    ov = left @ right
    torch.testing.assert_close(found.logits[:, 0], (ov - ov.mean(1, keepdim=True)).amax(1))


def test_a_trigram_made_by_hand() -> None:
    """Token 2 looks at token 0 alone, at e^5 times the others; token 0 raises token 3 by 4: [0] ... [2] -> [3]."""
    who, whom, left, right = (torch.zeros(4, 4) for _ in range(4))
    who[2, 0], whom[0, 0] = 1.0, 5.0
    left[0, 1], right[1, 3] = 1.0, 4.0
    found = strongest(sources(who, whom, left, right), 0.5, 1)
    assert (int(found.sources[0]), int(found.looks[0, 0]), int(found.raises[0, 0])) == (0, 2, 3)
    weight = math.exp(5) / ((math.exp(5) + 3) / 4)
    assert float(found.values[0]) == pytest.approx(weight / (weight + 1) * (4 - 1))


def test_a_one_layer_model_says_what_is_read() -> None:
    """No norm, no positions, and a context of every token once: what a head adds is read off its attention and OV.

    There the other keys' mean is known, (n e^mean - e^s) / (n - 1), so the share of the reading is the pattern's after
    that correction; and OV is exact.
    """
    torch.manual_seed(3)
    config = ModelConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=N, d_vocab=N, norm="none", positions="none")
    model = Transformer(config).double()
    tokens = torch.randperm(N)[None]
    with torch.no_grad(), recording("hook_pattern", "hook_z") as seen:
        model(tokens)
        attn, W_E = model.blocks[0].attn, model.embed.W_E
        assert attn.W_O is not None
        for head in range(2):
            who, whom = token_circuits.qk(W_E, attn.W_Q[head], attn.W_K[head])
            left, right = token_circuits.ov(W_E, attn.W_V[head], attn.W_O[head], model.W_U)
            found = sources(who, whom * config.scale, left, right, few=N)
            b = int(tokens[0, -1])  # the row that sees all
            row = seen["blocks.0.attn.hook_pattern"][0, head, -1]
            lift = torch.empty(N, dtype=torch.float64)
            for a in range(N):
                lift[a] = found.lifts[a, found.looks[a] == b][0]
            torch.testing.assert_close(lift[tokens[0]].exp() / N, row)
            added = seen["blocks.0.attn.hook_z"][0, -1, head] @ attn.W_O[head] @ model.W_U
            read = torch.zeros(N, dtype=torch.float64)
            for a, part in zip(tokens[0].tolist(), row, strict=True):
                read[found.raises[a]] += part * found.logits[a]
            torch.testing.assert_close(read, added - added.mean())


def test_memory_is_not_the_square_of_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor larger than a block and the tables of the sources is ever made."""
    monkeypatch.setattr(token_circuits, "BLOCK", 2**12)
    n, largest = 512, 0
    made = Tensor.__matmul__

    def watched(a: Tensor, b: Tensor) -> Tensor:
        nonlocal largest
        found = made(a, b)
        largest = max(largest, found.numel())
        return found

    monkeypatch.setattr(Tensor, "__matmul__", watched)
    skip_trigrams.sources(torch.randn(n, 4), torch.randn(4, n), torch.randn(n, 4), torch.randn(4, n))
    assert 0 < largest <= 2**12
