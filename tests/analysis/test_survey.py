"""A survey is what patterns say, whoever computed them; it goes on where it ended; a head's jobs are told apart."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor

import tracer
from tests.causal_families import causal
from tests.ranks import launch
from tracer.analysis import survey as surveying
from tracer.analysis.head_jobs import head_jobs
from tracer.analysis.survey import FIELDS, bin_of, deciles, kept_survey, survey
from tracer.config import ModelConfig
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.presets import preset
from tracer.store import Run
from tracer.store.surveys import survey_path
from tracer.training.loop import train

LOOKS = [f"{field}_{kind}" for field in FIELDS for kind in ("strongest", "kept")]
TINY = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=12, d_vocab=50)


def rows(n: int, length: int = 12) -> Tensor:
    return torch.randint(2, 50, (n, length), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "SAMPLE", 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    base = preset("induction").config
    config = replace(base, run=str(tmp_path_factory.mktemp("survey") / "toy"), steps=2, device="cpu")
    return train(replace(config, record=replace(config.record, snapshot_every=2)), quiet=True)


def test_all_batches_share_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy in each would cost the square of their number."""
    seen: list[np.ndarray] = []
    together = surveying._together

    def watched(found: Any, mine: Any, done: int) -> Any:
        after = together(found, mine, done)
        seen.extend(one["tokens"] for one in (found, mine, after))
        return after

    monkeypatch.setattr(surveying, "_together", watched)
    monkeypatch.setattr(surveying, "AT_ONCE", 24)
    survey(Transformer(TINY).eval(), rows(6))
    assert len(seen) == 12 and all(np.shares_memory(one, seen[0]) for one in seen)


@pytest.mark.parametrize("name", ["ours", "GPT-2", "Mistral", "BLOOM", "Gemma 2"])
@pytest.mark.usefixtures("every_query")
def test_means_and_looks_are_those_of_the_patterns(name: str) -> None:
    """Sliding windows, patterns made by hand and shared keys included."""
    model: Any = Transformer(TINY).eval() if name == "ours" else tracer.load_hf(causal(name))
    tokens = rows(9)
    found = survey(model, tokens)
    with torch.no_grad(), recording("hook_pattern") as seen:
        model(tokens)
    pattern = torch.stack([seen[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.n_layers)]).double()
    after = pattern[..., 1:, :12]  # query 0 has no choice
    np.testing.assert_allclose(found.entropy, torch.special.entr(after).sum(-1).mean((1, 3)), atol=1e-5)
    np.testing.assert_allclose(found.sink, after[..., 0].mean((1, 3)), atol=1e-6)
    others = after.clone()
    others[..., 0] = 0
    for query in range(11):
        others[..., query, query + 1] = 0
    np.testing.assert_allclose(found.sharpest, others.amax(-1).mean((1, 3)), atol=1e-6)
    assert (found.n_looks == 9 * 11).all() and found.attrs["complete"]
    mass = torch.zeros(*pattern.shape[:1], pattern.shape[2], found.sizes["distance"], dtype=torch.float64)
    for query in range(1, 12):
        for key in range(query + 1):
            mass[..., bin_of(query - key)] += pattern[:, :, :, query, key].mean(1) / 11
    np.testing.assert_allclose(found.mass, mass, atol=1e-6)
    np.testing.assert_allclose(found.mass.sum("distance"), 1, atol=1e-5)
    best = others.amax(-1).transpose(1, 2).flatten(2).sort(-1, descending=True).values
    np.testing.assert_allclose(found.score_strongest, best[..., : found.sizes["strongest"]], atol=1e-6)
    look = {field: int(found[f"{field}_strongest"][1, 1, 0]) for field in ("row", "query", "key")}
    assert float(found.score_strongest[1, 1, 0]) == pytest.approx(
        float(pattern[1, look["row"], 1, look["query"], look["key"]]), abs=1e-6
    )


def test_kept_looks_are_a_uniform_sample() -> None:
    """Of 16 x 256 rows each batch leaves as many as the others."""
    found = survey(Transformer(replace(TINY, n_ctx=64)).eval(), rows(512, 64), tokens=2**20)
    kept = found.row_kept[0, 0].values
    assert (kept >= 0).all() and len(kept) == surveying.KEPT
    halves = (kept < 256).mean()
    assert abs(halves - 0.5) < 4 * 0.5 / 16  # four standard errors
    scores = [found.score_kept[0, 0].values[places].mean() for _, places in deciles(found, 0, 0, 99)]
    assert scores == sorted(scores, reverse=True) and len(scores) == 10


