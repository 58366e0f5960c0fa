"""Many sets of heads switched off on one batch, exactly, computing nothing twice and holding no more than a budget.

Sets share the clean run, the way that they have in common, and one batch (`PrefixCachedForward`); of the logits only a
chunk of those that the metric reads exists at a time. Numbers are those of `effect`, but for the order of sums. A sweep
of L layers costs about L / 2 blocks and one unembedding a head; plain forward passes cost L blocks and one unembedding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tracer.ablate.metrics import AnyMetric, Metric, OwnMetric, metric_of, reader, wanted
from tracer.ablate.parts import check_heads
from tracer.ablate.planner import Plans, averaged, checked, inputs, planner, ready
from tracer.ablate.prefix_cached import PrefixCachedForward, Variant, sources
from tracer.config import ModelConfig
from tracer.huggingface.any_model import any_model
from tracer.huggingface.wrapped import WrappedModel
from tracer.interventions.edits import active, recording
from tracer.interventions.replacements import DRAWS, Mode, draws_of, own_rows
from tracer.measures.aliases import Head, Progress
from tracer.model import Transformer
from tracer.model.protocol import HeadModel

Sets = Sequence[tuple[Head, ...]]
BUDGET = 256 * 2**20
"""Bytes: a quarter for the clean run, half for the sets, a quarter for logits."""


@any_model
def losses(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    sets: Iterable[Iterable[Head]],
    mode: Mode | str = "zero",
    *,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Float[Tensor, "set batch loss_pos"]:
    """The loss in nats of every next token with each set of heads off; an empty set is the clean run.

    Arguments as in `effect`; budget and progress as in `metric_under_ablation`.
    """
    return metric_under_ablation(
        model, tokens, sets, mode, reference=reference, frozen=frozen, draws=draws, seed=seed, budget=budget,
        progress=progress,
    )  # fmt: skip


@any_model
@torch.no_grad()
def metric_under_ablation(
    model: HeadModel,
    tokens: Int[Tensor, "batch pos"],
    sets: Iterable[Iterable[Head]],
    mode: Mode | str = "zero",
    *,
    metric: AnyMetric | None = None,
    reference: Int[Tensor, "reference_batch reference_pos"] | None = None,
    frozen: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
    budget: int = BUDGET,
    progress: Progress | None = None,
) -> Float[Tensor, "set batch read"]:
    """The metric (default: `Loss()`) with each set of heads off, mean over draws; an empty set is the clean run.

    `metric` is one of `tracer.ablate`, a function of (logits, targets, clean), which gives one number a sequence (read
    is 1; `OwnMetric`), or a name, "kl", "loss" or "module:name". Arguments as in `effect`. `budget` is how many bytes
    the work may take beside weights and results; sets and sequences are split to fit. One that is being edited runs
    once a set instead, as does a model that others wrote, from the first layer on that loses a head where its stream is
    seen.
    """
    ready(model, tokens)
    metric = metric_of(metric)
    chosen = [tuple(check_heads(model, heads)) for heads in sets]
    if not chosen:
        raise ValueError("there are no sets of heads to switch off: name at least one")
    distinct = sorted(set(chosen))
    if _shares(model):
        source, numbers = checked(inputs(model, tokens), mode, reference, draws), draws_of(mode, draws, seed)
        values = _together(model, tokens, distinct, metric, mode, source, numbers, frozen, budget, progress)
    else:
        plans = planner(model, tokens, mode, reference=reference, frozen=frozen, draws=draws, seed=seed)
        values = _one_by_one(model, tokens, distinct, metric, plans, progress)
    place = {heads: i for i, heads in enumerate(distinct)}
    return values[[place[heads] for heads in chosen]]


def _together(
    model: Transformer, tokens: Tensor, sets: Sets, metric: Metric | OwnMetric, mode: Mode | str, source: Tensor,
    draws: range, frozen: bool, budget: int, progress: Progress | None,
) -> Float[Tensor, "set batch read"]:  # fmt: skip
    config, given = model.config, inputs(model, tokens)
    model.check(given)
    model.check(source)
    where, targets = wanted(metric, tokens, given.shape[1], model.d_vocab)
    pieces = split(
        config, given.shape[1], batch=len(given), draws=len(draws) if mode in ("resample", "paired") else 0,
        frozen=frozen, itemsize=model.embed.W_E.element_size(), budget=budget,
    )  # fmt: skip
    replacements = sources(model, source, own_rows(given, source), mode, draws, pieces.sequences)
    variants = [(i, Variant(heads, draw)) for i, heads in enumerate(sets) for draw in draws if heads]
    values, done = None, 0
    for first in range(0, len(given), pieces.sequences):
        some = slice(first, first + pieces.sequences)
        suffixes = PrefixCachedForward(model, given[some], where[some], replacements(some), frozen)

        def read(
            x: Tensor, some: slice = some, suffixes: PrefixCachedForward = suffixes
        ) -> Float[Tensor, "state batch read"]:
            if isinstance(metric, OwnMetric):
                at_once = max(1, pieces.rows // (2 * x.shape[2]))  # of whole sequences, beside the clean ones
                return _of_sequences(model, metric, x, suffixes.clean()[0], targets[some, :, 0], at_once)
            rows = x.flatten(0, 2)
            of_rows = targets[some].expand(len(x), -1, -1, -1).flatten(0, 2)
            parts = zip(rows.split(pieces.rows), of_rows.split(pieces.rows), strict=True)
            return torch.cat([metric.of(model.logits(x[None])[0], t) for x, t in parts]).view(x.shape[:3])

        if not sets[0]:
            clean = read(suffixes.clean())
            values = clean.new_zeros(len(sets), len(given), clean.shape[2]) if values is None else values
            values[0, some] = clean[0]
        for start in range(0, len(variants), pieces.variants):
            part = variants[start : start + pieces.variants]
            found = read(suffixes.run([variant for _, variant in part]))
            values = found.new_zeros(len(sets), len(given), found.shape[2]) if values is None else values
            values[:, some].index_add_(0, torch.tensor([i for i, _ in part], device=found.device), found / len(draws))
            done += len(part) * found.shape[1]
            if progress:
                progress(done, len(variants) * len(given))
    assert values is not None
    return values


def _of_sequences(
    model: Transformer, metric: OwnMetric, x: Float[Tensor, "state batch read d_model"],
    before: Float[Tensor, "batch read d_model"], targets: Int[Tensor, "batch read"], at_once: int,
) -> Float[Tensor, "state batch 1"]:  # fmt: skip
    """The metric of each state; the clean logits of some sequences serve all states."""
    parts = []
    for states, clean, of_rows in zip(x.split(at_once, 1), before.split(at_once), targets.split(at_once), strict=True):
        unablated = model.logits(clean)
        parts.append(torch.stack([metric.of_sequences(model.logits(state), of_rows, unablated) for state in states]))
    return torch.cat(parts, 1)[..., None]


def _one_by_one(
    model: HeadModel, tokens: Tensor, sets: Sets, metric: Metric | OwnMetric, plans: Plans, progress: Progress | None
) -> Float[Tensor, "set batch read"]:  # fmt: skip
    given = inputs(model, tokens)
    of_logits = reader(metric, tokens, given.shape[1], model.d_vocab, lambda: model(given))
    begins = Counter(heads[0][0] for heads in sets if heads)
    values: list[Tensor] = []
    begin: Callable[[], AbstractContextManager[None]] = nullcontext
    skipped = 0

    def read() -> Tensor:
        with begin():
            return of_logits(model(given))

    for heads in sets:  # sorted, so that no layer is turned back to
        layer = heads[0][0] if heads else 0
        if layer > skipped and begins[layer] * layer > model.n_layers and _can_begin(model):
            with recording(tap := f"blocks.{layer}.hook_resid_pre") as seen:
                read()
            begin, skipped = partial(model.beginning, layer, seen[tap]), layer
        values.append(averaged(plans(heads), read) if heads else read())
        if progress:
            progress(len(values), len(sets))
    return torch.stack(values)


def _shares(model: HeadModel) -> TypeGuard[Transformer]:
    """Can many sets of heads run in one batch? Not while something is in force, which may fit this batch alone."""
    return model.reuse == "shared" and active() is None


def _can_begin(model: HeadModel) -> TypeGuard[WrappedModel]:
    """Is its stream seen, and is nothing in force that may change what enters a later block?"""
    return model.reuse == "begins" and active() is None


@dataclass(frozen=True)
class Split:
    """What is done at once."""

    sequences: int
    variants: int
    """Sets, each with one draw of its replacements."""
    rows: int
    """Positions of all of these that are unembedded."""


def split(config: ModelConfig, pos: int, *, batch: int, draws: int, frozen: bool, itemsize: int, budget: int) -> Split:
    """The largest pieces that fit; ValueError with what it takes if one set on one sequence does not.

    Each sequence needs those of the reference batch that replace it in each of the `draws`.
    """
    heads, hidden = config.n_heads * config.head_width, max(config.mlp_hidden, default=0)
    kept = config.n_layers * pos * (2 * config.d_model + (1 + draws) * heads)
    pattern = 4 * config.n_heads * pos**2 if frozen else 0
    state = pos * (3 * config.d_model + max(6 * heads + config.d_model, 2 * config.d_model + 3 * hidden))
    state += pos * 2 * heads * config.attn_gate
    row = 2 * (config.d_vocab or 0) + 3 * max(config.unembed_hidden, default=0)
    sequence, variant, logits = (itemsize * n for n in (kept + pattern, state, row))
    least = max(4 * sequence, 2 * variant, 4 * logits)
    if budget < least:
        raise ValueError(
            f"budget={budget} bytes is too small: one set of heads on one sequence of {pos} tokens needs {least} "
            f"({least / 2**20:.0f} MiB); give a larger budget or shorter sequences"
        )
    sequences = min(batch, budget // 4 // sequence, budget // 2 // variant)
    return Split(sequences, budget // 2 // (variant * sequences), budget // 4 // logits)
