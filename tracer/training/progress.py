"""What a person sees in the terminal while a run trains: one progress bar, and a log line per interval."""

from __future__ import annotations

import math
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tracer.store.descriptors import silence

LINE_SECONDS = 10.0
"""Between two plain lines of progress; at first less, so that short work is seen too."""


class Screen(Console):
    """A console that falls silent when nobody reads it any more (`tracer train demo | head`): the work goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence()


class ProgressDisplay:
    """A context manager with a rich progress bar, where there is a terminal; `about` follows the number of things."""

    def __init__(self, about: str, quiet: bool = False) -> None:
        self.console = Screen(quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn(about),
            TimeRemainingColumn(), console=self.console, transient=True, disable=quiet or not self.console.is_terminal,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class Terminal(ProgressDisplay):
    """What a training says of itself."""

    def __init__(self, steps: int, start: int, quiet: bool) -> None:
        super().__init__(
            "loss {task.fields[loss]}  best induction {task.fields[best]}  {task.fields[rate]} tokens/s", quiet
        )
        self._task = self._progress.add_task("training", total=steps, completed=start, loss="-", best="-", rate="-")

    def update(self, step: int, **fields: Any) -> None:
        self._progress.update(self._task, completed=step, **fields)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def log(self, row: dict[str, Any], with_gradients: bool) -> None:
        """A log line: progress, entropies by block, losses and perplexities, then (sometimes) a row per tensor."""
        epoch = "" if row["epoch"] is None else f"  epoch {row['epoch']:.2f}/{row['epochs']:.2f}"
        ms = "" if math.isnan(row["step_ms"]) else f"  {row['step_ms']:.0f} ms/batch"
        repeat_loss = row["repeat_loss"]
        repeated = "" if math.isnan(repeat_loss) else f"  repeated-token loss {repeat_loss:.3f}"  # of a short context
        trained_on = "" if row["trained_on"] is None else f"trained on {row['trained_on']:.4g}  "
        entropy = "  ".join(f"{layer}: {_row(values)}" for layer, values in row["entropy"].items())
        self.say(
            f"batch {row['step']}/{row['steps']}{epoch}  {row['tokens_seen']:,} tokens{ms}  "
            f"{trained_on}train loss {row['train_loss']:.3f} (ppl {row['train_perplexity']:.1f})  "
            f"held-out {row['val_loss']:.3f} (ppl {row['val_perplexity']:.1f})\n"
            f"  entropy by block  {entropy}\n"
            f"  {_strongest(row)}{repeated}"
        )
        if with_gradients and row["gradients"]:
            table = Table("tensor", "g", "w", "u", box=None, pad_edge=False, header_style="dim")
            for name, (g, w, u) in row["gradients"].items():
                table.add_row(f"  {name}", f"{g:.1e}", f"{w:.1e}", "-" if math.isnan(u) else f"{u:.1e}")
            self.console.print(table)


class Bar(ProgressDisplay):
    """Progress through a known number of things, with the time that is left; plain lines where there is no terminal."""

    def __init__(self, doing: str, things: str) -> None:
        super().__init__(things)
        self._doing, self._things, self._said, self._began = doing, things, 0.0, time.monotonic()
        self._task = self._progress.add_task(doing, total=None)

    def update(self, done: int, of: int) -> None:
        self._progress.update(self._task, completed=done, total=of)
        now, left = time.monotonic(), self._progress.tasks[0].time_remaining
        pause = min(LINE_SECONDS, max(1, (now - self._began) / 10))
        if self.console.is_terminal or (done < of and now - self._said < pause):
            return
        self._said = now
        eta = "" if left is None or done == of else f", about {left:.0f} s to go"
        self.console.print(f"{self._doing}: {done} of {of} {self._things}{eta}", markup=False, soft_wrap=True)


def perplexity(loss: float) -> float:
    """exp(loss in nats), infinite instead of an overflow."""
    return math.exp(loss) if loss < 700 else math.inf


def _strongest(row: dict[str, Any]) -> str:
    """The induction head of a log line with its control; in words where every score is at or below its control."""
    if row["best_head"] is None:
        return "induction head: none stands out"
    return f"best induction head {row['best_head']} {row['best_induction']:.3f}  (no repeat {row['best_control']:.3f})"


def _row(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)
