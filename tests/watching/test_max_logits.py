"""The largest logit of every head in the training's own passes: exact, and the training untouched."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from einops import einsum, rearrange
from torch import Tensor

import tracer
from tests.watching.loops import batches
from tracer.heads.row_maxima import row_maxima
from tracer.store import open_run


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """What another test compiled has nothing to do with these."""
    torch.compiler.reset()


@pytest.mark.parametrize("mask", ["none", "boolean", "added", "by head"])
@pytest.mark.parametrize(("causal", "queries", "kv"), [(True, 40, 4), (False, 40, 2), (False, 7, 1)])
def test_row_maxima_are_those_of_all_scores(mask: str, causal: bool, queries: int, kv: int) -> None:
    g = torch.Generator().manual_seed(0)
    q, k = torch.randn(3, queries, 4, 8, generator=g), torch.randn(3, 40, kv, 8, generator=g)
    shape = {"none": None, "boolean": (queries, 40), "added": (3, 1, queries, 40), "by head": (1, 4, queries, 40)}[mask]
    given = None if shape is None else torch.rand(shape, generator=g) > 0.3
    if given is not None:
        given[..., 2, :] = False
    scores = einsum(q.double(), k.double().repeat_interleave(4 // kv, 2), "b i h d, b j h d -> b h i j") * 0.3
    if causal:
        scores = scores.masked_fill(~torch.ones(queries, 40, dtype=torch.bool).tril(), -math.inf)
    if mask == "added":
        given = torch.where(given, torch.randn(given.shape, generator=g), -math.inf)  # pyrefly: ignore[missing-attribute, no-matching-overload]
        scores = scores + given
    elif given is not None:
        scores = scores.masked_fill(~given, -math.inf)
    found = row_maxima(q, k, scale=0.3, causal=causal, mask=given)
    torch.testing.assert_close(found, scores.amax(-1).float(), rtol=1e-5, atol=1e-5)


def by_hand(model: Any, idx: Tensor) -> Tensor:
    """[layer head], in float64, of GPT's own weights."""
    seen, hooks = [], []
    for block in model.h:
        hooks.append(block.attn.c_attn.register_forward_hook(lambda _m, _a, out: seen.append(out.detach().double())))
    with torch.no_grad():
        model(idx)
    for hook in hooks:
        hook.remove()
    rows = []
    for qkv in seen:
        q, k, _ = (rearrange(x, "b t (h d) -> b h t d", h=4) for x in qkv.chunk(3, -1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        rows.append(scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf).amax((0, 2, 3)))
    return torch.stack(rows)


@pytest.mark.parametrize("flash", [True, False])
def test_each_pass_counts_and_nothing_else(here: Path, gpt: Callable[..., Any], flash: bool) -> None:
    """Two micro-batches a step and an evaluation in between; the record has the largest since the one before."""
    model = gpt(flash=flash, dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    wanted, found = [], []
    with tracer.watch(model, run="r", every=4, max_logits="every") as recorder:
        for batch in batches(9):
            parts = batch.chunk(2)
            for part in parts:
                (model(part[:, :-1], part[:, 1:])[1] / 2).backward()
            wanted.append(torch.stack([by_hand(model, part[:, :-1]) for part in parts]).amax(0))
            with torch.no_grad():
                model(torch.zeros(2, 5, dtype=torch.long))
            optimizer.step()
            optimizer.zero_grad()
            recorder.step(0.5)
            found.append(recorder.max_logits)
        assert recorder.off is None
    torch.testing.assert_close(torch.stack(found), torch.stack(wanted).float(), rtol=1e-5, atol=1e-6)
    trace = open_run("r").trace
    since = torch.stack(wanted[5:9]).amax(0).numpy()  # records at 0, 1, 2, 4, 8: the one at 8 hears of passes 5 to 9
    assert (trace["max_logit"].sel(step=8).values >= since - 1e-5).all()
    np.testing.assert_allclose(trace["max_logit"].sel(step=8).max(), since.max(), rtol=0.2)


def test_only_rows_of_words_count(here: Path, build: Callable[..., Any]) -> None:
    """Padding in front, whose rows see nothing, and behind, where they would have the largest logits of some heads."""
    model = build("llama").train()
    ids = torch.randint(2, 50, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :4], ids[0, :4] = 0, 0
    mask[1:, 3:], ids[1:, 3:] = 0, 0
    with torch.no_grad():
        model.model.embed_tokens.weight[0] *= 30
    with tracer.watch(model) as watcher:
        model(input_ids=ids, attention_mask=mask)
    with tracer.watch(model, run="r", max_logits="every") as recorder:
        model(input_ids=ids, attention_mask=mask)
        recorder.step(0.5)
        assert recorder.max_logits is not None
        torch.testing.assert_close(
            recorder.max_logits.detach().numpy(), watcher.read().max_logit.values, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("looks", ["share", "every", "never"])
def test_the_training_is_the_same_to_the_bit(here: Path, gpt: Callable[..., Any], looks: Any) -> None:
    def train(recorded: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = gpt(flash=False)  # with dropout
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        recorder = tracer.watch(model, run="r", max_logits=looks) if recorded else None
        for batch in batches(12):
            optimizer.zero_grad()
            loss = model(batch[:, :-1], batch[:, 1:])[1]
            loss.backward()
            optimizer.step()
            if recorder is not None:
                recorder.step(loss)
                assert looks != "never" or recorder.max_logits is None
        if recorder is not None:
            assert recorder.off is None
            recorder.close()
        assert not any(m._forward_hooks for m in model.h.modules())
        return [torch.rand(3), *(p.detach() for p in model.parameters())]

    assert all(torch.equal(a, b) for a, b in zip(train(False), train(True), strict=True))


def test_a_pass_that_fails_leaves_nothing_behind(here: Path, gpt: Callable[..., Any]) -> None:
    model = gpt()
    with tracer.watch(model, run="r", max_logits="every") as recorder:
        model(torch.zeros(2, 5, dtype=torch.long))
        with pytest.raises(IndexError):
            model(torch.full((2, 5), 99))
        assert torch._C._len_torch_function_stack() == 0 and not model.h[0].attn._forward_hooks
        model(torch.zeros(2, 5, dtype=torch.long))
        recorder.step(0.5)
        assert recorder.off is None and recorder.max_logits is not None


def test_a_compiled_program_says_why_not(here: Path, gpt: Callable[..., Any]) -> None:
    model = torch.compile(gpt(), backend="eager")
    with tracer.watch(model, run="r", max_logits="every") as recorder:  # pyrefly: ignore[no-matching-overload]
        model(torch.zeros(2, 5, dtype=torch.long))
        recorder.step(0.5)
        assert recorder.max_logits is None and "torch.compile" in recorder.max_logits_unseen
