"""Attacks on what is said of watched models: that watching changes nothing, and what its records mean."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import xarray as xr
from torch import Tensor, nn

import tracer
from benchmarks.truth.attack import Attack
from tracer.measures import SE, SEQUENCES
from tracer.measures.intervals import margins
from tracer.store import open_run

D, HEADS, D_VOCAB, LIMIT, LARGE = 32, 4, 20, 0.01, 4096
ORDERS = {
    "watch, torch.compile(m)": "watch compile", "torch.compile(m), watch": "compile watch",
    "watch, m.compile()": "watch in-place", "m.compile(), watch": "in-place watch",
    "watch, blocks compiled": "watch regions", "blocks compiled, watch": "regions watch",
}  # fmt: skip


class Block(nn.Module):
    """Causal attention and a batch norm, which counts what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.BatchNorm1d(D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).split(D, -1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.norm(self.out(z.transpose(1, 2).flatten(2)).transpose(1, 2)).transpose(1, 2)


class Model(nn.Module):
    """Two blocks, and a count of the tokens that were routed here."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.h, self.head = (
            nn.Embedding(D_VOCAB, D),
            nn.ModuleList([Block(), Block()]),
            nn.Linear(D, D_VOCAB),
        )
        self.register_buffer("counts", torch.zeros(D_VOCAB))

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        self.counts += F.one_hot(ids, D_VOCAB).sum((0, 1))
        x = self.embed(ids)
        for block in self.h:
            x = block(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batches(n: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    for _ in range(n):
        rows = torch.randint(0, D_VOCAB, (8, 25), generator=generator)
        yield rows[:, :-1], rows[:, 1:]


def train(
    order: str = "", run: str | None = None, clip: float | None = None, scale: float | None = None,
    held_out: Any = None, steps: int = 4,
) -> tuple[Model, list[float], list[float], int]:  # fmt: skip
    """The model, the norm of the whole gradient before and after clipping, and the number of compiled graphs."""
    torch._dynamo.reset()
    model, graphs = Model(), [0]
    called: Any = model
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1), None
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs[0] += 1
        return graph.forward

    for act in order.split() or ["watch"]:
        if act == "watch" and run:
            recorder = tracer.watch(model, run=run, every=1, held_out=held_out)
        if act == "compile":
            called = torch.compile(model, backend=backend)
        for part in {"in-place": [model], "regions": list(model.h)}.get(act, []):
            part.compile(backend=backend)
    before, after = [], []
    for ids, targets in batches(steps):
        optimizer.zero_grad()
        scaler.scale(called(ids, targets)[1]).backward()
        scaler.unscale_(optimizer)
        before.append(norm(model))
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        after.append(norm(model))
        scaler.step(optimizer)
        scaler.update()
        if recorder is not None:
            recorder.step()
    if recorder is not None:
        recorder.close()
    return model, before, after, graphs[0]


def norm(model: nn.Module) -> float:
    """Of the whole gradient, in float64."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return math.sqrt(sum(float(g.double().square().sum()) for g in grads))


def whole(values: np.ndarray) -> np.ndarray:
    return np.linalg.norm(values.astype(float), axis=1)


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """Runs are made below a folder that is thrown away."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def compiled() -> Iterator[Attack]:
    same, crashed = 0, []
    for name, order in ORDERS.items():
        try:
            plain, _, _, graphs = train(order)
            model, _, _, then = train(order, order.replace(" ", "-"))
            recorded = np.isfinite(open_run(order.replace(" ", "-")).trace["train_loss"].values[:-1]).all()
            same += bool(recorded and graphs == then and equal(plain, model))
        except Exception as error:
            crashed.append(f"{name}: {type(error).__name__}")
    yield Attack(
        "A recorder does not disturb torch.compile", "tracer.watch(model, run=...)",
        "compile and watch in every order, whole model, in place and blocks; weights and buffers after 4 updates, and "
        "the number of compiled graphs, beside those of the same loop unwatched",
        f"{same} of {len(ORDERS)} orders are recorded and equal to the bit; {len(crashed)} crash", same == len(ORDERS),
    )  # fmt: skip


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def untouched() -> Iterator[Attack]:
    plain, *_ = train()
    model, *_ = train(run="buffers", held_out=next(batches(1)))
    names = [name for name, _ in plain.named_buffers()]
    there = dict(model.named_buffers())
    kept = sum(torch.equal(b, there[name]) for name, b in plain.named_buffers())
    yield Attack(
        "Measurements between two updates leave the model as it was", "tracer.watch(model, run=...)",
        "batch norms and a router's counts, measured at every one of 4 updates on the kept rows, repeated tokens and "
        "held-out rows; buffers beside those of the same loop unwatched",
        f"{kept} of {len(names)} buffers equal to the bit", kept == len(names),
    )  # fmt: skip
    model, (ids, targets) = Model().eval(), next(batches(1))
    furthest, gradients = 0.0, 0.0
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            own = model(ids, targets)
            with tracer.watch(model):
                seen = model(ids, targets)
        furthest = max(furthest, float((own[0] - seen[0]).abs().max()))
    for a, b in zip(*(torch.autograd.grad(out[1], list(model.parameters())) for out in (own, seen)), strict=True):
        gradients = max(gradients, float((a - b).abs().max()))
    yield Attack(
        "A watched pass returns the model's own output", "with tracer.watch(model)",
        "logits and gradients of the same batch with and without a watcher, nothing ablated",
        f"largest difference of logits {furthest:.2g}, of gradients {gradients:.2g}", furthest == gradients == 0,
    )  # fmt: skip
    yield Attack(
        "A watched pass returns the model's own output", "with tracer.watch(model)",
        "torch's own encoder layer, encoder (padding given, too) and nn.MultiheadAttention in eval mode without "
        "gradients, which take a fused kernel only while nobody looks",
        f"largest difference {(furthest := _fused()):.2g}", furthest == 0,
    )  # fmt: skip


def _fused() -> float:
    x = torch.randn(4, 10, D, generator=torch.Generator().manual_seed(0))
    padding = torch.arange(10) >= torch.tensor([[10], [7], [4], [9]])
    layer = nn.TransformerEncoderLayer(D, HEADS, 64, batch_first=True)
    furthest = 0.0
    for module, args, name in (
        (layer, (x,), "src_key_padding_mask"), (nn.TransformerEncoder(layer, 2), (x,), "src_key_padding_mask"),
        (nn.MultiheadAttention(D, HEADS, batch_first=True), (x, x, x), "key_padding_mask"),
    ):  # fmt: skip
        module.eval()
        for options in ({}, {name: padding}):
            with torch.no_grad():
                own = module(*args, **options)
                with tracer.watch(module):
                    seen = module(*args, **options)
            own, seen = (out[0] if isinstance(out, tuple) else out for out in (own, seen))
            furthest = max(furthest, float((own - seen).abs().max()))
    return furthest


def norms() -> Iterator[Attack]:
    for what, scale in (("clip_grad_norm_ at 0.01", None), ("clip_grad_norm_ at 0.01, loss scaled by 4096", 4096.0)):
        name = f"clip-{scale}"
        _, before, after, _ = train(run=name, clip=LIMIT, scale=scale)
        trace = open_run(name).trace.isel(step=slice(0, -1))
        found = [whole(trace[one].values) for one in ("grad_norm", "grad_norm_clipped")]
        wrong = max(float(np.abs(f / t - 1).max()) for f, t in zip(found, (before, after), strict=True))
        factor = float(trace["clip_factor"][0])
        yield Attack(
            "grad_norm is before clipping, grad_norm_clipped after, clip_factor their quotient", "Gradients; a trace",
            f"{what} in the loop that is watched, 4 updates, beside both norms taken in the loop in float64",
            f"truth {before[0]:.3f} and {after[0]:.3f}, trace {found[0][0]:.3f} and {found[1][0]:.3f}, factor "
            f"{factor:.4f}; largest relative error {wrong:.1e}",
            wrong < 1e-5 and abs(factor * before[0] / after[0] - 1) < 1e-5,
        )  # fmt: skip


def held_out() -> Iterator[Attack]:
    ids, targets = next(batches(1))
    plain, *_ = train(steps=3)
    model, *_ = train(run="held", held_out=[(ids[:5], targets[:5]), (ids[5:], targets[5:])], steps=3)
    with torch.no_grad():
        logits = copy.deepcopy(model).eval()(ids, targets)[0].double()  # which counts tokens, too
    truth = float(F.cross_entropy(logits.flatten(0, 1), targets.flatten()))
    found = float(open_run("held").trace["val_loss"][-1])
    yield Attack(
        "The held-out loss is that of the batches given, in eval mode", "Training; tracer.watch(held_out=...)",
        "8 rows in batches of 5 and 3 beside the loss of all in one, in float64; the training beside one without",
        f"truth {truth:.6f}, trace {found:.6f} nats; weights {'equal to the bit' if equal(plain, model) else 'differ'}",
        abs(found / truth - 1) < 1e-5 and equal(plain, model),
    )  # fmt: skip


class Padded(nn.Module):
    """Attention by hand to the keys that are no padding: `fill` hides others before the softmax, `after` after it."""

    def __init__(self, fill: float, after: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv = nn.Embedding(D_VOCAB, D), nn.Linear(D, 3 * D)
        self.fill, self.after = fill, after

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.embed(ids)).split(D, -1))
        seen = attention_mask.bool()[:, None, None].expand(-1, 1, ids.shape[1], -1)
        scores = q @ k.mT / math.sqrt(D / HEADS)
        self.pattern = scores.double().masked_fill(~seen, -math.inf).softmax(-1)
        return self.after(scores.masked_fill(~seen, self.fill).softmax(-1), seen) @ v


def entropy() -> Iterator[Attack]:
    ids, lengths = (
        torch.randint(0, D_VOCAB, (3, 10), generator=torch.Generator().manual_seed(0)),
        torch.tensor([6, 3, 10]),
    )
    mask = (torch.arange(10) < lengths[:, None]).long()
    ways: dict[str, tuple[float, Callable[[Tensor, Tensor], Tensor]]] = {
        "-inf": (-math.inf, lambda w, _: w), "-1e9": (-1e9, lambda w, _: w), "-1e4": (-1e4, lambda w, _: w),
        "nan_to_num after it": (-math.inf, lambda w, _: w.nan_to_num(0.0)),
        "a product after it": (0.0, lambda w, seen: (w * seen) / (w * seen).sum(-1, keepdim=True)),
    }  # fmt: skip
    worst: dict[str, float] = {}
    for name, (fill, after) in ways.items():
        model = Padded(fill, after)
        with torch.no_grad(), tracer.watch(model) as watcher:
            model(ids, mask)
        share = torch.special.entr(model.pattern).sum(-1) / lengths.double().log()[:, None, None]
        rows = (mask * (torch.arange(10) > 0))[:, None]
        truth = ((share * rows).sum((0, 2)) / rows.sum()).detach().numpy()
        worst[name] = float(np.abs(watcher.read()["entropy_normalised"].values[0] - truth).max())
    yield Attack(
        "Normalised entropy is over the ln of the number of keys that a row can see", "Heads; watcher.read()",
        f"padding hidden from the softmax by {', '.join(ways)}; rows of 6, 3 and 10 tokens, beside H / ln n in float64",
        f"largest error {max(worst.values()):.1e} over {len(ways)} ways", max(worst.values()) < 1e-6,
    )  # fmt: skip


def intervals() -> Iterator[Attack]:
    """Rows of 8 sequences of which one in three is a few tokens, over and over: heads see very different things."""
    torch.manual_seed(0)
    model, names = Model().eval(), ("entropy", "previous_token", "first_token")
    with torch.no_grad():
        for block in model.modules():
            if isinstance(block, Block):
                block.qkv.weight *= 4
    few = torch.rand(LARGE) < 1 / 3
    ids = torch.where(few[:, None], torch.randint(0, 3, (LARGE, 12)), torch.randint(0, D_VOCAB, (LARGE, 12)))
    with torch.no_grad(), tracer.watch(model, keep=0) as watcher:
        model(ids, ids)
    truth = watcher.arrays(names)
    held: dict[int, list[np.ndarray]] = {8: [], 2: []}
    for n, found in held.items():
        for rows in ids[: 300 * n].split(n):
            with torch.no_grad(), tracer.watch(model, keep=0) as watcher:
                model(rows, rows)
            seen = watcher.arrays((*names, *(name + SE for name in names)))
            for name in names:
                around = margins(xr.Dataset({name + SE: (("layer", "head"), seen[name + SE], {SEQUENCES: n})}), name)
                assert around is not None
                found.append(np.abs(seen[name] - truth[name]) <= around)
    shares = {n: np.mean(found) for n, found in held.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(run="eight", steps=1)
    said = {name: open_run("eight").trace[name + SE].attrs[SEQUENCES] for name in ("entropy", "induction")}
    yield Attack(
        "Bands around the curves of a watched run hold the mean of all sequences 95 times in 100", "Training, Phases",
        f"300 batches of 8 and of 2 sequences, {len(names)} measures of 8 heads, truth from {LARGE}",
        f"of 8 sequences {shares[8]:.1%}, of 2 {shares[2]:.1%}; a run watched at batches of 8 keeps "
        f"{said['entropy']} of text, and has {said['induction']} that repeat",
        all(0.93 <= share <= 0.97 for share in shares.values()),
    )  # fmt: skip


def _bad_weight(model: Model, optimizer: torch.optim.Optimizer) -> None:
    dict(model.named_parameters())["h.1.qkv.weight"].data[D + 9, 3] = math.nan


def _bad_activation(model: Model, optimizer: torch.optim.Optimizer) -> None:
    def divide(module: nn.Module, args: Any, out: Any) -> Tensor:
        return out / torch.zeros(())

    model.h[0].register_forward_hook(divide)


def _bad_gradient(model: Model, optimizer: torch.optim.Optimizer) -> None:
    model.h[1].get_submodule("out").register_full_backward_hook(lambda module, into, of: (into[0] * math.nan,))


def _bad_rate(model: Model, optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0] |= {"lr": 1e38, "weight_decay": 1e38}


def _bad_token(model: Model, optimizer: torch.optim.Optimizer) -> None:
    model.embed.weight.data[7] = math.inf


BREAKS: dict[str, tuple[Callable[[Model, torch.optim.Optimizer], None], str, str]] = {
    "a weight of W_K": (_bad_weight, "weight", "h.1.qkv.weight"),
    "a block that divides by 0": (_bad_activation, "activation", "h.0"),
    "a loss times nan": (lambda model, optimizer: None, "loss", "loss"),
    "a backward pass that gives nan": (_bad_gradient, "gradient", "h.1"),
    "a learning rate and a weight decay of 1e38": (_bad_rate, "update", ""),
    "a row of the embedding": (_bad_token, "weight", "embed.weight"),
}
"""What is done before an update; the cause, and how the name of what it hits begins."""
AT = 12


def first_bad() -> Iterator[Attack]:
    """One break before one update, with records far apart."""
    dated, named, wrong = 0, 0, []
    for number, (name, (put, cause, where)) in enumerate(BREAKS.items()):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with tracer.watch(model, run=f"bad-{number}", every=5) as recorder:
            for step, (ids, targets) in enumerate(batches(20)):
                if step == AT:
                    put(model, optimizer)
                loss = model(ids, targets)[1] * (math.nan if step == AT and cause == "loss" else 1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
        found = open_run(f"bad-{number}").meta.get("divergence") or {}
        first = found.get("non_finite") or {}
        right = found.get("cause") == cause and where in str(first.get("where"))
        dated += found.get("step") == AT
        named += right
        wrong += [] if right and found.get("step") == AT else [f"{name}: {found.get('cause')}, {first.get('where')}"]
    yield Attack(
        "The first bad value has its update, its kind and its place", "Health; run.meta['divergence']",
        f"{len(BREAKS)} breaks put in before update {AT}, records five updates apart: {', '.join(BREAKS)}",
        f"{dated} of {len(BREAKS)} dated {AT}, {named} named{': not ' + '; '.join(wrong) if wrong else ''}",
        dated == named == len(BREAKS),
    )  # fmt: skip


def attacks() -> Iterator[Attack]:
    with elsewhere():
        for area in (compiled, untouched, norms, held_out, entropy, intervals, first_bad):
            yield from area()
