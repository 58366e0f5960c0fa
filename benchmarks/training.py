"""What a training step costs with everything recorded, against the two loops that people write instead, on one thread.

The model is the tutorials' four blocks with RMSNorm (preset four-blocks-rms), its batch cut from 131,072 tokens to 1024
for a CPU, and what a record reads of Probe D and of Probe R to a batch each. `heads` is the tutorials' own shape (a
module for each head, explicit T x T weights, the entropy of every head fetched by `.item()` in every forward pass),
`fused` is nanoGPT's (one matrix for q, k and v, scaled_dot_product_attention), `kept` is the same with the allocator
set as `tracer` sets it; none of them records anything else. All start from the same weights, read the same batches and
take the same SGD steps, so their losses must agree. Each lives in a process of its own, and they step in turn.

FLOPs of a token, forward and backward: 6 for each weight that multiplies it, and 6 n_layers T d_model for the scores
and values that the mask leaves; what `heads` computes of the hidden ones is not counted. The peak is that of the MLP's
largest product. Attention, the only part in which the sides differ much, is 5 % of that at context 32, 7 % at 512.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import ratio
from benchmarks.models import spread
from benchmarks.training_peers import Fused, Heads, Norm, Peer, RMSNorm, fused_norm
from tracer import data as data_module
from tracer.config import TrainConfig
from tracer.model import CausalAttention, Transformer
from tracer.presets import preset
from tracer.training import loop
from tracer.training.malloc import keep_freed_memory
from tracer.training.session import TrainingSession, between_points

Device = Literal["cpu", "cuda"]
PRESET = preset("four-blocks-rms").config
TOKENS = 1024
"""In a batch, and in each of a record's two probes."""
CONTEXTS = (32, 512)
PRECISIONS = ("no", "bf16") if torch.cpu._is_avx512_bf16_supported() else ("no",)
ROUNDS = 6
"""After one that does not count."""
TOLERANCE = {"no": 1e-4, "bf16": 1e-2}
"""Of losses, relative."""
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
"""What `tracer.training.malloc` sets: freed memory stays in the process."""


def configuration(n_ctx: int, precision: Any, tokens: int = TOKENS, device: Device = "cpu") -> TrainConfig:
    """The preset with a batch of so many tokens."""
    rows = tokens // n_ctx
    record = replace(PRESET.record, val_rows=rows, repeat_rows=rows)
    optim = replace(PRESET.optim, batch_size=rows, precision=precision)
    return replace(PRESET, model=replace(PRESET.model, n_ctx=n_ctx), optim=optim, record=record, device=device)


TEXTS = "sample texts"
KINDS = {
    "record": PRESET.record.every, TEXTS: PRESET.record.log_every,
    "snapshot": PRESET.record.snapshot_every, "resume point": None,
}  # fmt: skip
"""Kinds of recording, and after how many steps the preset repeats them; a resume point goes by the clock."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one step, or of one thing that recording does."""

    cpu: float
    wall: float
    loss: float = 0.0


