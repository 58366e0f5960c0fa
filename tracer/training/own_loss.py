"""A loss of one's own in our loop: a function of the logits and the batch, trained on instead of next-token loss.

It runs only where a person has named it. The dice of torch are a function of (seed, step) when it is called, so that a
loss which rolls them goes on to the bit as well; what else it keeps from one call to the next does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tracer.config.field_docs import fields_in_help
from tracer.measures import Measure
from tracer.measures.own_names import why_no_name
from tracer.named_code import NEXT_TOKEN, kind_of, name_of, named


@fields_in_help
@dataclass(frozen=True)
class LossBatch:
    """Rows of a training batch, beside whose logits a loss of one's own is taken, on the model's device."""

    tokens: Int[Tensor, "batch pos"]
    """What the model has read."""
    targets: Int[Tensor, "batch pos"]
    """The token after each."""
    mask: Bool[Tensor, "batch pos"]
    """Which targets count, as the data's `loss_mask` says; without one, all."""
    step: int
    """Updates made before."""
    model: Any = None
    """The model with the clamps of this step, for losses of more than logits: gradients pass through what it is asked.
    None where several processes train, whose gradients would not meet."""


Loss = str | Callable[..., Any]
"""A function (logits, batch), its `module:name`, or NEXT_TOKEN."""


class OwnLoss:
    """The loss that one training is on; `name` is its module:name."""

    def __init__(self, given: Loss) -> None:
        self.name = name_of(given)
        self._function: Any = named(given, "loss") if isinstance(given, str) else given
        if not callable(self._function):
            raise self.wrong("it is not a function of logits and a batch")
        word = re.sub(r"\W+", "_", self.name.rpartition(":")[2].rpartition(".")[2]).strip("_")
        self.variable = f"loss_{word}"
        """Its variable of the trace."""
        if why := why_no_name(self.variable):
            raise self.wrong(f"in the trace it would be {self.variable}: {why}")

    @property
    def row(self) -> Measure:
        """What is said of it in a trace."""
        word = self.variable.removeprefix("loss_")
        said = (getattr(self._function, "__doc__", None) or "").strip().partition("\n")[0].rstrip(".")
        return Measure(
            name=self.variable, label=f"Loss trained on: {word}", short="loss", source=self.name, probe="train",
            formula=said or f"as {self.name} computes it, on the batch of that step", dims=("step",), worse="high",
        )  # fmt: skip

    def __call__(
        self, logits: Float[Tensor, "batch pos d_vocab"], batch: LossBatch, n_counted: int, parts: int, world: int
    ) -> Float[Tensor, ""]:
        """What one of `parts` micro-batches of one of `world` processes adds to the loss of the whole batch.

        One number for each target is a mean over the `n_counted` that count in the batch, one number for all a mean
        over micro-batches; gradients are means over processes. ValueError, with the loss's name, for anything else.
        """
        try:
            loss = self._function(logits, batch)
        except Exception as error:  # somebody's code, which raises whatever it runs into
            raise self.wrong(f"it raised {type(error).__name__}: {error}") from error
        places = batch.targets.shape
        if not isinstance(loss, Tensor) or not loss.is_floating_point() or loss.shape not in ((), places):
            found = f"{loss.dtype} {list(loss.shape)}" if isinstance(loss, Tensor) else kind_of(loss)
            raise self.wrong(f"it must return one number, or one for each target, {list(places)}, as a tensor of "
                             f"floating-point numbers, not {found}")  # fmt: skip
        if not loss.requires_grad:
            raise self.wrong("what it returns does not depend on the logits by anything that has a gradient (detach, "
                             "item, argmax, no_grad?), so that nothing can be trained on it")  # fmt: skip
        if loss.ndim:
            return loss.where(batch.mask, 0).sum() * (world / n_counted)
        return loss / parts

    def check(self, loss: Float[Tensor, ""], params: Mapping[str, Tensor]) -> None:
        """ValueError where no parameter can be moved by it, or where it or its gradients are not finite."""
        if not torch.isfinite(loss):
            raise self.wrong(f"it is {float(loss.detach())} on the first batch, before any update")
        asked = {name: p for name, p in params.items() if p.requires_grad}
        try:
            found = torch.autograd.grad(loss, list(asked.values()), allow_unused=True)
        except RuntimeError as error:
            raise self.wrong(f"it has no gradient: {error}") from error
        gradients = {name: g for name, g in zip(asked, found, strict=True) if g is not None}
        if not gradients:
            raise self.wrong("no parameter of the model is in what it returns, so that nothing can be trained on it")
        if bad := [name for name, gradient in gradients.items() if not gradient.isfinite().all()]:
            raise self.wrong(f"its gradient of {bad[0]} is not finite on the first batch, before any update")

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"loss={self.name}: {what}")


def given_loss(loss: Loss | None) -> OwnLoss | None:
    """None is the next-token loss, which has a word of its own, too."""
    return None if loss is None or loss == NEXT_TOKEN else OwnLoss(loss)
