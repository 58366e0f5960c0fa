"""Passages equal those of a brute-force search over every explicit pattern, and of patterns drawn by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tracer
from tracer.analysis import max_activating
from tracer.analysis.max_activating import KINDS, Hit, Search
from tracer.config import InitConfig, ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer

N, POS = 9, 40
IDS = torch.randint(2, 12, (N, POS), generator=torch.Generator().manual_seed(0))
IDS[5] = IDS[2]
HEADS = [(layer, head) for layer in range(2) for head in range(4)]


def ours() -> Any:
    config = ModelConfig(n_layers=2, n_heads=4, d_model=16, n_ctx=POS, d_vocab=12, init=InitConfig(attn=0.5))
    return Transformer(config, seed=1).double().eval().requires_grad_(False)


def theirs(kernel: str) -> Any:
    config = LlamaConfig(
        vocab_size=12, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=POS,
    )  # fmt: skip
    config._attn_implementation = kernel
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).double()
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=0.3)
    return tracer.load_hf(model.requires_grad_(False))


@pytest.mark.parametrize(
    ("n_ctx", "rows"), [(16, 64), (256, 64), (257, 63), (2**13, 2), (2**14, 1), (2**14 + 1, 1), (2**16, 1)]
)
def test_rows_of_text_are_64_and_at_most_16384_tokens(n_ctx: int, rows: int) -> None:
    assert max_activating.rows_of_text(n_ctx) == rows


MODELS: dict[str, Callable[[], Any]] = {
    "ours": ours, "fused": lambda: theirs("sdpa"), "by hand": lambda: theirs("eager"),
}  # fmt: skip


def explicit(model: Any, tokens: torch.Tensor) -> np.ndarray:
    """Every pattern, [layer head sequence query_pos key_pos], in float64."""
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(tokens)
    return torch.stack([seen[f"blocks.{i}.attn.hook_pattern"] for i in range(2)]).double().transpose(1, 2).numpy()


def look(row: np.ndarray, tokens: list[int], query: int, kind: str) -> tuple[float, int] | None:
    """One row's score and key by the definitions, one key after the other; None where it has no such key."""
    keys = range(1, query)
    if kind == "previous_token":
        keys = [key for key in keys if key == query - 1]
    if kind == "induction":
        keys = [key for key in keys if tokens[key - 1] == tokens[query]]
        return (float(sum(row[key] for key in keys)), max(keys, key=lambda k: float(row[k]))) if keys else None
    far = kind == "farthest"
    return max(((float(row[k]) * (query - k if far else 1), k) for k in keys), default=None)


