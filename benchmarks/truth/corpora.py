"""Attacks on what is said of a corpus: means of a survey against every query, and the jobs of heads that have none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from benchmarks.truth.attack import Attack
from tracer import data
from tracer.analysis.head_jobs import head_jobs
from tracer.analysis.survey import survey
from tracer.config import InitConfig, ModelConfig
from tracer.interventions.edits import recording
from tracer.model import Transformer
from tracer.presets import preset

TOKENS = 2**14
SHAPES, SEEDS = 20, 5
Shape = Callable[[np.random.Generator, int], np.ndarray]


def attacks() -> Iterator[Attack]:
    torch.set_num_threads(1)
    yield from _means()
    yield _nothing()
    yield _untrained()
    yield _two()


def _means() -> Iterator[Attack]:
    """Held-out text of the demo, and a model whose heads look far: entropies grow with the place of a query."""
    config = preset("demo").config
    text = data.build(config.data, 64, config.seed).val(TOKENS // 64)
    for n_ctx in (16, 64):
        tokens = text.flatten().view(-1, n_ctx)
        model = Transformer(replace(config.model, n_ctx=n_ctx, d_vocab=1024, init=InitConfig(attn=0.3)), seed=3).eval()
        found, truth = survey(model, tokens, tokens=TOKENS), _exact(model, tokens)
        off, error = abs(found.entropy.values - truth), found.entropy_se.values
        queries = np.unique(found.query_kept.values[found.row_kept.values >= 0])
        yield Attack(
            "A head's mean entropy over a corpus is that of all its queries, within the error beside it",
            "Find, over a corpus; tracer.survey",
            f"{len(tokens)} rows of {n_ctx} tokens of held-out text, 8 heads, against every query of every row in "
            "float64", f"off by at most {off.max():.3f} nats, {(off / error).max():.1f} standard errors (up to "
            f"{error.max():.3f}); {len(queries)} of {n_ctx - 1} positions are looked at",
            bool((off < 4 * error).all()) and len(queries) == n_ctx - 1,
        )  # fmt: skip


@torch.no_grad()
def _exact(model: Transformer, tokens: Tensor) -> np.ndarray:
    """Mean entropy of every head over all queries but the first of all rows."""
    total, n = 0.0, 0
    for rows in tokens.split(64):
        with recording("hook_pattern") as seen:
            model(rows)
        pattern = torch.stack(list(seen.values())).double()[..., 1:, :]
        total = total + torch.special.entr(pattern).sum((-1, -2)).sum(1)
        n += len(rows) * (tokens.shape[1] - 1)
    assert isinstance(total, Tensor)
    return (total / n).numpy()


def _sphere(d: int) -> Shape:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.standard_normal((n, d))
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    return draw


ONE: dict[str, Shape] = {
    "a Gaussian of 8 dimensions": lambda rng, n: rng.standard_normal((n, 8)),
    "a line": lambda rng, n: rng.uniform(-1, 1, (n, 1)), "a circle": _sphere(2), "a sphere": _sphere(3),
    "half a circle": lambda rng, n: np.exp(1j * rng.uniform(0, np.pi, n)).view(float).reshape(n, 2),
    "a square": lambda rng, n: rng.uniform(-1, 1, (n, 2)), "a triangle": lambda rng, n: rng.dirichlet([1, 1, 1], n),
    "heavy tails": lambda rng, n: rng.standard_t(3, (n, 2)),
    "an exponential": lambda rng, n: rng.exponential(size=(n, 1)),
}  # fmt: skip


def _jobs(written: np.ndarray) -> int:
    """Of a head that writes these, one at each look: a model whose tokens they are, each read twice in a row."""
    n, d = written.shape
    config = ModelConfig(n_layers=1, n_heads=1, d_model=d, n_ctx=2, d_vocab=n, norm="none", positions="none")
    model = Transformer(config).double().eval()
    with torch.no_grad():
        attn = model.blocks[0].attn
        assert attn.W_O is not None
        model.embed.W_E.copy_(torch.from_numpy(written))
        for weight, value in ((attn.W_Q, 0), (attn.W_K, 0), (attn.W_V, 1), (attn.W_O, 1)):
            weight.copy_(value * torch.eye(d)[None])
    return len(head_jobs(model, survey(model, torch.arange(n)[:, None].expand(-1, 2)), 0, 0).jobs)


def _nothing() -> Attack:
    rng, found = np.random.default_rng(0), {}
    for name, draw in ONE.items():
        directions = (np.concatenate([0.2 * draw(rng, 256), np.ones((256, 1))], 1) for _ in range(SHAPES))
        found[name] = sum(_jobs(one) > 1 for one in directions)
    tries = SHAPES * len(found)
    return Attack(
        "What falls into no groups is one job", "Find, the separate jobs of a head; tracer.analysis.head_jobs",
        f"256 looks that spread over {', '.join(found)}: {SHAPES} draws of each",
        f"called groups {sum(found.values())} times of {tries}", sum(found.values()) <= 0.05 * tries,
    )  # fmt: skip


def _untrained() -> Attack:
    found = []
    for name in ("demo", "induction"):
        config = preset(name).config
        built = data.build(config.data, 64, config.seed)
        tokens = built.val(TOKENS // 64)
        for seed in range(SEEDS):
            model = Transformer(replace(config.model, d_vocab=built.d_vocab), seed=seed).eval()
            looks = survey(model, tokens, tokens=TOKENS)
            found += [len(head_jobs(model, looks, layer, head).jobs) for layer in range(2) for head in range(4)]
    more = sum(n > 1 for n in found)
    return Attack(
        "A head of an untrained model has no separate jobs", "Find; tracer.analysis.head_jobs",
        f"every head of the demo and of the induction toy before training, {SEEDS} seeds, on held-out text",
        f"{more} of {len(found)} heads have more than one (it was 4 to 6 jobs in each)", more <= 0.05 * len(found),
    )  # fmt: skip


def _two() -> Attack:
    rng, found = np.random.default_rng(1), {}
    for few in (26, 64, 128):
        found[few] = 0
        for _ in range(SHAPES):
            written = 0.1 * rng.standard_normal((256, 12))
            written[:few, 0] += 1
            written[few:, 1] += 1
            found[few] += _jobs(written) == 2
    return Attack(
        "Two jobs that are apart are two", "Find; tracer.analysis.head_jobs",
        f"256 looks in two directions at right angles, a tenth of their length as noise; {SHAPES} draws of each size",
        ", ".join(f"{n} of {SHAPES} where the smaller has {few} looks" for few, n in found.items()),
        min(found.values()) >= 0.95 * SHAPES,
    )  # fmt: skip
