"""What is seen of a watched update: its batch, its targets, what it left as it was; and two questions to the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.diagnosis.lessons import VOCABULARY, Decoder, chain
from tracer.hooks.inputs import Inputs
from tracer.watching.causality import constant_positions, future_effect, row_effect
from tracer.watching.signs import Counted, Signs, fingerprint, shifted_losses

IDS = chain(np.random.default_rng(3), 4)


def test_equal_batches_share_a_fingerprint_and_others_do_not() -> None:
    other = IDS.clone()
    other[2, 5] = (other[2, 5] + 1) % VOCABULARY
    swapped = IDS[[1, 0, 2, 3]]
    assert fingerprint(IDS) == fingerprint(IDS.clone())
    assert len({int(fingerprint(x)) for x in (IDS, other, swapped, IDS.float(), IDS.T)}) == 5


def test_losses_against_other_targets_by_brute_force() -> None:
    torch.manual_seed(0)
    logits, n = torch.randn(*IDS.shape, VOCABULARY), IDS.shape[1]

    def mean(of: dict[int, int]) -> float:
        """The target of each position, as another position."""
        one = [F.cross_entropy(logits[row, i], IDS[row, j]).item() for row in range(len(IDS)) for i, j in of.items()]
        return float(np.mean(one))

    expected = [mean({i: i + d for i in range(n) if 0 <= i + d < n}) for d in (-1, 0, 1, 2)]
    expected += [mean({i: n - 1 - i - d for i in range(n) if n - 1 - i - d >= 0}) for d in (0, 1)]
    right, logits = logits, logits.softmax(-1)
    expected += [mean({i: i + 1 for i in range(n - 1)})]
    np.testing.assert_allclose(shifted_losses(logits, IDS), expected, rtol=1e-5)  # the model's own softmax is seen
    logits = right
    np.testing.assert_allclose(shifted_losses(logits, IDS), expected, rtol=1e-5)
    with_sum_1 = logits - logits.mean(-1, keepdim=True) + 1 / VOCABULARY  # with negative ones, so no probabilities
    np.testing.assert_allclose(shifted_losses(with_sum_1, IDS), expected, rtol=1e-5)


def test_a_batch_is_all_that_the_model_is_called_with() -> None:
    """A mask that comes first is the same at every update, and so are the tokens of a second call beside other ones."""
    signs, mask = Signs(nn.Identity()), torch.ones_like(IDS)
    found = []
    for ids in (IDS, IDS, IDS.flip(0)):
        signs.called((), {"attention_mask": mask, "input_ids": ids}, record=False)
        found.append(signs.print_of_update())
    assert found[0] == found[1] != found[2]
    for first, second in ((IDS, mask), (mask, IDS), (IDS.flip(0), mask)):
        signs.called((first,), {}, record=False)
        signs.called((second,), {}, record=False)
        found.append(signs.print_of_update())
    assert len(set(found[3:])) == 3 and np.isnan(signs.print_of_update())


@torch.no_grad()
def test_only_tokens_are_changed_to_see_whether_the_future_shows() -> None:
    """A mask of the same shape is given as it was."""
    masks: list[torch.Tensor] = []

    class Masked(Decoder):
        def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            masks.append(attention_mask)
            return super().forward(ids)

    mask = torch.ones_like(IDS)
    assert future_effect(Masked(0), Inputs.of((IDS,), {"attention_mask": mask})) == 0
    assert len(masks) > 1 and all(torch.equal(one, mask[: len(one)]) for one in masks)


def test_counted_tokens_and_pairs() -> None:
    counted = Counted()
    counted.count(np.tile([0, 1], 200)[None])
    single, pairs, copies, common = counted.losses(np.array([[0, 1, 0]])) or (0, 0, 0, 0)
    assert single == pytest.approx(np.log(2)) and pairs == pytest.approx(0, abs=0.02)  # 200 pairs each, and 4 beside
    assert copies == single and common == 2 / 3  # no token stood in its row before
    assert counted.losses(np.array([[0, 2]])) is None  # a kind that was not seen
    few = Counted()
    few.count(np.array([[0, 1, 0]]))
    assert few.losses(np.array([[0, 1]])) is None


def test_copying_is_trusted_as_far_as_it_was_right() -> None:
    """Of four tokens that had stood in their row, two were followed as before: h = 2 / 5 for the next record."""
    counted = Counted()
    counted.count(np.array([[0, 1, 2, 3] * 100]))
    counted.losses(np.array([[0, 1, 0, 1, 2, 1, 2, 3, 1]]))  # after 0: 1, 1; after 1: 0, 2, 2; after 2: 1, 3
    assert (counted.hits, counted.tries) == (2, 4)
    h, share = 2 / 5, 1 / 4
    expected = [share, share, h + (1 - h) * share, (1 - h) * share]
    _, _, copies, common = counted.losses(np.array([[0, 1, 0, 1, 3]])) or (0, 0, 0, 0)
    assert copies == pytest.approx(-np.log(expected).mean()) and common == 2 / 5


def test_rows_that_give_no_gradient() -> None:
    """Of three rows one is left out of the loss; at a record alone, and where the loss is taken of the logits."""
    torch.manual_seed(0)
    model, signs = Decoder(), Signs(nn.Identity())
    for record, expected in ((True, {"silent_rows": pytest.approx(1 / 3)}), (False, {})):
        signs.called((IDS[:3],), {}, record=record)
        logits = model(IDS[:3])
        signs.returned(logits)
        logits[[0, 2]].square().sum().backward()
        assert {name: x for name, x in signs.row().items() if name == "silent_rows"} == expected


def test_weights_that_stay() -> None:
    """Of two matrices the median is the lower: half of one has moved, all of the other."""
    weights = {name: nn.Parameter(torch.zeros(4, 8)) for name in "ab"}
    signs = Signs(nn.Identity())
    assert np.isnan(signs.unmoved(weights)) and signs.unmoved(weights) == 1
    with torch.no_grad():
        weights["a"].data[:2] += 1e-3
        weights["b"].data += 1e-3
    assert signs.unmoved(weights) == 0
    with torch.no_grad():
        weights["a"].data[:2] += 1e-3
    assert signs.unmoved(weights) == 0.5


@pytest.mark.parametrize(("sees", "leaks"), [(0, False), (1, True), (16, True)])
@torch.no_grad()
def test_a_mask_is_asked_whether_it_shows_the_future(sees: int, leaks: bool) -> None:
    torch.manual_seed(0)
    effect = future_effect(Decoder(sees), Inputs.of((IDS,), {}))
    assert effect > 0.01 if leaks else effect == 0
    assert np.isnan(future_effect(Decoder(sees), Inputs.of((torch.ones_like(IDS),), {})))


class Mixed(nn.Module):
    """Attention over the wrong axis, where it is told so."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embed, self.unembed = nn.Embedding(16, 8), nn.Linear(8, 16)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=batch_first)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(ids)
        return self.unembed(x + self.attn(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("batch_first", [True, False])
@torch.no_grad()
def test_rows_are_asked_whether_they_see_each_other(batch_first: bool) -> None:
    torch.manual_seed(0)
    model, rows = Mixed(batch_first), torch.randint(16, (4, 6))
    effect = row_effect(model, Inputs.of((rows,), {}))
    assert effect == 0 if batch_first else effect > 0.05
    one = row_effect(model, Inputs.of((rows[:1],), {}))
    assert one == 0 if batch_first else one == effect
    assert np.isnan(row_effect(model, Inputs.of((torch.ones_like(rows),), {})))
    square = torch.randint(16, (4, 4))
    assert np.isnan(row_effect(model, Inputs.of((square, torch.ones(4, 4)), {})))  # rows, or a mask?


class Looked(nn.Module):
    """A table of positions that is read in other ways than by its module."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.table, self.kinds, self.way = nn.Parameter(torch.randn(32, 4)), nn.Embedding(2, 4), way

    def forward(self, ids: torch.Tensor, position_ids: torch.Tensor | None = None) -> torch.Tensor:
        still = torch.zeros_like(ids[0])
        if self.way == "index":
            return self.table[still]
        if self.way == "function":
            return F.embedding(still, self.table)
        return self.kinds(still) + self.table[torch.arange(ids.shape[1])]


@pytest.mark.parametrize(
    ("model", "given", "found"),
    [
        (Decoder(), {}, ""), (Decoder(placed=False), {}, "place.weight"), (Looked("index"), {}, "table"),
        (Looked("function"), {}, "table"), (Looked("kinds"), {}, ""),
        (Looked("kinds"), {"position_ids": torch.zeros_like(IDS)}, "position_ids"),
    ],
)  # fmt: skip
@torch.no_grad()
def test_positions_that_are_looked_up(model: nn.Module, given: dict[str, torch.Tensor], found: str) -> None:
    assert constant_positions(model, Inputs.of((IDS,), given)) == found
    assert constant_positions(model, Inputs.of((IDS.float(),), {})) is None