def test_of_short_rows_every_query_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "AT_ONCE", 12)  # a row at once: each has a place of its own
    found = survey(Transformer(TINY).eval(), rows(400))
    assert abs((found.query_kept[0, 0].values <= 5).mean() - 5 / 11) < 4 * 0.5 / 16  # four standard errors


@pytest.mark.parametrize(
    ("distance", "bin_"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 4), (9, 5), (16, 5)]
)
def test_distances_are_binned_by_doubling(distance: int, bin_: int) -> None:
    assert bin_of(distance) == bin_


def test_a_survey_goes_on_where_it_ended(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "AT_ONCE", 256)
    copy = Run(shutil.copytree(run.dir, tmp_path / "copy"))
    whole, told = survey(run, tokens=4096), []
    first = survey(copy, tokens=4096, stop=lambda: len(told) >= 3, progress=lambda done, of: told.append((done, of)))
    assert not first.attrs["complete"] and told[-1] == (first.attrs["tokens_read"], 4096)
    then = survey(copy, tokens=4096, progress=lambda done, of: told.append((done, of)))
    assert then.identical(whole) and told[-1] == (4096, 4096)
    n = len(told)
    assert survey(copy, tokens=4096, progress=lambda done, of: told.append((done, of))).identical(whole)
    assert len(told) == n  # nothing was read again
    (path,) = (copy.dir / "surveys").iterdir()
    assert path.stat().st_size < 2e6 and path == survey_path(copy.dir, path.stem)
    path.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="remove it and survey again"):
        survey(copy, tokens=4096)


