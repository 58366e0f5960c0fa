"""What `tracer.watch(model, run=...)` costs a training loop that others wrote: three loops, watched and not, in turn.

At the default cadence a loop may spend 1 % on measuring. A measurement is one forward pass without gradients of at most
a sixteenth of the batch, and one of Probe R where the model reads tokens; a step is three passes of the whole batch.
The first measurement and the last are made once, however long the loop, so they are reported in seconds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tracer
from benchmarks.measure import in_turn, ratio
from benchmarks.models import spread
from tracer.watching.recorder import LoopRecorder
from tracer.watching.training_passes import Looks

STEPS = 120
ROUNDS = 3
IDLE_STEPS = 20_000
LOOKS: tuple[Looks, ...] = ("never", "share", "every")
LOOK_STEPS = 30

Step = Callable[[], None]
"""Called after each update of a loop, however it is run."""


@dataclass
class Costs:
    """What one loop took, round by round, in seconds; `bare` and `watched` are of the steps after the first."""

    bare: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    bare_cpu: list[float] = field(default_factory=list)
    watched_cpu: list[float] = field(default_factory=list)
    """CPU seconds of all threads, those that write included: other programs disturb these less than the wall clock."""
    measuring: list[float] = field(default_factory=list)
    """What the recorder says it took of `watched`."""
    first: list[float] = field(default_factory=list)
    """The first measurement, with setting up."""
    last: list[float] = field(default_factory=list)
    """`close`: the last measurement."""


class CausalSelfAttention(nn.Module):
    """As in nanoGPT."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.c_attn, self.c_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(z.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attn = CausalSelfAttention(d_model, n_heads)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, d_vocab: int, n_ctx: int, d_model: int, n_heads: int, n_layers: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(d_vocab, d_model), nn.Embedding(n_ctx, d_model)
        self.h = nn.Sequential(*(Block(d_model, n_heads) for _ in range(n_layers)))
        self.ln_f, self.lm_head = nn.LayerNorm(d_model), nn.Linear(d_model, d_vocab)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        return F.cross_entropy(self.lm_head(self.ln_f(self.h(x))).flatten(0, 1), targets.flatten())


class Sorter(nn.Module):
    """nn.TransformerEncoder on a toy task: the rank of each number of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.embed, self.encoder, self.out = nn.Linear(1, 128), nn.TransformerEncoder(layer, 3), nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.encoder(self.embed(x)))


def nano(watch: Callable[[nn.Module], LoopRecorder | None], done: Step) -> None:
    model = GPT(d_vocab=100, n_ctx=128, d_model=128, n_heads=4, n_layers=4)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    recorder = watch(model)
    for _ in range(STEPS):
        tokens = torch.randint(100, (8, 129))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if recorder:
            recorder.step(loss)
        done()


def encoder(watch: Callable[[nn.Module], LoopRecorder | None], done: Step) -> None:
    model = Sorter()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    recorder = watch(model)
    for _ in range(STEPS):
        x = torch.rand(32, 32, 1)
        loss = (model(x) - x.argsort(1).argsort(1) / 31).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if recorder:
            recorder.step(loss)
        done()


def trainer(watch: Callable[[nn.Module], LoopRecorder | None], done: Step) -> None:
    """Hugging Face Trainer on GPT-2; what `tracer.TrainerCallback` does, with `watch` in its place."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_callback import PrinterCallback
    from transformers.utils.logging import set_verbosity_error

    set_verbosity_error()

    class Watching(TrainerCallback):
        recorder: LoopRecorder | None = None

        def on_train_begin(self, *_: Any, **kwargs: Any) -> None:
            self.recorder = watch(kwargs["model"])

        def on_step_end(self, *_: Any, **kwargs: Any) -> None:
            if self.recorder:
                self.recorder.step()
            done()

    config = GPT2Config(
        vocab_size=200, n_positions=128, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    )  # fmt: skip
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(200, (256, 128))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=4, save_strategy="no", logging_strategy="no",
            report_to=[], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        loop: Any = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=rows, callbacks=[Watching()])  # pyrefly: ignore[bad-argument-type]
        loop.remove_callback(PrinterCallback)
        loop.train()


LOOPS = {"plain GPT": nano, "HF Trainer": trainer, "TransformerEncoder": encoder}


