"""What a user's measure of rows is given: the pattern, scores, vectors and places, tile by tile, against float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from tracer.heads import HeadStats, pattern, stats
from tracer.heads.averages import own_means
from tracer.heads.call import AttentionCall
from tracer.heads.definitions import scores
from tracer.heads.row_block import RowBlock

SCALE = 0.4


@dataclass
class Asked:
    """Measures that read everything there is."""

    names: tuple[str, ...] = ("mass", "score", "length", "product", "far", "same", "sequence")
    blocks: list[RowBlock] = field(default_factory=list)

    def __call__(self, rows: RowBlock) -> dict[str, Tensor]:
        self.blocks.append(rows)
        position = torch.tensor(rows.positions).to(rows.pattern)
        keys = torch.arange(rows.pattern.shape[-1])
        groups = rows.q.shape[2] // rows.k.shape[2]
        k = rows.k.repeat_interleave(groups, 2)
        assert rows.tokens is not None
        asked = rows.tokens[:, rows.start : rows.start + len(position)]
        return {
            "mass": rows.pattern.sum(-1),
            "score": rows.scores.amax(-1),
            "length": rows.z.norm(dim=-1).transpose(1, 2),
            "product": torch.einsum("bqhd,bkhd->bhqk", rows.q, k).sum(-1),
            "far": (rows.pattern * (position[:, None] - keys)).sum(-1),
            "same": (rows.pattern * (asked[:, :, None] == rows.tokens[:, None, : len(keys)]).unsqueeze(1)).sum(-1),
            "sequence": torch.arange(rows.sequence, rows.sequence + len(rows.lse))[:, None, None].expand(
                rows.lse.shape
            ),
        }


def inputs(batch: int = 3, pos: int = 33, heads: int = 4, kv: int = 2) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dice = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(batch, pos, n, 5, generator=dice) for n in (heads, kv, kv))
    return q, k, v, torch.randint(0, 6, (batch, pos), generator=dice)


def by_hand(q: Tensor, k: Tensor, v: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    q, k, v = q.double(), k.double(), v.double()
    p = pattern(q, k, scale=SCALE)
    n = q.shape[1]
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    at = torch.arange(n)
    causal = at[:, None] >= at
    return {
        "mass": torch.ones_like(p[..., 0]),
        "score": scores(q, k, scale=SCALE, causal=True).amax(-1),
        "length": torch.einsum("bhqk,bkhd->bhqd", p, v).norm(dim=-1),
        "product": (torch.einsum("bqhd,bkhd->bhqk", q, k) * causal).sum(-1),
        "far": (p * (at[:, None] - at)).sum(-1),
        "same": (p * (tokens[:, :, None] == tokens[:, None]).unsqueeze(1)).sum(-1),
        "sequence": torch.arange(len(q))[:, None, None].expand(p.shape[:3]).double(),
    }


@pytest.mark.parametrize("block_scores", [64, 400, 10**6])
def test_a_tile_says_what_the_whole_pattern_says(block_scores: int) -> None:
    """Of `product` the keys after a tile's last row are left out, so it is compared where a tile is one row."""
    q, k, v, tokens = inputs()
    asked = Asked()
    found = stats(q, k, tokens, scale=SCALE, own=asked, own_v=v, block_scores=block_scores)
    expected = by_hand(q, k, v, tokens)
    assert (len(asked.blocks) == 1) == (block_scores == 10**6)
    rows_alone = all(len(block.positions) == 1 for block in asked.blocks)
    for name in asked.names:
        if name != "product" or rows_alone:
            torch.testing.assert_close(found[name].double(), expected[name], atol=1e-5, rtol=1e-5)
    plain = stats(q, k, tokens, scale=SCALE, block_scores=block_scores)
    assert all(torch.equal(found[name].nan_to_num(7), plain[name].nan_to_num(7)) for name in plain.rows)


def test_one_row_at_a_time_sees_the_keys_up_to_itself() -> None:
    q, k, v, tokens = inputs(batch=1, pos=7)
    asked = Asked()
    found = stats(q, k, tokens, scale=SCALE, own=asked, own_v=v, block_scores=1)
    torch.testing.assert_close(found["product"].double(), by_hand(q, k, v, tokens)["product"], atol=1e-5, rtol=1e-5)
    assert {(block.start, block.pattern.shape[-1]) for block in asked.blocks} == {(n, n + 1) for n in range(7)}


@dataclass
class Mass:
    """And what a careless function does: it writes into what it was given."""

    names: tuple[str, ...] = ("mass", "length")

    def __call__(self, rows: RowBlock) -> dict[str, Tensor]:
        found = {"mass": rows.pattern.sum(-1), "length": rows.z.norm(dim=-1).transpose(1, 2)}
        rows.pattern.zero_()
        rows.v.zero_()
        return found


def of_call(call: AttentionCall) -> HeadStats:
    return call.stats(own=Mass())


def test_a_model_that_makes_its_weights_is_read_the_same_and_left_as_it_is() -> None:
    q, k, v, _ = inputs(kv=4)
    whole = AttentionCall(0, v=v, q=q, k=k, scale=SCALE)
    weights = pattern(q, k, scale=SCALE)
    kept = weights.clone(), v.clone()
    one, other = of_call(whole), of_call(AttentionCall(0, v=v, weights=weights))
    for name in ("mass", "length"):
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-5)
    assert torch.equal(weights, kept[0]) and torch.equal(v, kept[1])


def test_a_sink_is_no_position() -> None:
    """A sink takes exp(s) / (Z + exp(s)) of each row: the mass on the positions is what is left."""
    q, k, v, _ = inputs(batch=1, pos=6, heads=1, kv=1)
    sink = torch.zeros(1, 1, 1, 5)
    call = AttentionCall(0, v=torch.cat([v, sink], 1), q=q, k=torch.cat([k, sink], 1), scale=SCALE, extra=("sink",))
    total = scores(q.double(), k.double(), scale=SCALE, causal=True).exp().sum(-1)
    torch.testing.assert_close(of_call(call)["mass"].double(), total / (total + 1), atol=1e-6, rtol=1e-6)


def test_vectors_that_are_not_known_are_refused_by_name() -> None:
    rows = RowBlock(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1), 0, 0, True, None, {})
    with pytest.raises(ValueError, match="q is not known here: the model makes its attention weights itself"):
        _ = rows.q


def test_means_leave_nan_out_and_have_the_error_of_their_sequences() -> None:
    q, k, v, tokens = inputs()
    found = stats(q, k, tokens, scale=SCALE, own=Asked(), own_v=v)
    means = own_means(found, ["sequence"], slice(1, None))
    assert set(means) == {"sequence", "sequence_se"}
    assert means["sequence"].tolist() == [1.0] * 4  # of 0, 1, 2
    torch.testing.assert_close(means["sequence_se"], torch.full((4,), (1 / 3) ** 0.5))
