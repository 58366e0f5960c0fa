"""Cutting query -> key edges: the pattern by hand, and the whole model against masked scores and against z - A v."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tracer import ablate
from tracer.ablate import Edge, effect, planner
from tracer.ablate.edges_and_paths import Cut
from tracer.config import InitConfig, ModelConfig
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import Edit, applied, recording
from tracer.interventions.replacements import pattern_tap
from tracer.model import Transformer

CONFIG = ModelConfig(n_layers=2, n_heads=3, d_model=24, n_ctx=10, d_vocab=13, init=InitConfig(attn=0.4))
TOKENS = torch.randint(0, 13, (4, 9), generator=torch.Generator().manual_seed(0))
HEAD, QUERY, KEY = 1, 6, 2
EDGE = Edge(0, HEAD, QUERY, KEY)


def patterns(model: Transformer) -> dict[str, torch.Tensor]:
    with recording("hook_pattern", "hook_z", "hook_v") as seen:
        model(TOKENS)
    return seen


ROW = [0.2, 0.3, 0.5]
BY_HAND = [
    (Cut(((0, 2, 1),)), [0.2, 0.0, 0.5]),
    (Cut(((0, 2, 1),), renormalise=True), [0.2 / 0.7, 0.0, 0.5 / 0.7]),
    (Cut(((0, 2, 0), (0, 2, 1))), [0.0, 0.0, 0.5]),
    (Cut(((0, 2, 0), (0, 2, 1)), renormalise=True), [0.0, 0.0, 1.0]),
    (Cut(((0, 2, 1),), mass=0.1), [0.2, 0.1, 0.5]),
    (Cut(((0, 2, 1),), renormalise=True, mass=0.1), [0.2 * 0.9 / 0.7, 0.1, 0.5 * 0.9 / 0.7]),
    (Cut(((0, 2, 0), (0, 2, 1), (0, 2, 2)), renormalise=True), [0.0, 0.0, 0.0]),
    (Cut(((0, 1, 1),), renormalise=True), ROW),
    (Cut(((1, 2, 1),)), ROW),
]


@pytest.mark.parametrize(("cut", "row"), BY_HAND)
def test_a_row_by_hand(cut: Cut, row: list[float]) -> None:
    pattern = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], ROW]).double().expand(2, 2, 3, 3)
    after = cut(pattern)
    torch.testing.assert_close(after[:, 0, 2], torch.tensor(row).double().expand(2, 3), atol=1e-7, rtol=0)
    named = {(head, query) for head, query, _ in cut.edges}
    for head in range(2):
        for query in range(3):
            if (head, query) not in named:
                assert torch.equal(after[:, head, query], pattern[:, head, query])


def test_edits_with_a_cut_are_values() -> None:
    assert Edit("tap", instead=Cut(((0, 2, 1),))) == Edit("tap", instead=Cut(((0, 2, 1),)))
    assert Edit("tap", instead=Cut(((0, 2, 1),))) != Edit("tap", instead=Cut(((0, 2, 1),), renormalise=True))
    assert len({Edit("tap", instead=Cut(((0, 2, 1),))), Edit("tap", instead=Cut(((0, 2, 1),)))}) == 1


def test_renormalising_is_hiding_the_key_from_the_softmax(model: Transformer) -> None:
    with recording("blocks.0.attn.hook_attn_scores") as seen:
        model(TOKENS)
    hidden = seen["blocks.0.attn.hook_attn_scores"].clone()
    hidden[:, HEAD, QUERY, KEY] = -torch.inf
    with applied([Edit("blocks.0.attn.hook_attn_scores", instead=hidden)]):
        expected = model(TOKENS)
    ((plan,),) = [planner(model, TOKENS)([Edge(0, HEAD, QUERY, KEY, renormalise=True)])]
    with applied(plan):
        assert (model(TOKENS) - expected).abs().max() < 1e-12
    assert (model(TOKENS) - expected).abs().max() > 1e-4


def test_without_renormalising_the_head_misses_just_what_it_read_there(model: Transformer) -> None:
    clean = patterns(model)
    z = clean["blocks.0.attn.hook_z"].clone()
    z[:, QUERY, HEAD] -= clean[pattern_tap(0)][:, HEAD, QUERY, KEY, None] * clean["blocks.0.attn.hook_v"][:, KEY, HEAD]
    with applied([Edit("blocks.0.attn.hook_z", instead=z)]):
        expected = model(TOKENS)
    with applied(planner(model, TOKENS)([EDGE])[0]):
        assert (model(TOKENS) - expected).abs().max() < 1e-12
    assert (model(TOKENS) - expected)[:, :QUERY].abs().max() < 1e-12  # nothing before the query could know


def test_every_edge_of_a_head_is_the_head(model: Transformer) -> None:
    edges = [Edge(1, 2, query, key) for query in range(9) for key in range(query + 1)]
    torch.testing.assert_close(effect(model, TOKENS, edges).delta, effect(model, TOKENS, [(1, 2)]).delta)
    assert effect(model, TOKENS, edges).delta.abs().max() > 1e-3


@pytest.mark.parametrize("renormalise", [False, True])
def test_the_mean_and_other_sequences_can_stand_in_for_an_edge(model: Transformer, renormalise: bool) -> None:
    edge, clean = Edge(0, HEAD, QUERY, KEY, renormalise), patterns(model)[pattern_tap(0)]
    mass = clean[:, HEAD, QUERY, KEY]
    order = ablate.derangement(4, seed=3)
    for mode, expected in (("mean", (mass.sum() - mass) / 3), ("resample", mass[order])):
        (edits,) = planner(model, TOKENS, mode, draws=1, seed=3)([edge])
        with applied(edits), recording("hook_pattern") as seen:
            model(TOKENS)
        torch.testing.assert_close(seen[pattern_tap(0)][:, HEAD, QUERY, KEY], expected)
        total = seen[pattern_tap(0)][:, HEAD, QUERY].sum(-1)
        torch.testing.assert_close(total, torch.ones(4).double() if renormalise else 1 - mass + expected)


def test_a_frozen_pattern_is_cut_too(model: Transformer) -> None:
    clean = patterns(model)
    (edits,) = planner(model, TOKENS, frozen=True)([EDGE])
    with applied(edits), recording("hook_pattern") as seen:
        model(TOKENS)
    assert torch.equal(seen[pattern_tap(1)], clean[pattern_tap(1)])
    assert (seen[pattern_tap(0)][:, HEAD, QUERY, KEY] == 0).all()
    full, held = (effect(model, TOKENS, [EDGE], frozen=frozen).delta for frozen in (False, True))
    assert (full - held).abs().max() > 1e-6


BAD = [
    ([Edge(0, 3, 6, 2)], {}, "L0H3 does not exist"),
    ([Edge(2, 0, 6, 2)], {}, "L2H0 does not exist"),
    ([Edge(0, 0, 9, 2)], {}, "position 9 does not exist: the input has positions 0 to 8"),
    ([Edge(0, 0, 3, -1)], {}, "position -1 does not exist"),
    ([Edge(0, 0, 3, 4)], {}, "L0H0 from 3 to 4: a causal head does not look ahead"),
    ([Edge(0, 0, 0, 0, True)], {}, "query 0 sees no other key to take the mass; use renormalise=False"),
    ([Edge(0, 0, 1, 0, True), Edge(0, 0, 1, 1, True)], {}, "query 1 sees no other key to take the mass"),
    ([Edge(0, 0, 3, 0, True), Edge(0, 0, 3, 1)], {}, "renormalise must be the same"),
    ([EDGE], {"positions": [6]}, "an edge says itself from which position: leave `positions` out"),
]


@pytest.mark.parametrize(("edges", "options", "message"), BAD, ids=[message[:40] for *_, message in BAD])
def test_errors(model: Transformer, edges: list[Edge], options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        effect(model, TOKENS, edges, **options)


def test_a_shorter_input_than_the_plan_was_made_for(model: Transformer) -> None:
    (edits,) = planner(model, TOKENS)([EDGE])
    with applied(edits), pytest.raises(ValueError, match="position 6 does not exist: the input has positions 0 to 4"):
        model(TOKENS[:, :5])


@pytest.fixture(scope="module")
def foreign() -> WrappedModel:
    torch.manual_seed(0)
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, n_positions=10, vocab_size=13)).eval()
    for name, weight in gpt2.named_parameters():
        if name.endswith("attn.c_proj.weight"):
            weight.data *= 20  # as if trained: heads that matter
    return WrappedModel(gpt2.requires_grad_(False), n_ctx=10, d_vocab=13)


def test_models_that_others_wrote_lose_edges_as_well(foreign: WrappedModel) -> None:
    with recording("hook_pattern", "hook_v", "hook_z") as clean:
        before = foreign(TOKENS)
    z = clean["blocks.0.attn.hook_z"].clone()
    z[:, QUERY, HEAD] -= clean[pattern_tap(0)][:, HEAD, QUERY, KEY, None] * clean["blocks.0.attn.hook_v"][:, KEY, HEAD]
    with applied([Edit("blocks.0.attn.hook_z", instead=z)]):
        expected = foreign(TOKENS)
    with applied(planner(foreign, TOKENS)([EDGE])[0]):
        after = foreign(TOKENS)
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=0)
    assert (after - before).abs().max() > 1e-3