def test_of_a_batch_that_is_interrupted_nothing_is_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the second of two layers of the third batch; the survey then goes on as if there was none."""
    monkeypatch.setattr(surveying, "AT_ONCE", 256)
    copy = Run(shutil.copytree(run.dir, tmp_path / "copy"))
    whole, layers = survey(copy, tokens=4096), iter(range(6))
    shutil.rmtree(copy.dir / "surveys")

    def pattern(*call: Any) -> Tensor:
        if next(layers) == 5:
            raise KeyboardInterrupt
        return real(*call)

    real = AttentionCall.pattern
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(AttentionCall, "pattern", pattern)
        survey(copy, tokens=4096)
    begun = kept_survey(copy, run.steps[-1])
    assert begun is not None and 0 < begun.attrs["tokens_read"] <= 512
    assert survey(copy, tokens=4096).identical(whole)


TOGETHER = """
import sys, tracer
found = tracer.survey(tracer.open_run(sys.argv[1]), tokens=5 * 4096, progress=lambda *done: print(*done))
print(repr(found.entropy.values.tolist()))
"""


def test_two_processes_share_the_rows(run: Run, tmp_path: Path, free_port: int) -> None:
    """Five batches: the last turn has work for one of them only."""
    shared, alone = (Path(shutil.copytree(run.dir, tmp_path / name)) for name in ("shared", "alone"))
    first, second = (out.splitlines() for out in launch(2, free_port, str(shared), program=("-c", TOGETHER)))
    one = survey(tracer.open_run(alone), tokens=5 * 4096)
    n = one.attrs["tokens_read"]
    assert [line.split()[1] for line in first[:-1]] == [str(n)] * 3 and first[-2].split()[0] == str(n)
    assert second == first[-1:]
    two = kept_survey(tracer.open_run(shared), run.steps[-1])
    assert two is not None and two.attrs == one.attrs
    xr.testing.assert_allclose(two.drop_vars(LOOKS), one.drop_vars(LOOKS), atol=1e-6)
    for kind in ("strongest", "kept"):  # of equal scores another look may be first
        here, there = (np.sort(x[f"score_{kind}"].values, -1) for x in (one, two))
        np.testing.assert_array_equal(here, there)


def test_corpora_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracer.data.tokenizer import train_bpe

    text = "def f(self):\n    return self.value\n\n" * 40
    (tmp_path / "one.py").write_text(text)
    words = train_bpe([text], 300)
    model = Transformer(replace(TINY, d_vocab=words.get_vocab_size())).eval()
    with pytest.raises(ValueError, match="no tokenizer"):
        survey(model, [text])
    model.tokenizer = words
    for corpus in (str(tmp_path), tmp_path / "one.py", [text, text]):
        found = survey(model, corpus, tokens=120)
        assert found.tokens.shape == (10, 12) and (found.tokens[:, 0] == 0).all()
        assert words.decode(found.tokens.values[0, 1:].tolist()).startswith("def f(self")
    assert survey(model, [text], tokens=60, length=6).tokens.shape == (10, 6)
    monkeypatch.setattr(model, "bos", 7, raising=False)
    assert (survey(model, [text], tokens=60).tokens[:, 0] == 7).all()
    monkeypatch.setattr(model, "bos", None)
    bare = survey(model, [text], tokens=60).tokens
    assert bare.shape == (5, 12) and words.decode(bare.values[0].tolist()).startswith("def f(self")
    monkeypatch.undo()

    def stream() -> Iterator[str]:
        yield text
        raise AssertionError("more was read than was asked for")

    assert survey(model, stream(), tokens=120).tokens.shape == (10, 12)
    enough = len(words.encode(text).ids)
    assert survey(model, stream(), tokens=enough, length=6).tokens.shape == (enough // 6, 6)


def test_a_module_of_transformers_is_asked_as_it_is() -> None:
    theirs = causal("GPT-2")
    assert survey(theirs, rows(4)).identical(survey(tracer.load_hf(theirs), rows(4)))
    assert len(head_jobs(theirs, survey(theirs, rows(9)), 1, 1).jobs) >= 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"corpus": None}, "there is no held-out text"),
        ({"corpus": torch.full((2, 8), 50)}, "token 50 is outside the vocabulary"),
        ({"corpus": torch.zeros(8)}, "whole numbers"),
        ({"corpus": rows(4), "budget_mb": 0.01}, "budget_mb=0.01"),
        ({"corpus": rows(4), "length": 1}, "at least 2 tokens"),
    ],
)
def test_what_cannot_be_read_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        survey(Transformer(TINY).eval(), **options)


def test_the_jobs_of_a_head_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that writes one thing where rows are of low tokens, and another where they are of high ones."""
    monkeypatch.setattr(surveying, "AT_ONCE", 12)  # one place for all rows could be the last, which has no next token
    config = ModelConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=12, d_vocab=20, norm="none", positions="none")
    model = Transformer(config).eval()
    with torch.no_grad():
        attn = model.blocks[0].attn
        model.embed.W_E.zero_()
        model.embed.W_E[:10, 0], model.embed.W_E[10:, 1] = 1, 1
        for weight in (attn.W_Q, attn.W_K):
            weight.zero_()  # uniform attention
        attn.W_V.copy_(torch.eye(8)[None])
        assert attn.W_O is not None
        attn.W_O.copy_(torch.eye(8)[None])
        model.unembed.W_U.zero_()  # type: ignore[union-attr]
        model.unembed.W_U[1, 10:] = 4  # type: ignore[union-attr]
    generator = torch.Generator().manual_seed(0)
    low, high = (torch.randint(first, first + 10, (n, 12), generator=generator) for first, n in ((0, 30), (10, 10)))
    found = head_jobs(model, survey(model, torch.cat([low, high])), 0, 0)
    assert len(found.jobs) == 2 and found.silhouette > 0.9 and found.explained == pytest.approx(1, abs=1e-6)
    few, many = sorted(found.jobs, key=lambda job: job.share)
    assert few.share == pytest.approx(0.25, abs=0.1)
    assert all(token >= 10 for token, _ in few.keys) and all(token < 10 for token, _ in many.keys)
    # off, the stream itself still says 1: logits 4 of ten tokens instead of 8; of low tokens nothing changes
    wanted = (np.log(10 * np.exp(4) + 10) - 4) - (np.log(10 * np.exp(8) + 10) - 8)
    assert few.cost == pytest.approx(wanted, abs=1e-4) and many.cost == pytest.approx(0, abs=1e-6)
    assert few.cost_se == pytest.approx(0, abs=1e-5)
    looks = survey(model, low)
    with torch.no_grad():
        attn.W_O.fill_(torch.nan)
    with pytest.raises(ValueError, match="what L0H0 writes is not finite"):
        head_jobs(model, looks, 0, 0)


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        (None, "held-out text"),
        ("texts/a.txt", "texts/a.txt"),
        (Path("a"), "a"),
        (torch.zeros(1, 2), "rows of tokens"),
        (np.zeros((1, 2)), "rows of tokens"),
        (["one", "two"], "texts"),
    ],
)
def test_a_corpus_in_words(corpus: Any, expected: str) -> None:
    assert surveying._in_words(corpus) == expected
