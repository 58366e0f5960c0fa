"""Self attention whose last keys are no positions (a sink, a learned key): analyses are those of explicit patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tracer
from tests.causal_families import gpt_oss
from tracer.ablate import verdict
from tracer.analysis import max_activating, survey
from tracer.analysis.by_distance import by_distance
from tracer.analysis.prompt_attention import look
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import recording
from tracer.pictures.payload import quantise_pattern

BATCH, T = 3, 12
IDS = torch.randint(2, 50, (BATCH, T), generator=torch.Generator().manual_seed(0))


class LearnedKey(nn.Module):
    """nn.MultiheadAttention, fused, with a key and a value of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.unembed = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.layers = nn.ModuleList(nn.MultiheadAttention(16, 4, add_bias_kv=True, batch_first=True) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x, hidden = 3 * self.embed(tokens), torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = x + layer(x, x, x, attn_mask=hidden, need_weights=False)[0]
        return self.unembed(x)


@pytest.fixture(scope="module", params=["sink", "learned key"])
def model(request: Any) -> Any:
    if request.param == "sink":
        return tracer.load_hf(gpt_oss())
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return WrappedModel(LearnedKey().eval().requires_grad_(False), n_ctx=64, d_vocab=50)


@pytest.fixture(scope="module")
def patterns(model: Any) -> Tensor:
    """[layer batch head query_pos key_pos], the extra key last."""
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(IDS)
    found = torch.stack([seen[f"blocks.{layer}.attn.hook_pattern"] for layer in range(2)])
    assert found.shape[-2:] == (T, T + 1) and (found[..., -1] > 1e-6).any()
    return found


def test_looks_are_among_positions(model: Any, patterns: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_activating, "TILE", BATCH * 4 * T * 5)
    found, own = max_activating.search(model, IDS), patterns[..., :T].clone()
    own[..., 0] = 0
    sharpest = own.masked_fill(torch.eye(T, dtype=torch.bool), 0).amax(-1).transpose(1, 2)
    np.testing.assert_allclose(found.scores["sharpest"][..., 2:], sharpest[..., 2:], atol=1e-6)
    places = np.array([[sequence, query] for sequence in range(BATCH) for query in (0, 7, 11)])
    rows = max_activating.attention(model, IDS, np.broadcast_to(places, (2, 4, *places.shape)))
    expected = patterns[:, places[:, 0], :, places[:, 1], :T]  # advanced axes come first
    np.testing.assert_allclose(rows, expected.permute(1, 2, 0, 3), atol=1e-6)


def test_distances_are_between_positions(model: Any, patterns: Tensor) -> None:
    found = by_distance(model, IDS)
    diagonal = patterns[..., 1:, 1:T].diagonal(-2, -2, -1)
    np.testing.assert_allclose(found.values[..., 2], diagonal.mean((1, 3)), atol=1e-6)
    np.testing.assert_allclose(found.rest, patterns[..., 1:, 0].mean((1, 3)), atol=1e-6)


def test_pictures_are_of_positions(model: Any, patterns: Tensor) -> None:
    found = look(model, IDS[:1])
    for layer, head in ((0, 1), (1, 2)):
        one = patterns[layer, 0, head, :, :T]
        np.testing.assert_allclose(found.pattern(layer, head), one, atol=1e-6)
        np.testing.assert_allclose(found.window(layer, head, slice(3, 9), slice(2, 7)), one[3:9, 2:7], atol=1e-6)
        blocks = one.unflatten(0, (6, 2)).unflatten(2, (6, 2))
        np.testing.assert_allclose(found.overview(layer, head, 6), blocks.amax((1, 3)), atol=5e-6)
        np.testing.assert_allclose(found.overview(layer, head, 6, "mean"), blocks.mean((1, 3)), atol=5e-6)


def test_a_page_packs_pictures_with_as_many_keys_as_tokens(model: Any) -> None:
    strings = [f"t{i}" for i in range(T)]
    shown, whole = look(model, IDS[:1]).patterns(strings, []), slice(None)
    assert shown.keys(1) == shown.queries(1) == strings
    assert quantise_pattern(shown.window(1, 2, whole, whole), shown.queries(1), shown.keys(1)).shape == (T, T)


def test_a_verdict_says_what_the_head_attends_to_among_positions(model: Any) -> None:
    card = verdict(model, 1, 2, sequences=4)
    copying = next(test for test in card.tests if test.name == "copying")
    assert 0 <= copying.low <= copying.value <= copying.high <= 1


def test_a_survey_counts_all_keys_in_entropies_alone(
    model: Any, patterns: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SAMPLE", 1)
    found, rows = survey.survey(model, IDS), patterns[..., 1:, :]
    np.testing.assert_allclose(found["entropy"], torch.special.entr(rows).sum(-1).mean((1, 3)), atol=1e-5)
    np.testing.assert_allclose(found["mass"].sum("distance"), rows[..., :T].sum(-1).mean((1, 3)), atol=1e-5)
