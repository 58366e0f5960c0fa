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
from tokenizers.processors import TemplateProcessing
from torch import Tensor

import tracer
from tests.causal_families import causal
from tracer.analysis import survey as surveying
from tracer.analysis.head_jobs import Jobs, head_jobs
from tracer.analysis.survey import bin_of, deciles, kept_survey, survey
from tracer.config import InitConfig, ModelConfig
from tracer.heads.call import AttentionCall
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.store import Run
from tracer.store.surveys import read_survey, survey_path, write_survey

TINY = ModelConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=12, d_vocab=50)


def rows(n: int, length: int = 12) -> Tensor:
    return torch.randint(2, 50, (n, length), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def every_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "SAMPLE", 1)


@pytest.fixture
def run(short_toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(shutil.copytree(short_toy, tmp_path_factory.mktemp("surveyed") / "tiny"))


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


@pytest.mark.parametrize("length", [12, 16, 17, 40])
def test_every_query_is_looked_at_as_likely(length: int) -> None:
    """In batches as large as they are: a mean is of all queries of the rows, not of the few that one offset allows."""
    model, n = Transformer(replace(TINY, n_ctx=length)).eval(), 2000
    place = np.bincount(survey(model, rows(n, length), tokens=2**20).query_kept[1, 1], minlength=length)
    assert place[0] == 0
    expected = surveying.KEPT / (length - 1)
    assert (np.square(place[1:] - expected) / expected).sum() < length - 1 + 5 * (2 * (length - 1)) ** 0.5


def exact(model: Transformer, tokens: Tensor) -> dict[str, np.ndarray]:
    """Means over every query but the first, a pattern at a time, and how they differ between rows [row layer head]."""
    found: dict[str, list[np.ndarray]] = {"entropy": [], "sink": [], "sharpest": []}
    for row in tokens.split(64):
        with torch.no_grad(), recording("hook_pattern") as seen:
            model(row)
        pattern = torch.stack(list(seen.values()), 1).double()[..., 1:, :]
        found["entropy"].append(torch.special.entr(pattern).sum(-1).mean(-1).numpy())
        found["sink"].append(pattern[..., 0].mean(-1).numpy())
        here = torch.arange(pattern.shape[-2])
        pattern[..., 0] = pattern[..., here, here + 1] = 0
        found["sharpest"].append(pattern.amax(-1).mean(-1).numpy())
    return {name: np.concatenate(parts) for name, parts in found.items()}


@pytest.mark.parametrize("length", [16, 64])
def test_means_are_those_of_every_query_within_their_errors(length: int) -> None:
    """At the size of the guide's call; entropies grow with the place of a query, so an offset for a batch is seen."""
    config = replace(TINY, n_ctx=length, n_heads=4, init=InitConfig(attn=0.5))
    model, tokens = Transformer(config).eval(), rows(2**14 // length, length)
    found, truth = survey(model, tokens, tokens=2**14), exact(model, tokens)
    for name, by_row in truth.items():
        off, error = abs(found[name].values - by_row.mean(0)), found[f"{name}_se"].values
        assert (off < 4 * error).all(), name
        assert (error < {"entropy": 0.03, "sink": 0.02, "sharpest": 0.02}[name]).all(), name


def test_an_older_survey_is_as_if_it_was_not_there(run: Run, tmp_path: Path) -> None:
    """Those before standard errors looked at the same few places of all rows of a batch."""
    copy = Run(shutil.copytree(run.dir, tmp_path / "copy", ignore=shutil.ignore_patterns("surveys")))
    whole = survey(copy, tokens=1024)
    (path,) = (copy.dir / "surveys").iterdir()
    kept = read_survey(copy.dir, path.stem)
    assert kept is not None
    older = {name: x for name, x in kept[0].items() if not name.endswith(("_squared", "_by_looks"))}
    write_survey(copy.dir, path.stem, older, kept[1])
    assert kept_survey(copy, copy.steps[-1]) is None
    assert survey(copy, tokens=1024).identical(whole)


def kept_arrays() -> dict[str, np.ndarray]:
    """An empty survey of 3 rows of 5 tokens, 2 layers of 1 head."""
    return surveying._empty((2, 1), np.zeros((3, 5), np.int32))


@pytest.mark.parametrize("kind", ["kept", "strongest"])
@pytest.mark.parametrize(("field", "end"), [("row", 3), ("query", 5), ("key", 5)])
def test_places_that_a_survey_cannot_have_are_damage(field: str, end: int, kind: str) -> None:
    for place, whole in ((-2, False), (-1, True), (0, True), (end - 1, True), (end, False)):
        arrays = kept_arrays()
        arrays[f"{field}_{kind}"][1, 0, -1] = place
        if whole:
            assert surveying._whole((arrays, "texts", "")) == (arrays, "texts", "")
        else:
            with pytest.raises(ValueError, match="is damaged"):
                surveying._whole((arrays, "texts", ""))


@pytest.mark.parametrize(("done", "whole"), [(-1, False), (0, True), (3, True), (4, False)])
def test_a_survey_has_read_no_more_rows_than_there_are(done: int, whole: bool) -> None:
    arrays = kept_arrays()
    arrays["done"][0] = done
    if whole:
        assert surveying._whole((arrays, "", "")) is not None
    else:
        with pytest.raises(ValueError, match="is damaged"):
            surveying._whole((arrays, "", ""))


@pytest.mark.parametrize(
    "change",
    [
        {"entropy": np.zeros((3, 1))}, {"entropy": np.zeros((2, 1), np.float32)}, {"entropy": np.zeros(2)},
        {"tokens": np.zeros((3, 6), np.int32)}, {"tokens": np.zeros(3, np.int32)}, {"more": np.zeros(1)},
    ],
)  # fmt: skip
def test_arrays_of_other_shapes_are_damage(change: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="is damaged"):
        surveying._whole((kept_arrays() | change, "", ""))


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


def test_batches_are_kept_while_it_goes_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a kill, after which nothing is written any more, costs some batches and not all."""
    monkeypatch.setattr(surveying, "AT_ONCE", 256)
    monkeypatch.setattr(surveying, "SAVE_EVERY", 2)
    copy, seen = Run(shutil.copytree(run.dir, tmp_path / "copy")), list[int]()

    def look(done: int, of: int) -> None:
        begun = kept_survey(copy, run.steps[-1])
        seen.append(0 if begun is None else int(begun.attrs["tokens_read"]))

    whole = survey(copy, tokens=2048, progress=look)
    assert seen[0] == 0 and sorted(seen) == seen and len(set(seen)) > 2
    assert seen[-1] <= whole.attrs["tokens_read"]


def test_of_a_batch_that_is_interrupted_nothing_is_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes in the second of two layers of the third batch; the survey then goes on as if there was none."""
    monkeypatch.setattr(surveying, "AT_ONCE", 256)
    copy = Run(shutil.copytree(run.dir, tmp_path / "copy"))
    whole, layers = survey(copy, tokens=4096), [1]
    shutil.rmtree(copy.dir / "surveys")

    def pattern(call: AttentionCall, *rows: Any) -> Tensor:
        if call.layer != layers[-1]:
            layers.append(call.layer)
        if len(layers) == 7:  # three times both
            raise KeyboardInterrupt
        return real(call, *rows)

    real = AttentionCall.pattern
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(AttentionCall, "pattern", pattern)
        survey(copy, tokens=4096)
    begun = kept_survey(copy, run.steps[-1])
    assert begun is not None and 0 < begun.attrs["tokens_read"] <= 512
    assert survey(copy, tokens=4096).identical(whole)


def test_corpora_of_any_kind(tmp_path: Path) -> None:
    from tracer.data.tokenizer import train_bpe

    text = "def f(self):\n    return self.value\n\n" * 40
    (tmp_path / "one.py").write_text(text)
    words = train_bpe([text], 300)
    words.post_processor = TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    model = Transformer(replace(TINY, d_vocab=words.get_vocab_size())).eval()
    with pytest.raises(ValueError, match="no tokenizer"):
        survey(model, [text])
    model.tokenizer = words
    for corpus in (str(tmp_path), tmp_path / "one.py", [text, text]):
        found = survey(model, corpus, tokens=120)
        assert found.tokens.shape == (10, 12) and (found.tokens[:, 0] == 0).all()
        assert (found.tokens[:, 1:] != 0).all()
        assert words.decode(found.tokens.values[0, 1:].tolist()).startswith("def f(self")
    assert survey(model, [text], tokens=60, length=6).tokens.shape == (10, 6)

    def stream() -> Iterator[str]:
        yield text
        raise AssertionError("more was read than was asked for")

    assert survey(model, stream(), tokens=120).tokens.shape == (10, 12)


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


def test_the_jobs_of_a_head_are_told_apart() -> None:
    """A head that writes one thing where rows are of low tokens, and another where they are of high ones."""
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
        model.unembed.W_U.zero_()  # pyrefly: ignore[not-callable]
        model.unembed.W_U[1, 10:] = 4  # pyrefly: ignore[unsupported-operation]
    generator = torch.Generator().manual_seed(0)
    low, high = (torch.randint(first, first + 10, (n, 12), generator=generator) for first, n in ((0, 90), (10, 30)))
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


def around(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Places on a sphere of d dimensions."""
    x = rng.standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


NOTHING = {
    "a Gaussian": lambda rng, n: rng.standard_normal((n, 8)),
    "a long Gaussian": lambda rng, n: rng.standard_normal((n, 8)) * 2.0 ** -np.arange(8),
    "a line": lambda rng, n: rng.uniform(-1, 1, (n, 1)),
    "a circle": lambda rng, n: around(rng, n, 2),
    "a sphere": lambda rng, n: around(rng, n, 3),
    "a square": lambda rng, n: rng.uniform(-1, 1, (n, 2)),
    "heavy tails": lambda rng, n: rng.standard_t(3, (n, 2)),
    "skewed": lambda rng, n: rng.exponential(size=(n, 1)),
}


def jobs_of(written: np.ndarray) -> Jobs:
    """The groups of what a head writes: of a model whose tokens are these, [look d_model], each read twice in a row."""
    n, d = written.shape
    config = ModelConfig(n_layers=1, n_heads=1, d_model=d, n_ctx=2, d_vocab=n, norm="none", positions="none")
    model = Transformer(config).double().eval()
    with torch.no_grad():
        attn = model.blocks[0].attn
        model.embed.W_E.copy_(torch.from_numpy(written))
        for weight, value in ((attn.W_Q, 0), (attn.W_K, 0), (attn.W_V, 1), (attn.W_O, 1)):
            assert weight is not None
            weight.copy_(value * torch.eye(d)[None])
    return head_jobs(model, survey(model, torch.arange(n)[:, None].expand(-1, 2)), 0, 0)


@pytest.mark.parametrize("kind", NOTHING)
def test_one_shape_is_one_job(kind: str) -> None:
    """Directions are what is grouped, so a shape lies in the plane that all directions cross."""
    rng = np.random.default_rng(3)
    for n in (256, 256, 60):
        shape = 0.2 * NOTHING[kind](rng, n)
        found = jobs_of(np.concatenate([shape, np.ones((n, 1))], 1))
        assert len(found.jobs) == 1 and np.isnan(found.silhouette)


@pytest.mark.parametrize("few", [26, 64, 128])
def test_two_clear_jobs_are_two(few: int) -> None:
    z = np.random.default_rng(few).standard_normal((256, 12)) * 0.1
    z[:few, 0] += 1
    z[few:, 1] += 1
    found = jobs_of(z)
    assert len(found.jobs) == 2 and sorted(round(256 * job.share) for job in found.jobs) == sorted([few, 256 - few])
