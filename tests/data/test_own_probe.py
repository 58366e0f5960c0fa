"""A user's probe: which weights its scores are means of, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tracer.data.own_probe import OwnRecord, Probe, given_probes, on_targets
from tracer.heads import pattern, stats
from tracer.heads.averages import own_means
from tracer.heads.own_measures import measure
from tracer.heads.row_block import RowBlock
from tracer.measures import Setting

TOKENS = torch.arange(24).view(2, 12)
PAIRS = [(0, 5, 2), (0, 5, 3), (0, 9, 9), (1, 11, 0), (1, 3, 1)]


@pytest.mark.parametrize("block_scores", [16, 10**6])
def test_a_score_is_the_weight_on_the_keys_that_are_named(block_scores: int) -> None:
    dice = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, 12, 3, 4, generator=dice) for _ in range(2))
    own = OwnRecord.given((), {"ioi": Probe(TOKENS, {"name mover": PAIRS})}, print)
    asked = own.measures.on("ioi")
    assert asked is not None and asked.names == ("ioi_name_mover",)
    found = own_means(stats(q, k, scale=0.5, own=asked, block_scores=block_scores), asked.names, slice(None))
    p = pattern(q.double(), k.double(), scale=0.5)
    rows = [p[0, :, 5, 2] + p[0, :, 5, 3], p[0, :, 9, 9], p[1, :, 11, 0], p[1, :, 3, 1]]
    torch.testing.assert_close(found["ioi_name_mover"].double(), torch.stack(rows).mean(0), atol=1e-6, rtol=1e-5)


def test_a_key_that_no_row_of_the_block_sees_weighs_nothing() -> None:
    rows = RowBlock(torch.ones(1, 2, 1, 3), torch.zeros(1, 2, 1), 2, 4, True, None, {})
    assert on_targets(torch.tensor([[4, 2, 7]]), rows).flatten().tolist() == [0, 0]
    assert on_targets(torch.tensor([[0, 2, 1], [4, 5, 1]]), rows).isnan().all()  # other sequences, other rows


def test_one_pair_a_sequence_is_counted_in_order() -> None:
    short, long = Probe(TOKENS, {"x": [(5, 2), (7, 1)]}), Probe(TOKENS, {"x": [(0, 5, 2), (1, 7, 1)]})
    assert torch.equal(short.targets["x"], long.targets["x"]) and short.digest == long.digest
    assert Probe(TOKENS, {"x": [(5, 2), (7, 2)]}).digest != short.digest != Probe(TOKENS + 1, long.targets).digest


def test_chance_is_that_of_uniform_attention() -> None:
    (score,) = Probe(TOKENS, {"x": [(3, 2), (1, 1)]}).scores("p")
    assert score.row.chance is not None
    assert score.row.chance(Setting(0, 0, 0)) == (1 / 4 + 1 / 2) / 2


@pytest.mark.parametrize(
    ("tokens", "targets", "why"),
    [
        ([1, 2, 3], {}, r"whole numbers \[batch pos\]"), ([[0.5]], {}, "whole numbers"), ([[]], {}, "whole numbers"),
        ([[1, -1]], {}, "there is -1"), (torch.zeros(2, 2**20, dtype=torch.long), {}, "more than 1,048,576"),
        (TOKENS, {"x": [(1, 2)]}, "of each of the 2 sequences"), (TOKENS, {"x": []}, "of each of the 2"),
        (TOKENS, {"x": [(0.5, 1), (1, 2)]}, "of each of the 2"),
        (TOKENS, {"x": [(0, 12, 1)]}, "sequences are 0 to 1, queries and keys 0 to 11"),
        (TOKENS, {"x": [(2, 1, 1)]}, "sequences are 0 to 1"), (TOKENS, {"x": [(0, 1, -1)]}, "sequences are 0 to 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tokens: Any, targets: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Probe(tokens, targets)


def test_a_model_that_cannot_read_it_is_refused_before_anything_is_trained() -> None:
    probe = Probe(TOKENS)
    assert torch.equal(probe.fitting("p", 24, 12), TOKENS)
    with pytest.raises(ValueError, match="rows of 12 tokens, the model takes 11"):
        probe.fitting("p", 24, 11)
    with pytest.raises(ValueError, match="token 23, the model knows 0 to 22"):
        probe.fitting("p", 23, None)


def test_names_are_taken_once() -> None:
    @measure(probe="there")
    def other(rows: RowBlock) -> Any: ...

    @measure
    def p_loss(rows: RowBlock) -> Any: ...

    for probes, why in (
        ({"text": Probe(TOKENS)}, "'text' is taken"),
        ({"entropy": Probe(TOKENS)}, "name of a probe: every run has a number of this"),
        ([{"a": Probe(TOKENS)}, {"a": Probe(TOKENS)}], "'a' is taken"), ({"a": TOKENS}, "give tracer.Probe by name"),
        ("math:pi", "give tracer.Probe by name"), (Probe(TOKENS), "give tracer.Probe by name"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            given_probes(probes)
    with pytest.raises(ValueError, match="measure other: there is no probe 'there'"):
        OwnRecord.given(other, {"p": Probe(TOKENS)}, print)
    with pytest.raises(ValueError, match="two are called p_loss"):
        OwnRecord.given(p_loss, {"p": Probe(TOKENS)}, print)


def test_chance_is_of_queries_where_one_has_several_keys() -> None:
    """Uniform attention of row 3 gives a quarter to each of its two keys: the score is a half, and so is chance."""
    (score,) = Probe(TOKENS, {"x": [(0, 3, 0), (0, 3, 1)]}).scores("p")
    rows = RowBlock(torch.full((1, 1, 1, 4), 0.25), torch.zeros(1, 1, 1), 3, 0, True, None, {})
    assert score.row.chance is not None
    assert float(score(rows)) == score.row.chance(Setting(0, 0, 0)) == 0.5
    with pytest.raises(ValueError, match="stands there twice"):
        Probe(TOKENS, {"x": [(0, 3, 0), (0, 3, 0)]})