class Gate:
    """A child's side of taking turns: `next_step` says what the step before cost, and waits."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.began = pipe, clocks()

    def next_step(self, loss: float) -> None:
        self.pipe.send(cost_since(self.began, loss))
        cpu = time.process_time()  # a thread of ours that writes on while the others step is part of the next step
        self.pipe.recv()
        self.began = (cpu, time.perf_counter())


def clocks() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def cost_since(began: tuple[float, float], loss: float = 0.0) -> Cost:
    (cpu, wall), (cpu_then, wall_then) = clocks(), began
    return Cost(cpu - cpu_then, wall - wall_then, loss)


def a_peer(pipe: Connection, attention: type[Heads] | type[Fused], norm: Norm, n_ctx: int, precision: str) -> None:
    """A plain loop."""
    config = configuration(n_ctx, precision)
    data = data_module.build(config.data, n_ctx, config.seed)
    filled, o = replace(config.model, d_vocab=data.d_vocab), config.optim
    model = Peer(filled, attention, norm)
    model.copy(Transformer(filled, config.seed))
    optimizer = torch.optim.SGD(model.parameters(), o.lr, o.momentum, weight_decay=o.weight_decay, nesterov=True)
    gate = Gate(pipe)
    for step in range(ROUNDS + 1):
        batch = data.train(step, o.batch_size)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gate.next_step(loss.item())


def ours(pipe: Connection, n_ctx: int, precision: str) -> None:
    """`tracer train` itself, stopped before each step; at the end, each thing that recording does, twice."""
    gate, scribes, losses = Gate(pipe), [], []

    class Idle(TrainingSession):
        """Asked every step, like any other, but nothing is due."""

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.records, self.snapshots, self.states = set(), set(), set()
            scribes.append(self)

        def keep(self, *args: Any, **options: Any) -> None:
            super().keep(*args, **options)
            self.checkpoint_every = math.inf

    def gated(job: loop.Job, step: int, alone: bool = False) -> Tensor:
        if step:
            gate.next_step(losses[-1])
        loss = step_of_ours(job, step, alone)
        losses.append(float(loss))
        if step == ROUNDS + 1:
            pipe.send(recording(job, scribes[0], loss))
        return loss

    step_of_ours, loop.forward_backward = loop.forward_backward, gated
    loop.TrainingSession = Idle
    with tempfile.TemporaryDirectory() as folder:
        loop.train(replace(configuration(n_ctx, precision), run=f"{folder}/run"), quiet=True)


def recording(job: loop.Job, scribe: TrainingSession, loss: Tensor) -> dict[str, list[Cost]]:
    """What each kind of recording costs, its writing included."""
    costs: dict[str, list[Cost]] = {kind: [] for kind in KINDS}
    for step in (1, 2):

        def record(step: int = step) -> None:
            scribe.records, scribe.snapshots = {step}, {step}  # with patterns, as on the steps of snapshots
            scribe.measure(step, loss)
            scribe.write(step, 0.0, torch.ones(()))
            scribe.writer.flush()

        def resume_point(step: int = step) -> None:
            scribe.snapshots = set()
            TrainingSession.keep(scribe, step, lambda: loop.state_of(job), force=True)

        deeds: dict[str, Callable[[], object]] = {
            "record": record,
            TEXTS: lambda step=step: scribe._log(step),
            "snapshot": lambda step=step: scribe.writer.snapshot(step, job.raw.state_dict()),
            "resume point": resume_point,
        }
        for kind, deed in deeds.items():
            began = clocks()
            deed()
            scribe.writer.wait()
            costs[kind].append(cost_since(began))
    return costs


SIDES: dict[str, Callable[[Connection, int, str], None]] = {
    "ours": ours,
    "heads": lambda pipe, n_ctx, precision: a_peer(pipe, Heads, RMSNorm, n_ctx, precision),
    "fused": lambda pipe, n_ctx, precision: a_peer(pipe, Fused, fused_norm, n_ctx, precision),
    "kept": lambda pipe, n_ctx, precision: a_peer(pipe, Fused, fused_norm, n_ctx, precision),
}


def serve(side: str, pipe: Connection, n_ctx: int, precision: str) -> None:
    torch.set_num_threads(1)
    SIDES[side](pipe, n_ctx, precision)


@contextmanager
def children(n_ctx: int, precision: str) -> Iterator[dict[str, Connection]]:
    """A process for each side, with glibc's own settings, except for `kept`."""
    spawning, processes, pipes = get_context("spawn"), [], {}
    for side in SIDES:
        pipes[side], theirs = spawning.Pipe()
        processes.append(spawning.Process(target=serve, args=(side, theirs, n_ctx, precision), daemon=True))
        with environment(KEPT if side == "kept" else {}):
            processes[-1].start()
    try:
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()


@contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """What a process started inside finds in its environment; glibc reads it before Python begins."""
    before = os.environ.copy()
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def take_turns(n_ctx: int, precision: str) -> tuple[dict[str, list[Cost]], dict[str, list[Cost]], float]:
    """The steps of each side, what recording costs, and the peak in FLOPs a CPU second."""
    width, dtype = PRESET.model.mlp_hidden[0], torch.bfloat16 if precision == "bf16" else torch.float32
    x, weight = torch.randn(TOKENS, width, dtype=dtype), torch.randn(width, width, dtype=dtype)
    products = []
    with children(n_ctx, precision) as pipes:
        for pipe in pipes.values():
            pipe.recv()  # the step that does not count
        steps: dict[str, list[Cost]] = {side: [] for side in pipes}
        for _ in range(ROUNDS):
            for side, pipe in pipes.items():
                pipe.send(None)
                steps[side].append(pipe.recv())
            began = clocks()
            torch.mm(x, weight)
            products.append(cost_since(began).cpu)
        pipes["ours"].send(None)
        recorded = pipes["ours"].recv()
    for side in ("heads", "fused", "kept"):
        for ours, theirs in zip(steps["ours"], steps[side], strict=True):
            error = abs(ours.loss - theirs.loss) / ours.loss
            assert error < TOLERANCE[precision], f"the losses of ours and {side} differ: {ours.loss}, {theirs.loss}"
    return steps, recorded, 2 * TOKENS * width**2 / min(products)


def flops(n_ctx: int) -> float:
    """Of a token, forward and backward."""
    m = PRESET.model
    assert PRESET.data.vocab_size
    widths = (m.d_model, *m.mlp_hidden, m.d_model)
    weights = 4 * m.d_model**2 + sum(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))
    return 6 * (m.n_layers * weights + m.d_model * PRESET.data.vocab_size) + 6 * m.n_layers * n_ctx * m.d_model