def strongest(patterns: np.ndarray, tokens: list[list[int]], kind: str, n: int, apart: int) -> list[tuple[int, ...]]:
    """(sequence, query, key) of the best looks, greedily, by sorting all of them."""
    found = []
    for sequence, row in enumerate(tokens):
        for query in range(len(row)):
            if one := look(patterns[sequence, query], row, query, kind):
                found.append((one[0], sequence, query, one[1]))
    best: list[tuple[int, ...]] = []
    said: list[list[int]] = []
    for _, sequence, query, key in sorted(found, key=lambda one: (-one[0], one[1], one[2])):
        before = tokens[sequence][max(0, query - 7) : query + 1]
        near = any(s == sequence and abs(q - query) <= apart for s, q, _ in best)
        if not near and before not in said:
            best.append((sequence, query, key))
            said.append(before)
    return best[:n]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_strongest_looks_are_those_of_every_explicit_pattern(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(max_activating, "TILE", 3 * 4 * POS * 7)  # tiles of 7 rows that end in the middle of a sequence
    monkeypatch.setattr(max_activating, "LOGITS", 3 * 12 * POS)  # three sequences at once
    model = MODELS[name]()
    patterns, found = explicit(model, IDS), max_activating.search(model, IDS)
    for head in HEADS:
        hits = max_activating.strongest(found, kind, head, 12, apart=9)
        expected = strongest(patterns[head], IDS.tolist(), kind, 12, apart=9)
        assert [(hit.sequence, hit.query, hit.key) for hit in hits] == expected and len(hits) == 12
        for hit in hits:
            one = look(patterns[head][hit.sequence, hit.query], IDS[hit.sequence].tolist(), hit.query, kind)
            assert one is not None and hit.score == pytest.approx(one[0], rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_attention_of_passages_is_that_of_explicit_patterns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_activating, "TILE", 3 * 4 * POS * 7)
    monkeypatch.setattr(max_activating, "LOGITS", 3 * 12 * POS)
    model = MODELS[name]()
    places = np.random.default_rng(0).integers(0, (N, POS), (2, 4, 5, 2))
    places[1, 2, 3] = -1
    rows = max_activating.attention(model, IDS, places)
    expected = explicit(model, IDS)
    for layer, head, i in np.ndindex(2, 4, 5):
        sequence, query = places[layer, head, i]
        if sequence >= 0:
            np.testing.assert_allclose(rows[layer, head, i], expected[layer, head, sequence, query], atol=1e-7)
    assert np.isnan(rows[1, 2, 3]).all()


def test_kept_patterns_are_searched_alike() -> None:
    model = ours()
    patterns, found = explicit(model, IDS), max_activating.search(model, IDS)
    kept = patterns.transpose(2, 0, 1, 3, 4).astype(np.float32)
    short = np.full((2, 4, POS, POS), np.nan, np.float32)
    short[:, :, :10, :10] = kept[0, :, :, :10, :10]
    short[1, 3] = np.nan
    tokens = np.concatenate(
        [IDS.numpy(), np.pad(IDS.numpy()[:1, :10], np.array([(0, 0), (0, POS - 10)]), constant_values=-1)]
    )
    again = max_activating.of_patterns([*kept, short], tokens, [True, True])
    for kind in KINDS:
        np.testing.assert_allclose(again.scores[kind][:, :, :N], found.scores[kind], rtol=2e-6)
        np.testing.assert_array_equal(again.scores[kind][0, :, N, :10], again.scores[kind][0, :, 0, :10])
        assert np.isnan(again.scores[kind][:, :, N, 10:]).all() and np.isnan(again.scores[kind][1, 3, N]).all()
        there = np.isfinite(found.scores[kind])
        np.testing.assert_array_equal(again.keys[kind][:, :, :N][there], found.keys[kind][there])


def by_hand(scores: list[list[float]], tokens: list[list[int]] | None = None) -> Search:
    """A search of one head whose keys all stand before their queries."""
    s = np.array(scores, np.float32)[None, None]
    ids = np.arange(s[0, 0].size).reshape(s.shape[2:]) if tokens is None else np.array(tokens)
    keys = np.maximum(np.arange(s.shape[-1]) - 1, 0) + np.zeros(s.shape, np.int32)
    return Search(ids, {"sharpest": s}, {"sharpest": keys.astype(np.int32)}, max_activating.contexts(ids))


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "apart", "expected"),
    [
        ([[NAN, 0.5, 0.9, 0.8]], 0, [(0, 2), (0, 3), (0, 1)]),
        ([[NAN, 0.5, 0.9, 0.8]], 1, [(0, 2)]),
        ([[0.1, 0.5, 0.9, 0.8], [0.7, 0.2, 0.3, 0.9]], 1, [(0, 2), (1, 3), (1, 0), (0, 0)]),
        ([[NAN, 0.0, NAN, 0.0]], 0, []),
        ([[NAN, NAN]], 0, []),
        ([[0.4, 0.4], [0.4, 0.4]], 0, [(0, 0), (0, 1), (1, 0), (1, 1)]),
    ],
)
def test_no_two_passages_of_one_place(scores: Any, apart: int, expected: list[tuple[int, int]]) -> None:
    hits = max_activating.strongest(by_hand(scores), "sharpest", (0, 0), 12, apart)
    assert [(hit.sequence, hit.query) for hit in hits] == expected


def test_a_passage_that_repeats_is_shown_once() -> None:
    same = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    found = by_hand([[0] * 8 + [0.9], [0] * 8 + [0.8], [0] * 8 + [0.7]], [same, same, [0, *same[1:]]])
    hits = max_activating.strongest(found, "sharpest", (0, 0))
    assert [hit.sequence for hit in hits] == [0]  # the last eight tokens are the same in all three
    other = by_hand([[0] * 8 + [0.9], [0] * 8 + [0.8]], [same, [1, 0, *same[2:]]])
    assert [hit.sequence for hit in max_activating.strongest(other, "sharpest", (0, 0))] == [0, 1]


