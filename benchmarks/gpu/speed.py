"""Speed as ratios of things that ran in turn: recording, statistics of 144 heads, a training step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from benchmarks.gpu.place import Place
from benchmarks.gpu.table import Line, at_most
from benchmarks.heads import contenders
from benchmarks.measure import in_turn, ratio
from benchmarks.recording import compare
from benchmarks.training import PRESET, configuration
from benchmarks.training_peers import Fused, Heads, Norm, Peer, RMSNorm, fused_norm
from tracer.training.job import Job, forward_backward, prepare, update

SAME = {"no": 1e-3, "bf16": 1e-2}
"""Relative, of the losses of the loops after all their steps."""


def recording(place: Place) -> Iterator[Line]:
    config = place.config("demo")
    config = config if place.small else replace(config, steps=300)
    times, share = compare(config, 1 if place.small else 3, place.wait)
    yield Line(f"recorded / bare loop, demo, {config.steps} updates", f"{ratio(times['recorded'], times['bare']):.2f}")
    yield Line("share that the run itself reports for recording", f"{share:.1%}")


def statistics(place: Place) -> Iterator[Line]:
    shapes = ((1, 32, 4, 8),) if place.small else ((1, 256, 144, 64), (1, 1024, 144, 64), (1, 2048, 144, 64))
    for shape in shapes:
        batch, pos, head, d_head = shape
        names = ("ours", "with z", "explicit", "plain")
        sides = contenders(batch, pos, head, d_head, place.device)
        times = in_turn({name: sides[name] for name in names}, 3 if place.small else 10, place.wait)
        yield Line(
            f"statistics of {head} heads, {pos:,} tokens, float32: explicit patterns / ours",
            f"{ratio(times['explicit'], times['ours']):.2f} (ours {1000 * min(times['ours']):.2f} ms; with outputs "
            f"{ratio(times['with z'], times['plain']):.1f} x plain attention)",
        )  # fmt: skip


class PlainLoop:
    """The same training in a loop of somebody else's, from the same weights."""

    def __init__(self, job: Job, attention: type[Heads] | type[Fused], norm: Norm) -> None:
        self.job, o = job, job.config.optim
        self.model = Peer(job.raw.config, attention, norm)
        self.model.copy(job.raw)
        self.device = job.accelerator.device
        self.model.to(self.device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=True
        )

    def step(self, number: int) -> torch.Tensor:
        batch = self.job.data.train(number, self.job.config.optim.batch_size).to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.job.bf16):
            logits = self.model(batch[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def training(place: Place) -> Iterator[Line]:
    rounds = 2 if place.small else 12
    device = "cuda" if place.device.type == "cuda" else "cpu"
    for n_ctx, precision, tokens in (
        ((32, "no", 256),) if place.small else ((32, "bf16", 131072), (512, "bf16", 65536), (512, "no", 65536))
    ):
        config = configuration(n_ctx, precision, tokens, device)
        if place.small:
            config = replace(config, model=replace(PRESET.model, n_layers=1, d_model=16, n_ctx=n_ctx, mlp_hidden=(32,)))
        job = prepare(config)
        job.raw.train()
        peers = {"fused": PlainLoop(job, Fused, fused_norm), "heads": PlainLoop(job, Heads, RMSNorm)}
        losses: dict[str, list[torch.Tensor]] = {"ours": [], "fused": [], "heads": []}

        def ours(job: Job = job, into: list[torch.Tensor] = losses["ours"]) -> None:
            into.append(forward_backward(job, len(into)).detach())
            update(job, len(into))

        def theirs(name: str, peers: dict[str, PlainLoop] = peers, losses: dict = losses) -> None:
            losses[name].append(peers[name].step(len(losses[name])))

        times = in_turn(
            {"ours": ours, "fused": lambda: theirs("fused"), "heads": lambda: theirs("heads")}, rounds, place.wait
        )
        what = f"a step of {tokens:,} tokens, context {n_ctx}, {'bfloat16' if precision == 'bf16' else 'float32'}"
        yield Line(
            f"{what}: ours / one-matrix loop; module-a-head loop / ours",
            f"{ratio(times['ours'], times['fused']):.2f}; {ratio(times['heads'], times['ours']):.2f} "
            f"({tokens / min(times['ours']):,.0f} tokens a second)",
        )  # fmt: skip
        gaps = [
            abs(float(a) - float(b)) / float(a)
            for name in peers
            for a, b in zip(losses["ours"], losses[name], strict=True)
        ]
        yield at_most("losses of the three, relative", max(gaps), SAME[precision])