def shares(recorded: dict[str, list[Cost]], step: Cost) -> dict[str, float]:
    """What each kind of recording adds to a step at the preset's cadence, in CPU time."""
    resume = min(recorded["resume point"], key=lambda cost: cost.wall)
    seldom = between_points(resume.wall) / step.wall  # what `TrainingSession.keep` does
    return {
        kind: median(cost.cpu for cost in costs) / (KINDS[kind] or seldom) / step.cpu
        for kind, costs in recorded.items()
    }  # fmt: skip


def line(n_ctx: int, precision: str, steps: dict[str, list[Cost]], recording: float, peak: float) -> str:
    """One row of the table."""
    cpu = {side: [cost.cpu for cost in costs] for side, costs in steps.items()}
    wall = {side: [cost.wall for cost in costs] for side, costs in steps.items()}
    bare = cpu["ours"]
    cpu["ours"], wall["ours"] = ([(1 + recording) * seconds for seconds in side["ours"]] for side in (cpu, wall))
    rates = [TOKENS / median(seconds) for seconds in (cpu["ours"], bare, cpu["fused"], cpu["heads"])]
    cells = [f"{rate:.0f} ({rate * flops(n_ctx) / peak:.0%})" for rate in rates]
    cells += [
        f"{spread(cpu[a], cpu[b])}, {ratio(wall[a], wall[b]):.2f}"
        for a, b in (("heads", "ours"), ("ours", "fused"), ("ours", "kept"))
    ]
    cells.append(spread(bare, cpu["kept"]))
    machine = f"{flops(n_ctx) / 1e6:>11.1f}  {peak / 1e9:>9.0f}"
    return f"{name_of(n_ctx, precision):>13}  {machine}  " + "  ".join(f"{cell:>22}" for cell in cells)


def name_of(n_ctx: int, precision: str) -> str:
    return f"{n_ctx}, {'bf16' if precision == 'bf16' else 'float32'}"


def attention_alone() -> None:
    """The part of the step in which the sides differ, forward and backward, in one process."""
    keep_freed_memory()
    print("\none layer's attention alone, float32: CPU time, median (range)")
    for n_ctx in (*CONTEXTS, 2048):
        config = replace(PRESET.model, n_ctx=n_ctx)
        sides = {"ours": CausalAttention(config), "heads": Heads(config), "fused": Fused(config)}
        for side in sides.values():
            for weight in side.parameters():
                nn.init.normal_(weight, 0, config.d_model**-0.5)
        x = torch.randn(max(1, TOKENS // n_ctx), n_ctx, config.d_model, requires_grad=True)
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(25):
            for name, side in sides.items():
                began = clocks()
                side(x).sum().backward()
                times[name].append(cost_since(began).cpu)
        part = config.n_layers * 6 * (4 * config.d_model**2 + n_ctx * config.d_model) / flops(n_ctx)
        print(
            f"{n_ctx:>13}  heads / ours {spread(times['heads'], times['ours'])}, "
            f"ours / fused {spread(times['ours'], times['fused'])}, {part:.0%} of a step's FLOPs"
        )


def main() -> None:
    torch.set_num_threads(1)
    print(f"\na step of SGD with {TOKENS} tokens, four blocks with RMSNorm, 23.1 M parameters, one CPU thread:")
    print("tokens a CPU second (share of the peak); ratios of CPU time, median (range), then of wall time")
    columns = (
        "ours", "ours, not recording", "fused", "heads", "heads / ours", "ours / fused", "ours / kept",
        "not recording / kept",
    )  # fmt: skip
    print(f"{'context':>13}  {'MFLOP/token':>11}  {'peak GF/s':>9}  " + "  ".join(f"{c:>22}" for c in columns))
    recordings, seconds = [], {}
    for n_ctx in CONTEXTS:
        for precision in PRECISIONS:
            steps, recorded, peak = take_turns(n_ctx, precision)
            typical = Cost(*(median(getattr(c, clock) for c in steps["ours"]) for clock in ("cpu", "wall")))
            added = shares(recorded, typical)
            recording = sum(added.values()) - added[TEXTS]
            print(line(n_ctx, precision, steps, recording, peak), flush=True)
            each = (f"{kind} {1000 * median(c.cpu for c in recorded[kind]):.0f} ms {added[kind]:.1%}" for kind in KINDS)
            recordings.append(f"{name_of(n_ctx, precision):>13}  {recording:.1%}: " + ", ".join(each))
            mine, theirs = (median(c.cpu for c in steps[side]) for side in ("ours", "heads"))
            seconds[n_ctx, precision] = (1 + recording) * mine, theirs
    print(f"\nrecording: CPU time of each kind, and what it adds to a step; without {TEXTS}, which are counted apart")
    print("\n".join(recordings))
    if "bf16" in PRECISIONS:
        faster = (f"{n}: {seconds[n, 'no'][1] / seconds[n, 'bf16'][0]:.1f}" for n in CONTEXTS)
        print(
            "heads in float32, as it was written / ours with --optim.precision bf16, by context: " + ", ".join(faster)
        )
    attention_alone()