def measure(loop: Callable[..., None], folder: Path) -> Costs:
    costs = Costs()

    def bare() -> None:
        stamps: list[tuple[float, float]] = []
        torch.manual_seed(0)
        loop(lambda _: None, lambda: stamps.append((time.perf_counter(), time.process_time())))
        (began, cpu_began), (ended, cpu_ended) = stamps[0], stamps[-1]
        costs.bare.append(ended - began)
        costs.bare_cpu.append(cpu_ended - cpu_began)

    def watched() -> None:
        recorders: list[LoopRecorder] = []
        stamps: list[tuple[float, float, float]] = []

        def watch(model: nn.Module) -> LoopRecorder:
            recorders.append(tracer.watch(model, run=folder / f"run-{len(costs.watched)}"))
            return recorders[0]

        torch.manual_seed(0)
        loop(watch, lambda: stamps.append((time.perf_counter(), time.process_time(), recorders[0].pace.seconds)))
        (began, cpu_began, before), (ended, cpu_ended, after) = stamps[0], stamps[-1]
        closing = time.perf_counter()
        recorders[0].close()
        assert recorders[0].off is None, recorders[0].off
        costs.last.append(time.perf_counter() - closing)
        costs.watched.append(ended - began)
        costs.watched_cpu.append(cpu_ended - cpu_began)
        costs.measuring.append(after - before)
        costs.first.append(before)

    in_turn({"bare": bare, "watched": watched}, ROUNDS)
    for rounds in vars(costs).values():
        del rounds[0]  # the round that does not count
    return costs


class Nothing(nn.Module):
    """A model that takes no time, except in its first call, in which it has something to watch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.awake = nn.Parameter(torch.ones(4)), True

    def forward(self, x: Tensor) -> Tensor:
        q = x * self.weight
        return F.scaled_dot_product_attention(q, q, q, is_causal=True) if self.awake else x


def idle_microseconds(folder: Path) -> float:
    """What a step costs when nothing is due: the hooks of the model and of its optimiser, and `step` itself."""

    def loop(recorder: LoopRecorder | None, model: Nothing) -> None:
        for _ in range(IDLE_STEPS):
            model(x)
            optimizer.step()
            if recorder:
                recorder.step(x)

    x, model, unwatched = torch.randn(1, 1, 4, 4), Nothing(), Nothing()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    recorder = tracer.watch(model, run=folder / "idle", share=1e-9)
    for _ in range(3):  # the first call is measured, and one step after it
        model(x)
        recorder.step(x.sum())
    model.awake = unwatched.awake = False
    loop(recorder, model)
    began = time.perf_counter()
    loop(recorder, model)
    watched = time.perf_counter() - began
    model.awake = True  # for the last measurement
    recorder.close()
    began = time.perf_counter()
    loop(None, unwatched)
    return 1e6 * (watched - (time.perf_counter() - began)) / IDLE_STEPS


def looks(folder: Path) -> None:
    """What the largest logits of the training's own passes cost, at 1,024 tokens and d_head 64: CPU seconds of a step
    beside one without, step by step in turn."""
    recorders: dict[Looks, LoopRecorder] = {}
    models: dict[Looks, GPT] = {
        which: GPT(d_vocab=1000, n_ctx=1024, d_model=512, n_heads=8, n_layers=2) for which in LOOKS
    }
    optimizers = {which: torch.optim.AdamW(model.parameters(), 1e-3) for which, model in models.items()}
    for which, model in models.items():
        recorders[which] = tracer.watch(model, run=folder / which, every=10**6, max_logits=which)
    seconds: dict[Looks, list[float]] = {which: [] for which in LOOKS}
    for _ in range(LOOK_STEPS):
        tokens = torch.randint(1000, (2, 1025))
        for which, model in models.items():
            began = time.process_time()
            loss = model(tokens[:, :-1], tokens[:, 1:])
            optimizers[which].zero_grad(set_to_none=True)
            loss.backward()
            optimizers[which].step()
            recorders[which].step(loss)
            seconds[which].append(time.process_time() - began)
    print(
        "\nlargest logits in training passes: 1,024 tokens, d_head 64, 8 heads, 2 layers, 2 sequences, one CPU thread"
    )
    for which, recorder in recorders.items():
        assert recorder.off is None, recorder.off
        share = recorder.pace.looking / recorder.pace.training
        steps, bare = seconds[which][2:], seconds["never"][2:]
        print(f"{which:>20}  CPU {spread(steps, bare)} of a step without, {share:.2%} of the time by its own clock")
        recorder.close()


def main() -> None:
    torch.set_num_threads(1)
    print(f"\ntraining loops with tracer.watch(model, run=...), {STEPS} steps, {ROUNDS} rounds in turn, one CPU thread")
    columns = ("step ms", "wall: watched / bare", "CPU: watched / bare", "share it reports", "first s", "last s")
    print(f"{'loop':>20}  " + "  ".join(f"{c:>20}" for c in columns))
    with tempfile.TemporaryDirectory() as folder:
        for name, loop in LOOPS.items():
            c = measure(loop, Path(folder, name))
            share = ratio(c.measuring, [a - b for a, b in zip(c.watched, c.measuring, strict=True)])
            cells = (
                f"{1000 * median(c.bare) / (STEPS - 1):.1f}", spread(c.watched, c.bare),
                spread(c.watched_cpu, c.bare_cpu), f"{share:.2%}", f"{median(c.first):.2f}", f"{median(c.last):.2f}",
            )  # fmt: skip
            print(f"{name:>20}  " + "  ".join(f"{cell:>20}" for cell in cells))
        looks(Path(folder))
        print(f"a step in which nothing is due: {idle_microseconds(Path(folder)):.1f} microseconds")