def test_looks_at_some_tokens_come_last() -> None:
    found = by_hand([[NAN, 0.5, 0.9, 0.8]], [[5, 1, 6, 7]])  # which look at 5, 1 and 6
    hits = max_activating.strongest(found, "sharpest", (0, 0), 12, 0, last=[1, 5])
    assert [hit.query for hit in hits] == [3, 2, 1]
    assert [hit.query for hit in max_activating.strongest(found, "sharpest", (0, 0), 2, 0, last=[1])] == [3, 1]


def test_typical_looks_come_from_each_quarter() -> None:
    scores = np.random.default_rng(1).permutation(100).reshape(4, 25) / 100
    found = by_hand(scores.tolist())
    hits = max_activating.typical(found, "sharpest", (0, 0))
    assert [int(hit.quantile * 4) for hit in hits] == [3, 2, 1, 0]
    assert [hit.quantile for hit in hits] == pytest.approx([hit.score for hit in hits])
    assert hits == max_activating.typical(found, "sharpest", (0, 0))
    three = max_activating.typical(by_hand([[NAN, 0.1, 0.3, 0.2]]), "sharpest", (0, 0))
    assert [hit.query for hit in three] == [2, 3, 1]
    assert max_activating.typical(by_hand([[NAN, NAN]]), "sharpest", (0, 0)) == []


def test_tokens_at_both_ends() -> None:
    tokens = [[7, 1, 2, 1, 2, 1, 2, 3, 3, 3]] * 2
    scores = [[NAN, 0, 0.9, 0, 0.8, 0, 0.7, 0, 0, 0], [NAN] * 10]
    queries, keys, looks = max_activating.ends(by_hand(scores, tokens), "sharpest", (0, 0))
    assert looks == 1  # a tenth of 9, rounded up
    (query,), (key,) = queries, keys
    assert (query.token, query.count, query.share, query.usual) == (2, 1, 1.0, 0.3)
    assert (key.token, key.usual) == (1, 0.3)


def test_a_head_that_looks_one_token_back() -> None:
    """Row q puts 3/4 on q - 1 and 1/4 on the first token; tokens 4 and 5 stand there twice."""
    n, tokens = 6, torch.tensor([[0, 4, 5, 6, 4, 5]])
    pattern = torch.zeros(1, 1, n, n)
    for q in range(n):
        pattern[0, 0, q, max(q - 1, 0)] += 0.75
        pattern[0, 0, q, 0] += 0.25
    found = {
        kind: (s[0, 0].tolist(), k[0, 0].tolist()) for kind, (s, k) in max_activating.looks(pattern, tokens, 0).items()
    }
    for kind in ("sharpest", "previous_token", "farthest"):
        scores, keys = found[kind]
        assert scores[2:] == [0.75] * 4 and keys[2:] == [1, 2, 3, 4] and np.isnan(scores[:2]).all()
    scores, keys = found["induction"]
    assert np.isnan(scores[:4]).all() and scores[4:] == [0.0, 0.0] and keys[4:] == [2, 3]
    later = max_activating.looks(pattern[:, :, 4:], tokens, 4)
    assert all(later[kind][0][0, 0].tolist() == found[kind][0][4:] for kind in KINDS)


def test_a_head_that_looks_ahead() -> None:
    pattern = torch.tensor([[[[0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0.0, 0.3, 0.7]]]])
    scores, keys = max_activating.looks(pattern, torch.tensor([[1, 2, 3]]), 0, causal=False)["sharpest"]
    assert scores[0, 0].tolist() == pytest.approx([0.7, 0.4, 0.3]) and keys[0, 0].tolist() == [2, 2, 1]


def test_an_empty_quantile_is_zero() -> None:
    assert max_activating.strongest(by_hand([[NAN, NAN, 0.5]]), "sharpest", (0, 0)) == [Hit(0, 2, 1, 0.5, 0.0)]


def test_a_token_said_twice_in_a_row_is_followed_by_itself_which_is_no_look() -> None:
    pattern = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]])[None, None]
    scores, keys = max_activating.looks(pattern, torch.tensor([[1, 5, 5, 5]]), 0)["induction"]
    assert scores[0, 0, :3].isnan().all()
    assert float(scores[0, 0, 3]) == pytest.approx(0.3) and int(keys[0, 0, 3]) == 2
