"""What a person brings (measures, numbers, losses, clamps, attention, tests) on the second device, beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from benchmarks.gpu.place import CPU, Place, apart, off
from benchmarks.gpu.questions import OF_MEANS
from benchmarks.gpu.table import Line, at_most
from tracer.ablate import sweep, verdict
from tracer.huggingface.wrapped import WrappedModel
from tracer.store import Run
from tracer.training.loop import train

SUMS = 1e-5
"""Relative: the same sums in another order, in float32."""
HELD = 0
"""Of the layer 0 that is clamped."""
HEADS, WIDTH, VOCABULARY = 4, 64, 50


@tracer.measure(label="On the first token", unit="share", range=(0, 1))
def on_first(rows: Any) -> Tensor:
    """Ours is `first_token`."""
    return rows.pattern[..., 0]


def next_token(logits: Tensor, batch: Any) -> Tensor:
    """The loss that is trained on anyway, written by hand."""
    return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())


def width_of_words(model: Any, step: int) -> dict[str, Tensor]:
    """A number that lies on the device."""
    return {"width_of_words": model.embed.W_E.norm()}


def previous(head: Any) -> Tensor:
    """The perfect previous-token head, made on the CPU."""
    n = head.tokens.shape[1]
    return torch.eye(n)[[0, *range(n - 1)]]


@tracer.head_test(label="Rests at the start", at_least=0.4, chance=0.1)
def at_start(model: Any, tokens: Tensor, layer: int, head: int) -> tuple[Tensor, Tensor]:
    _, cache = model.run_with_cache(tokens)
    pattern = cache["pattern", layer][:, head]
    return pattern[..., 0].mean(-1), pattern[..., 1].mean(-1)


def own(place: Place) -> Iterator[Line]:
    yield from _trained(place)
    yield from _clamped(place)
    yield from _asked(place)
    yield from _declared(place)


def _trained(place: Place) -> Iterator[Line]:
    steps = 4 if place.small else 40
    config = place.precise(place.config("induction", steps=steps))
    bare = place.trained(config, "not-own")
    found = train(
        replace(config, run=str(place.out / "runs" / "own")), quiet=True, overwrite=True,
        measures=[on_first], scalars=[width_of_words], loss=next_token,
    )  # fmt: skip
    same = all(torch.equal(a, b) for a, b in zip(_weights(bare).values(), _weights(found).values(), strict=True))
    yield Line(f"{steps} updates on a loss of one's own, measured and logged, against ours",
               "equal" if same else "differ", "weights to the bit", same)  # fmt: skip
    yield at_most("a measure of one's own against ours", off(found.trace.on_first, found.trace.first_token), SUMS)
    norm = float(_weights(found)["embed.W_E"].double().norm())
    yield at_most(
        "a number of one's own at the last record, off float64", off(found.trace.width_of_words[-1], norm), SUMS
    )


def _clamped(place: Place) -> Iterator[Line]:
    steps = 4 if place.small else 20
    config = replace(place.precise(place.config("induction", steps=steps)), run=str(place.out / "runs" / "held"))
    found = train(config, quiet=True, overwrite=True, clamp={f"L0H{HELD}": previous})
    score = found.trace.previous_token[:, 0, HELD]
    yield at_most("a head clamped to the token before, its score off 1", apart(score, np.ones_like(score)), SUMS)
    weights, before = (_weights(found, step)["blocks.0.attn.W_Q"][HELD] for step in (found.steps[-1], found.steps[0]))
    decayed = torch.nn.functional.cosine_similarity(weights.flatten().double(), before.flatten().double(), dim=0)
    yield at_most("direction of its W_Q, which gets no gradient, off where it began", 1 - float(decayed), SUMS)


def _asked(place: Place) -> Iterator[Line]:
    layer = place.model.n_layers - 1
    ours, theirs = (
        verdict(model, layer, 0, tests=[at_start]).tests[-1].value for model in (place.there, place.model)
    )  # fmt: skip
    yield at_most("a test of one's own in the verdict, off the CPU's", off(ours, theirs), SUMS)
    found, expected = (
        tracer.survey(model, place.tokens.cpu(), tokens=place.tokens.numel(), measures=on_first).on_first
        for model in (place.there, place.model)
    )
    yield at_most("a measure of one's own over a corpus, off the CPU's", off(found, expected), SUMS)


class Quotient(nn.Module):
    """Attention as a quotient by hand, which nobody recognises."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        e = (q @ k.mT / q.shape[-1] ** 0.5).exp().tril()
        return e / e.sum(-1, keepdim=True), v

    def forward(self, x: Tensor) -> Tensor:
        weights, v = self.parts(x)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


@tracer.attends(Quotient, out="proj")
def told(module: Any, inputs: tuple[Any, ...], output: Any) -> tuple[Tensor, Tensor]:
    return module.parts(inputs[0])


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(128, WIDTH)
        self.blocks, self.logits = nn.ModuleList(Quotient() for _ in range(2)), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = x + block(x)
        return self.logits(x)


def _declared(place: Place) -> Iterator[Line]:
    rows = torch.randint(VOCABULARY, (8, 100), generator=torch.Generator().manual_seed(1))

    def read(device: torch.device) -> Any:
        with torch.no_grad(), tracer.watch(model := Stack().to(device).eval()) as seen:
            model(rows.to(device))
        return seen.read()

    names = ("entropy", "confidence", "first_token", "previous_token", "attended_distance")
    ours, theirs = read(place.device), read(CPU)
    yield at_most(f"declared attention: {len(names)} statistics, off the CPU's",
                  max(off(ours[name], theirs[name]) for name in names), SUMS)  # fmt: skip
    swept, expected = (
        sweep(WrappedModel(Stack().to(device).eval(), n_ctx=128, d_vocab=VOCABULARY), rows.to(device)).values
        for device in (place.device, CPU)
    )
    yield at_most("declared attention: sweep of all heads, off the CPU's", apart(swept, expected), OF_MEANS, " nats")
    bare, recorded = (_loop(place, rows.to(place.device), name) for name in (None, "declared"))
    yield Line("declared attention: losses with and without a recorder", f"{float((bare - recorded).abs().max()):.1g}"
               " apart", "to the bit", torch.equal(bare, recorded))  # fmt: skip


def _loop(place: Place, rows: Tensor, name: str | None) -> Tensor:
    model, losses = Stack().to(place.device), []
    recorder = None if name is None else tracer.watch(model, run=place.out / "runs" / name, every=5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(6 if place.small else 30):
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if recorder is not None:
            recorder.step(loss)
    if recorder is not None:
        recorder.close()
    return torch.stack(losses).cpu()


def _weights(run: Run, step: int | None = None) -> dict[str, Tensor]:
    return run.model(step, clamps=False).state_dict()  # pyrefly: ignore[missing-attribute]
