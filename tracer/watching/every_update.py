"""Loss, learning rate and throughput of every update, at the price of a line in a list."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tracer.hooks.inputs import loss_of
from tracer.store import RunWriter, Variable
from tracer.tracking.own_numbers import LOGGED, attrs
from tracer.watching.pace import Pace

OURS = {"train_loss", "learning_rate", "step_ms", "same_batch"}
UPDATES_IN_CHUNK = 4096
MOST_WAITING, SECONDS = 256, 2.0
"""Updates, and seconds, after which they are handed over: one transfer from the device for all of them."""
Loss = Tensor | float | np.ndarray | np.generic | list[Any] | tuple[Any, ...]
"""One number, or several, wherever each of them is."""


class Made(NamedTuple):
    """One update."""

    step: int
    train_loss: Tensor | float
    learning_rate: Any
    told: bool
    """Was there a loss?"""
    step_ms: float
    tokens: int
    print: Tensor | float
    """The fingerprint of its batch."""
    own: dict[str, Any]
    """Numbers that the loop logged of it."""


class EveryUpdate:
    """What was seen of the updates since the last were handed over."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._made: list[Made] = []
        self._rate: Any = float("nan")
        self._loss: Tensor | None = None
        self._tokens = 0
        self._own: dict[str, Any] = {}
        self._print = float("nan")
        """The fingerprint of the batch before those that are kept here."""
        self._mark: tuple[float, float] | None = None
        self._given = time.perf_counter()

    def __len__(self) -> int:
        return len(self._made)

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called: with so many tokens, where it is given any, in training."""
        if torch.is_grad_enabled():
            ids = (x for x in itertools.chain(args, kwargs.values()) if isinstance(x, Tensor) and x.ndim == 2)
            self._tokens += next((x.numel() for x in ids if not x.is_floating_point()), 0)

    def returned(self, module: nn.Module, kwargs: dict[str, Any], output: Any) -> None:
        """The loss of the last pass; of Hugging Face's Trainer, which hands every micro-batch its share of the step's
        loss, the sum of these."""
        if not torch.is_grad_enabled():  # an evaluation
            return
        loss = loss_of(output)
        if kwargs.get("num_items_in_batch") is None:
            self._loss = loss
        elif module.training and loss is not None:
            self._loss = loss if self._loss is None else self._loss + loss

    def rate(self, lr: Any) -> None:
        """The optimiser is about to step, at this learning rate; None: it finds its own, or has none."""
        self._rate = lr.detach().clone() if isinstance(lr, Tensor) else float("nan") if lr is None else lr

    def logged(self, numbers: Mapping[str, Any]) -> None:
        """One number each, of the update that is made next."""
        self._own |= numbers

    @property
    def waiting(self) -> set[str]:
        """Names of numbers whose update is not made yet."""
        return set(self._own)

    def made(self, step: int, loss: Loss | None, print_: Tensor | float = float("nan")) -> None:
        """The update after `step` others is made, on a batch of this fingerprint; where no loss is given, it is
        what the model returned. Of a loss of several numbers the mean is kept."""
        loss, self._loss = self._loss if loss is None else loss, None
        mean = float("nan") if loss is None else _mean(loss)
        now, before = (time.perf_counter(), self._pace.seconds), self._mark
        self._mark = now
        ms = float("nan") if before is None else 1000 * (now[0] - before[0] - (now[1] - before[1]))
        self._made.append(Made(step, mean, self._rate, loss is not None, ms, self._tokens, print_, self._own))
        self._tokens, self._own = 0, {}

    @property
    def returned_loss(self) -> Tensor | None:
        """What the model has returned as its loss in this update, as far as it goes."""
        return self._loss

    def kept(self, wait: bool) -> float | None:
        """The loss of the last update; None where there was none, or where a device would have to be waited for."""
        one = self._made[-1]
        away = isinstance(one.train_loss, Tensor) and one.train_loss.device.type != "cpu"
        return float(one.train_loss) if one.told and (wait or not away) else None

    def take(self) -> dict[str, np.ndarray]:
        """Of the updates since this was last asked: step, train_loss (told or not), learning_rate, step_ms, tokens,
        same_batch, and by their names the numbers that the loop logged."""
        made, self._made, self._given = self._made, [], time.perf_counter()
        prints = _numbers([one.print for one in made], torch.float64)
        before, self._print = np.r_[self._print, prints[:-1]][: len(prints)], prints[-1] if made else self._print
        known = np.isfinite(before) & np.isfinite(prints)
        own = dict.fromkeys(name for one in made for name in one.own)
        return {name: _numbers([one.own.get(name, float("nan")) for one in made]) for name in own} | {
            "same_batch": np.where(known, before == prints, np.nan),
            "step": np.array([one.step for one in made]), "told": np.array([one.told for one in made]),
            "train_loss": _numbers([one.train_loss for one in made]),
            "learning_rate": _numbers([one.learning_rate for one in made]),
            "step_ms": np.array([one.step_ms for one in made]), "tokens": np.array([one.tokens for one in made], float),
        }  # fmt: skip

    def due(self) -> bool:
        return len(self) >= MOST_WAITING or len(self) > 0 and time.perf_counter() - self._given > SECONDS


def write(writer: RunWriter, found: dict[str, np.ndarray]) -> None:
    """Buffer what `take` gave; it is written with others when that is due."""
    assert writer.updates is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = np.where(found["tokens"] > 0, 1000 * found["tokens"] / found["step_ms"], np.nan)
    columns = {name: x for name, x in found.items() if name not in ("step", "told", "tokens")}
    own = {name: Variable((), (), "float64", attrs(name, LOGGED), UPDATES_IN_CHUNK) for name in columns.keys() - OURS}
    writer.make_room({}, own)
    columns["tokens_per_second"] = speed
    for i, step in enumerate(found["step"].tolist()):
        writer.updates.append(int(step), {name: column[i] for name, column in columns.items()})
    if writer.updates.due():
        writer.flush()


def _mean(loss: Any) -> Tensor | float:
    """That of a tensor stays on its device, so that nobody waits for it."""
    if isinstance(loss, Tensor):
        return loss.detach().float().mean()
    if not isinstance(loss, list | tuple):
        return float(loss.mean() if isinstance(loss, np.ndarray) else loss)
    means = [_mean(one) for one in loss]
    device = next((one.device for one in means if isinstance(one, Tensor)), torch.device("cpu"))
    return torch.stack([torch.as_tensor(one, dtype=torch.float32, device=device) for one in means]).mean()


def _numbers(given: list[Any], dtype: torch.dtype = torch.float32) -> np.ndarray:
    """Numbers, some of them on devices: one transfer for all that are on the same."""
    found = np.array([float("nan") if isinstance(x, Tensor) else float(x) for x in given])
    for device in {x.device for x in given if isinstance(x, Tensor)}:
        there = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.device == device]
        found[there] = torch.stack([given[i].to(dtype).reshape(()) for i in there]).cpu().numpy()
    return found
