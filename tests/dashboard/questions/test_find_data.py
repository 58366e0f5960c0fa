"""Passages: what is searched, where a head's looks are, and what is packed of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dashboard.loading import ablation
from dashboard.views.find import data
from tests.dashboard.conftest import gpt
from tests.dashboard.questions.conftest import Write, layer, rebuildable
from tracer import data as corpora
from tracer.analysis import max_activating
from tracer.interventions.edits import recording
from tracer.pictures import passages, payload
from tracer.store import Run

NAN = float("nan")
PATHS = ("transformer.h.0.attn", "transformer.h.1.attn")
LOSS = {"val_loss": ((), np.ones(1))}
AXES = ("prompt", "layer", "head", "query_pos", "key_pos")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """What a test says was found is of no other test: the key of a search is the run and the step."""
    yield
    for cached in (data.ends, data.shown):
        cached.clear()


def held_out(run: Run) -> np.ndarray:
    config = run.config
    return corpora.build(config.data, 64, config.seed).val(max_activating.rows_of_text(64))[:, :64].numpy()


def test_held_out_text_is_searched_where_there_is_some(
    small_run: Run, write: Write, copy_run: Callable[..., Run]
) -> None:
    found = data.text(small_run)
    np.testing.assert_array_equal(found.tokens, held_out(small_run))
    assert (found.what, found.note) == ("rows of random tokens that repeat", "")
    assert found.names == [f"row {i}" for i in range(len(found.tokens))]
    changed = copy_run("changed", corpus={"name": "repeated-random", "hash": "another"})
    other = data.text(changed)
    kept: Any = ablation.batches(changed).text
    assert other.what == "passages that the run kept" and other.note == ablation.batches(changed).note != ""
    np.testing.assert_array_equal(other.tokens, kept.numpy())


def test_what_a_watched_run_kept_is_searched(write: Write) -> None:
    prompts = {"prompt": (("prompt",), ["text 0", "text 1"], {}),
               "prompt_tokens": (("prompt", "query_pos"), np.array([[1, 2, 3], [4, 5, -1]]), {})}  # fmt: skip
    run = rebuildable(write, "kept", gpt(), PATHS, [0], LOSS, prompts, n_ctx=48)
    found = data.text(run)
    assert found.tokens.tolist() == [[1, 2], [4, 5]] and found.what == "passages that the run kept" and found.note
    none = rebuildable(write, "none", gpt(), PATHS, [0], LOSS, n_ctx=48)
    found = data.text(none)
    np.testing.assert_array_equal(found.tokens, ablation.batches(none).repeat.tokens.numpy())
    assert found.what == "rows of random tokens that repeat" and found.note


def test_text_of_a_corpus_is_called_so(copy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = copy_run("worded")
    meta = json.loads((run.dir / "run.json").read_text())
    meta["config"]["data"]["corpus"] = "markov"
    (run.dir / "run.json").write_text(json.dumps(meta))
    built = corpora.build(run.config.data, 64, 0)
    (run.dir / "run.json").write_text(json.dumps({**meta, "corpus": {"name": "markov", "hash": built.hash}}))
    assert data.text(Run(run.dir)).what == "rows of random Markov chains"
    monkeypatch.delitem(data.RANDOM, "markov")
    data.text.clear()
    assert data.text(Run(run.dir)).what == "rows of held-out text"


def kept_run(write: Write, name: str, **meta: Any) -> Run:
    """Two prompts of 4 and 6 tokens over 7 positions; the second layer is cross attention."""
    draw = np.random.default_rng(0)
    patterns = np.full((2, 2, 2, 3, 7, 7), NAN, np.float16)
    for prompt, n in enumerate((4, 6)):
        patterns[:, prompt, :, :, :n, :n] = draw.random((2, 2, 3, n, n))
    tokens = np.full((2, 7), -1)
    tokens[0, :4], tokens[1, :6] = [5, 6, 0, 5], [1, 2, 3, 1, 2, 0]
    coords = {"prompt": (("prompt",), ["short", "long"], {}), "layer": (("layer",), [0, 1], {}),
              "head": (("head",), [0, 1, 2], {}), "prompt_tokens": (("prompt", "query_pos"), tokens, {})}  # fmt: skip
    facts = {"layers": [layer("own", 3, False), layer("other", 3, True, "cross")]} | meta
    return write(name, [0, 9], {"pattern": (AXES, patterns)}, coords, **facts)


def test_kept_prompts_are_searched_by_their_patterns(write: Write) -> None:
    run = kept_run(write, "kept")
    found = data.search(run, 9, True)
    assert found.text.what == "kept prompts" and found.text.names == ["short", "long"] and found.from_kept
    assert found.text.tokens.tolist() == [[5, 6, 0, 5, -1, -1, -1], [1, 2, 3, 1, 2, 0, -1]]
    patterns = run.trace["pattern"].sel(step=9).values.astype(np.float32)
    patterns[:, 1] = NAN  # which looks at other tokens
    np.testing.assert_array_equal(data._patterns(run, 9), patterns)
    expected = max_activating.of_patterns(list(patterns), found.text.tokens, [False, True])
    for kind, scores in expected.scores.items():
        np.testing.assert_array_equal(found.search.scores[kind], scores, err_msg=kind)


def test_kept_prompts_of_ours_are_causal(small_run: Run) -> None:
    found = data.search(small_run, 20, True)
    patterns = small_run.trace["pattern"].sel(step=20).values.astype(np.float32)
    expected = max_activating.of_patterns(list(patterns), found.text.tokens, [True, True])
    for kind, scores in expected.scores.items():
        np.testing.assert_array_equal(found.search.scores[kind], scores, err_msg=kind)


def test_a_search_of_what_the_model_reads(small_run: Run) -> None:
    found = data.search(small_run, 20)
    assert not found.from_kept and (found.run.dir, found.step) == (small_run.dir, 20)
    expected = max_activating.search(small_run.model(20), torch.from_numpy(held_out(small_run)))
    for kind, scores in expected.scores.items():
        np.testing.assert_array_equal(found.search.scores[kind], scores, err_msg=kind)


def cards(blob: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header = payload.header(blob)
    return header, header["passages"]


@pytest.mark.parametrize("kind", ["sharpest", "farthest"])
def test_the_passages_of_a_head(kind: str, small_run: Run) -> None:
    found = data.search(small_run, 20)
    kind = kind if kind in found.search.scores else next(iter(found.search.scores))
    shown = data.shown(found, kind, (1, 2))
    top = max_activating.strongest(found.search, kind, (1, 2), 12)
    typical = max_activating.typical(found.search, kind, (1, 2), 4)
    assert shown.hits == [*top, *typical] and len(top) == 12 and len(typical) == 4
    with torch.no_grad(), recording("blocks.1.attn.hook_pattern") as seen:
        small_run.model(20)(torch.from_numpy(found.text.tokens))
    pattern = seen["blocks.1.attn.hook_pattern"][:, 2].numpy()
    header, packed = cards(shown.blob)
    assert header["label"] == "L1H2" and header["causal"] is True
    assert [card["group"] for card in packed] == ["top"] * 12 + ["typical"] * 4
    for card, hit in zip(packed, shown.hits, strict=True):
        assert (card["sequence"], card["query"], card["key"]) == (hit.sequence, hit.query, hit.key)
        assert card["p"] == pytest.approx(float(pattern[hit.sequence, hit.query, hit.key]), abs=1e-5)


def test_the_passages_of_kept_prompts(write: Write) -> None:
    run = kept_run(write, "shown", causal_=None)
    found = data.search(run, 9, True)
    kind = next(iter(found.search.scores))
    shown = data.shown(found, kind, (0, 1))
    assert shown.hits and len(shown.hits) < 16
    n_top = len(max_activating.strongest(found.search, kind, (0, 1), 12))
    expected = []
    for i, hit in enumerate(shown.hits):
        words = [str(token) for token in found.text.tokens[hit.sequence] if token >= 0]
        row = run.trace["pattern"].sel(step=9).values[hit.sequence, 0, 1, hit.query].astype(np.float32)
        expected.append(passages.Passage(
            "top" if i < n_top else "typical", hit.sequence, hit.query, hit.key, hit.score, hit.quantile, words,
            row[: len(words)],
        ))  # fmt: skip
    assert shown.blob == passages.pack("L0H1", expected, False)
    cross = data.shown(found, kind, (1, 0))
    assert cross.hits == [] and payload.header(cross.blob)["causal"] is True


def test_few_passages_of_a_short_text(write: Write) -> None:
    """Fewer looks than there is room for: the rows of typical ones stand behind twelve places."""
    prompts = {"prompt": (("prompt",), ["text 0", "text 1"], {}),
               "prompt_tokens": (("prompt", "query_pos"), np.array([[1, 0, 3], [4, 5, 0]]), {})}  # fmt: skip
    run = rebuildable(write, "few", gpt(), PATHS, [0], LOSS, prompts, n_ctx=48)
    found = data.search(run, 2)
    model: Any = run.model(2)
    with torch.no_grad(), recording("blocks.0.attn.hook_pattern") as seen:
        model(torch.from_numpy(found.text.tokens))
    pattern = seen["blocks.0.attn.hook_pattern"][:, 1].numpy()
    for kind in found.search.scores:
        shown = data.shown(found, kind, (0, 1))
        assert len(shown.hits) < 16
        for card, hit in zip(cards(shown.blob)[1], shown.hits, strict=True):
            assert card["p"] == pytest.approx(float(pattern[hit.sequence, hit.query, hit.key]), abs=1e-5)


def test_rows_that_are_not_finite_are_dark(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept_run(write, "holes")
    found = data.search(run, 0, True)
    kind = next(iter(found.search.scores))
    hit = data.shown(found, kind, (0, 0)).hits[0]
    patterns = data._patterns(run, 0).copy()
    hole = (hit.key + 1) % int((found.text.tokens[hit.sequence] >= 0).sum())
    patterns[hit.sequence, 0, 0, hit.query, hole] = NAN
    data.shown.clear()
    monkeypatch.setattr(data, "_patterns", lambda *_: patterns)
    arrays = payload.unpack(data.shown(found, kind, (0, 0)).blob)[1]
    assert payload.MISSING not in arrays["shares"]


def test_both_ends_of_the_sharpest_looks(small_run: Run) -> None:
    found = data.search(small_run, 20)
    for kind, scores in found.search.scores.items():
        ends, (looking, looked_at, looks) = (
            data.ends(found, kind, (1, 2)),
            max_activating.ends(found.search, kind, (1, 2)),
        )
        assert ends.looks == looks and list(ends.lists) == ["Looks from", "Looks to"]
        for columns, counts in zip(ends.lists.values(), (looking, looked_at), strict=True):
            assert columns["share"] == [one.share for one in counts] and columns["looks"] == [
                one.count for one in counts
            ]
            assert columns["of all text"] == [one.usual for one in counts]
            assert len(columns["token"]) == len(counts)
        finite = scores[1, 2][np.isfinite(scores[1, 2])]
        top = max(1.0, float(np.ceil(finite.max()))) if kind == "farthest" else 1.0
        assert ends.top == top
        edges = np.linspace(0, top, 41)
        expected = [((finite >= a) & (finite < b)).sum() for a, b in zip(edges[:-1], edges[1:], strict=True)]
        expected[-1] += (finite == top).sum()
        assert ends.counts.tolist() == expected


def test_the_scale_of_distances(small_run: Run) -> None:
    """Up to the next whole token, and one at least, also where nothing was found."""
    found = data.search(small_run, 20)
    for farthest, top in ((3.2, 4.0), (5.0, 5.0), (0.4, 1.0), (NAN, 1.0)):
        scores = np.full((2, 4, *found.text.tokens.shape), NAN, np.float32)
        scores[:, :, 0, 5] = farthest
        scores[:, :, 0, 4] = farthest / 4
        search = max_activating.Search(
            found.search.tokens, found.search.scores | {"farthest": scores}, found.search.keys, found.search.contexts
        )
        data.ends.clear()
        assert data.ends(data.HeadPeaks(small_run, 20, False, found.text, search), "farthest", (0, 0)).top == top


def test_long_tokens_are_cut(write: Write, monkeypatch: pytest.MonkeyPatch, small_run: Run) -> None:
    monkeypatch.setattr(data.prompt_tokens, "strings", lambda _run, ids: ["x" * 30 for _ in ids])
    data.ends.clear()
    found = data.ends(data.search(small_run, 20), "farthest", (0, 3))
    assert set(found.lists["Looks to"]["token"]) == {"x" * 23 + "…"}
