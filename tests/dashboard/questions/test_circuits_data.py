"""Readings of the weights of heads, by whole matrices in float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from dashboard.loading import norm_scales
from dashboard.views.circuits import data
from tests.dashboard.questions.conftest import Write, of_size, rebuildable
from tracer.analysis import by_distance, logit_attribution, skip_trigrams
from tracer.config import ModelConfig
from tracer.data.probes import repeated
from tracer.files.sealed import pack
from tracer.interventions.edits import recording
from tracer.measures import composition
from tracer.model import Transformer
from tracer.pictures import bipartite
from tracer.store import Run
from tracer.store.layout import snapshot_path

TOKENS = (0, 5, 6, 5, 9)
NAN = float("nan")


def foreign(write: Write, name: str, **sizes: int) -> Run:
    model = of_size(**sizes)
    paths = [f"transformer.h.{i}.attn" for i in range(len(model.transformer.h))]
    loss = {"val_loss": ((), np.ones(1))}
    return rebuildable(write, name, model, paths, [0], loss, n_ctx=model.config.n_positions)


def other_model(copy_run: Callable[..., Run], name: str, **fields: Any) -> Run:
    """The run with another model, random, at step 10."""
    run = copy_run(name)
    config = replace(run.config.model, **fields)
    meta = json.loads((run.dir / "run.json").read_text())
    meta["config"]["model"] = asdict(config)
    meta["digests"] = {}
    (run.dir / "run.json").write_text(json.dumps(meta))
    whole: ModelConfig = replace(config, d_vocab=65)
    model = Transformer(whole, seed=3)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    snapshot_path(run.dir, 10).write_bytes(pack(model.state_dict()))
    return Run(run.dir)


def double(run: Run, step: int) -> tuple[np.ndarray, ...]:
    """W_Q, W_K, W_V, W_O [layer head ...], W_E and W_U."""
    found: Any = run.model(step).head_weights()
    return tuple(one.double().numpy() for one in found)


def test_weights_or_why_they_are_unknown(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = small_run.model(20)
    torch.testing.assert_close(data.weights(small_run, 20).W_Q[1], model.blocks[1].attn.W_Q.detach())
    assert data.why_unknown(small_run, 20) == ""

    def refused(_run: Run, _step: int) -> None:
        raise ValueError("told why")

    monkeypatch.setattr(data, "weights", refused)
    assert data.why_unknown(small_run, 20) == "told why"
    assert data.AT_ONCE == 33_554_432


def test_what_every_head_reads_of_every_earlier_one(write: Write) -> None:
    """Three layers of two heads: 3 * 4 pairs of heads of two layers each, for keys, queries and values."""
    run, told = foreign(write, "three", n_layer=3), []
    found = data.composition(run, 0, ("k", "v"), lambda done, of: told.append((done, of)))
    W = data.weights(run, 0)[:4]
    expected = {into: composition.composition(into, *W).numpy() for into in ("k", "v")}
    assert list(found.scores) == ["k", "v"]
    for into, scores in expected.items():
        np.testing.assert_array_equal(found.scores[into], scores)
    steps = []
    composition.composition("k", *W, lambda done, of: steps.append((done, of)))
    total = steps[-1][1]
    assert told == [(done, 2 * total) for done, _ in steps] + [(total + done, 2 * total) for done, _ in steps]
    assert (found.mean, found.sd) == composition.random_composition(16, 8) and found.pairs == 36
    assert found.edge == composition.stands_out(16, 8, 36)
    assert found.blob == bipartite.pack(expected, found.mean, found.sd, found.edge)
    again = data.composition(run, 0, ("k", "v"), lambda *_: pytest.fail("it was kept"))
    assert again is found
    single = data.composition(foreign(write, "one", n_layer=1), 0, ("k",), lambda *_: None)
    assert single.pairs == 0 and single.edge == composition.stands_out(16, 8, 1)


def test_who_reads_most() -> None:
    scores = np.full((2, 2, 2, 2), NAN)
    scores[0, :, 1] = [[0.1, 0.5], [0.3, 0.4]]
    found = data.Composition({"k": scores}, 0, 0, 0, 0, b"")
    assert found.sharpest("k", (1, 0)) == ((0, 1), 0.3) and found.sharpest("k", (1, 1)) == ((0, 0), 0.5)
    assert found.sharpest("k", (0, 0)) is None
    assert found.widest("k", (0, 0)) == ((1, 1), 0.5) and found.widest("k", (1, 0)) is None


def test_how_heads_copy(small_run: Run) -> None:
    _, _, W_V, W_O, W_E, W_U = double(small_run, 20)
    found = data.copying(small_run, 20)
    assert found.eigenvalues.shape == (2, 4, 16)
    for at in np.ndindex(2, 4):
        values = np.linalg.eigvals(W_O[at] @ W_U @ W_E @ W_V[at])
        assert found.scores[at] == pytest.approx(values.real.sum() / np.abs(values).sum(), abs=1e-4)
        np.testing.assert_allclose(np.sort(np.abs(found.eigenvalues[at])), np.sort(np.abs(values)), rtol=1e-3)
    weights = data.weights(small_run, 20)
    assert weights.W_U is not None
    assert (found.mean, found.sd) == composition.random_copying(weights.W_E, weights.W_U, 16)


def circuits(run: Run, step: int, head: tuple[int, int], scale: float) -> tuple[np.ndarray, np.ndarray]:
    """QK and OV over the vocabulary, norms at their mean scale: before a layer, or after it."""
    W_Q, W_K, W_V, W_O, W_E, W_U = double(run, step)
    norms, (layer, h) = norm_scales.norms(run, step), head

    def through(name: str, x: np.ndarray) -> np.ndarray:
        norm, divisor = norms[name]
        x = (x - x.mean(-1, keepdims=True) if norm.centre else x) / divisor
        return x if norm.gain is None else x * norm.gain.double().numpy()

    own, post = f"blocks.{layer}.ln1", run.name == "post"
    read = W_E if post else through(own, W_E)
    write = through(own, W_O[layer, h]) if post else W_O[layer, h]
    write = through("ln_final", write)
    qk = read @ W_Q[layer, h] @ (read @ W_K[layer, h]).T * scale
    return qk, read @ W_V[layer, h] @ write @ W_U


def products(run: Run, step: int, head: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        who, whom, left, right = data.halves(run, step, head)
    return (who @ whom).numpy(), (left @ right).numpy()


def test_circuits_over_the_vocabulary(small_run: Run, write: Write, copy_run: Callable[..., Run]) -> None:
    post = other_model(copy_run, "post", norm_position="post")
    others = foreign(write, "gpt")
    for run, step, head, scale in (
        (small_run, 20, (1, 2), 0.25),
        (post, 10, (0, 1), 0.25),
        (others, 2, (1, 0), 8**-0.5),
    ):
        for found, expected in zip(products(run, step, head), circuits(run, step, head, scale), strict=True):
            np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max(), err_msg=run.name)


def test_norms_that_are_unknown_are_left_out(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Run.why_not
    monkeypatch.setattr(Run, "why_not", lambda self, what: "left out" if what == "norm_scales" else known(self, what))
    W_Q, W_K, W_V, W_O, W_E, W_U = (one[1, 2] if one.ndim == 4 else one for one in double(small_run, 20))
    qk, ov = products(small_run, 20, (1, 2))
    np.testing.assert_allclose(qk, W_E @ W_Q @ (W_E @ W_K).T / 4, atol=1e-4)
    np.testing.assert_allclose(ov, W_E @ W_V @ W_O @ W_U, atol=1e-4)


def test_the_words_of_a_head(small_run: Run) -> None:
    qk, ov = products(small_run, 20, (1, 2))
    found = data.words(small_run, 20, (1, 2))
    other = np.where(np.eye(65), -np.inf, ov)  # what it copies is listed beside it
    for entries, whole in ((found.moves, other), (found.looks, qk)):
        order = np.argsort(-whole, axis=None)[:12]
        assert [(row, col) for row, col, _ in entries] == [divmod(int(at), 65) for at in order]
        np.testing.assert_allclose([value for *_, value in entries], whole.ravel()[order], rtol=1e-4)
    own = [token for token in range(65) if ov[token].argmax() == token]
    assert found.copied == pytest.approx(len(own) / 65)
    assert [token for token, _ in found.copies] == sorted(own, key=lambda token: -ov[token, token])[:12]
    np.testing.assert_allclose([value for _, value in found.copies], [ov[token, token] for token, _ in found.copies])


def softmaxed(vectors: np.ndarray, run: Run, step: int, head: tuple[int, int], scale: float) -> np.ndarray:
    W_Q, W_K = (one[head] for one in double(run, step)[:2])
    scores = np.where(np.tri(len(vectors)), vectors @ W_Q @ (vectors @ W_K).T * scale, -np.inf)
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("normed", [True, False])
def test_what_positions_alone_attend_to(normed: bool, small_run: Run) -> None:
    model: Any = small_run.model(20)
    vectors = model.pos_embed.W_pos.detach().double()[:7]
    if normed:
        norm, scale = norm_scales.norms(small_run, 20)["blocks.1.ln1"]
        assert norm.gain is not None
        vectors = vectors / scale * norm.gain.double()
    found = data.positions(small_run, 20, (1, 2), 7, normed)
    np.testing.assert_allclose(found, softmaxed(vectors.numpy(), small_run, 20, (1, 2), 0.25), atol=1e-5)


def test_positions_of_other_models(write: Write, copy_run: Callable[..., Run]) -> None:
    """Sinusoids of ours; of GPT-2 its table, of which the first 1,024 are read."""
    waves = other_model(copy_run, "waves", positions="sinusoidal")
    model: Any = waves.model(10)
    expected = softmaxed(model.sinusoid.double().numpy()[:9], waves, 10, (0, 1), 0.25)
    np.testing.assert_allclose(data.positions(waves, 10, (0, 1), 9, False), expected, atol=1e-5)
    for name, n_ctx, n in (("short", 30, 30), ("long", 1030, 1024)):
        run = foreign(write, name, n_positions=n_ctx, n_layer=1)
        table: Any = run.model(0)
        vectors = table.model.transformer.wpe.weight.detach()[:n]
        torch.testing.assert_close(data._positions(run, 0), vectors, atol=1e-5, rtol=1e-4)


def test_distances_need_more_than_eight_positions(small_run: Run) -> None:
    assert data.distances(small_run, 20, (1, 2), 8, True) is None
    found = data.distances(small_run, 20, (1, 2), 9, True)
    expected = by_distance.distances(data.positions(small_run, 20, (1, 2), 9, True))
    assert repr(found) == repr(expected)


def stripes_of(run: Run, step: int, bos: int, at: int) -> by_distance.ByDistance:
    model = run.model(step)
    return by_distance.by_distance(model, repeated(model.d_vocab, model.n_ctx, bos, at=at).tokens)


def test_attention_by_distance(small_run: Run, write: Write) -> None:
    found, period = data.stripes(small_run, 20)
    assert period == 25 and repr(found) == repr(stripes_of(small_run, 20, 0, 25))
    for name, sizes, at in (("context", {"n_positions": 24}, 11), ("words", {"vocab_size": 21}, 10)):
        run = foreign(write, name, **sizes)
        meta = json.loads((run.dir / "run.json").read_text())
        (run.dir / "run.json").write_text(json.dumps({**meta, "bos": 5}))
        found, period = data.stripes(run, 0)
        assert period == at and repr(found) == repr(stripes_of(run, 0, 5, at))
    with pytest.raises(ValueError, match="for a period of 1"):
        data.stripes(foreign(write, "two words", vocab_size=2), 0)


def test_skip_trigrams(small_run: Run) -> None:
    found = data.trigrams(small_run, 20, (1, 2), (0.5, 0.01))
    with torch.no_grad():
        sources = skip_trigrams.sources(*data.halves(small_run, 20, (1, 2)))
    for place, trigrams in zip((0.5, 0.01), found, strict=True):
        best = skip_trigrams.strongest(sources, place, 12)
        assert len(trigrams) == 12
        for i, one in enumerate(trigrams):
            assert (one.source, one.looks, one.raises) == (
                int(best.sources[i]), best.looks[i].tolist(), best.raises[i].tolist(),
            )  # fmt: skip
            assert (one.value, one.share) == (float(best.values[i]), float(best.shares[i][0]))


def test_what_a_head_gives_to_the_token_so_many_before(small_run: Run) -> None:
    with torch.no_grad(), recording("blocks.1.attn.hook_pattern") as seen:
        small_run.model(20)(norm_scales.reading(small_run, 20))
    pattern = seen["blocks.1.attn.hook_pattern"][:, 3].double().numpy()
    for back in (1, 5):
        rows = np.arange(back, pattern.shape[-1])
        found = data.seen(small_run, 20, (1, 3), back)
        assert found == pytest.approx(pattern[:, rows, rows - back].mean(), rel=1e-5)


def test_parts_of_a_logit_and_the_lens(small_run: Run) -> None:
    found = data.parts_of_logit(small_run, 20, TOKENS)
    tokens = torch.tensor([TOKENS])
    with torch.no_grad():
        logits = small_run.model(20)(tokens)[0].double().numpy()
    assert found.targets == [*TOKENS[1:], int(logits[-1].argmax())]
    raised = logits[np.arange(5), found.targets] - logits.mean(1)
    np.testing.assert_allclose(found.logit, raised, atol=1e-4)
    total = found.embed + found.heads.sum((0, 1)) + found.mlps.sum(0) + found.biases
    np.testing.assert_allclose(total, raised, atol=1e-4)
    assert found.heads.shape == (2, 4, 5)
    expected = logit_attribution.logit_attribution(small_run.model(20), tokens)
    np.testing.assert_allclose(found.heads, expected["heads"].isel(batch=0).values, atol=1e-6)
    last = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    for position, token in enumerate(TOKENS[1:]):
        log_p, rank = data.lens(small_run, 20, TOKENS, position)
        assert log_p.shape == rank.shape == (3,)
        assert log_p[-1] == pytest.approx(last[position, token], abs=1e-4)
        assert rank[-1] == (last[position] > last[position, token]).sum()
