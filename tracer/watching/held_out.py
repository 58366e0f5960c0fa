"""The loss of somebody's model on batches that it is not trained on, given once as `held_out`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from tracer.data import probes
from tracer.hooks.inputs import Inputs, logits_of, loss_of
from tracer.hooks.refusals import CannotWatch
from tracer.torch_internals import tree_map

BATCHES = 8
"""Read of a loader, once, so that every record is about the same ones."""
IGNORED = -100
"""A label that is no target, as in F.cross_entropy."""


class HeldOut:
    """A batch, as the model is called with it (a tensor, a tuple of arguments or a mapping of them), or a loader of
    such batches, of which the first 8 are kept. A list of tensors is a batch, as DataLoader makes them, where the model
    is called with such ones in training; else it is a loader of batches of token ids."""

    def __init__(self, given: Any) -> None:
        if not isinstance(given, Iterable):
            raise ValueError(f"held_out={given!r} is neither a batch (tensor, tuple, mapping) nor a loader of batches")
        arguments = isinstance(given, tuple) and len(given) > 0 and all(isinstance(x, Tensor) for x in given)
        self._loader = (given,) if isinstance(given, (Tensor, Mapping)) or arguments else given
        self._batches: list[Any] | None = None

    def loss(self, model: nn.Module, like: Inputs) -> float:
        """Mean loss in nats a target: the model's own, else of each next token. `like`: a call of it in training."""
        if self._batches is None:
            loader = (self._loader,) if _is_call(self._loader, like) else self._loader
            self._batches = list(itertools.islice(loader, BATCHES))
        found = [_loss(model, batch, like) for batch in self._batches]
        if not (weight := sum(n for _, n in found)):
            raise CannotWatch("held_out holds no batch, or none with a target")
        return sum(loss * n for loss, n in found if n) / weight


def _is_call(given: Any, like: Inputs) -> bool:
    """Is it a list of what the model is called with in training? It has no more tensors, and the others follow from the
    token ids where they do in training (targets are these one place on), unless they have blanks (-100)."""
    if not isinstance(given, list) or not given or not all(isinstance(x, Tensor) for x in given):
        return False
    one = Inputs.of(tuple(given), {})
    known, same = (x.tokens is not None and x.with_tokens(x.tokens) is not None for x in (like, one))
    if len(given) > len(like.tensors()):
        return False
    if same or not known or any(bool((x < 0).any()) for x in given):
        return True
    if len(given) == len(like.tensors()) and _may_be_masked(one):
        raise CannotWatch(
            f"held_out is a list of {len(given)} tensors that may be one batch with masked targets, or as many batches "
            f"of token ids: give one batch as a tuple, (x, y), and batches of ids as lists of one, [[x], [y]]"
        )
    return False


def _may_be_masked(one: Inputs) -> bool:
    """Is there, beside the ids, what could be a mask, or these one place on but for one or two values?"""
    ids = one.tokens
    if ids is None or any(x.shape != ids.shape for x in one.leaves):
        return False
    others = [x[:, :-1] for x in one.leaves if x is not ids]
    return any(len(x[x != ids[:, 1:]].unique()) <= 2 for x in others)


def _loss(model: nn.Module, batch: Any, like: Inputs) -> tuple[float, int]:
    """Mean loss of a batch, on the device and in the precision of training, and how many targets it is about."""
    device = next(x.device for x in like.leaves if isinstance(x, Tensor))
    named = dict(batch) if isinstance(batch, Mapping) else {}
    args = () if named else (batch,) if isinstance(batch, Tensor) else tuple(batch)
    args, named = tree_map(lambda x: x.to(device) if isinstance(x, Tensor) else x, (args, named))
    given = replace(Inputs.of(args, named), autocast=like.autocast)
    tokens = given.tokens
    no_targets = isinstance(batch, Tensor) or isinstance(batch, list) and len(batch) == 1
    alone = like.with_tokens(tokens) if no_targets and tokens is not None else None
    try:
        output = (alone or given).run(model)
    except Exception as error:
        raise CannotWatch(
            f"the model cannot be called with a batch of held_out ({type(error).__name__}: {error}): give what it is "
            f"called with in training"
        ) from error
    logits = None if tokens is None else logits_of(output, tokens)
    own = loss_of(output) if alone is None or logits is None else None  # of made-up targets, the last of which is wrong
    if own is not None:
        labels = named.get("labels")
        return float(own), int((labels != IGNORED).sum()) if isinstance(labels, Tensor) else given.batch or 1
    if logits is None or tokens is None:
        raise CannotWatch(
            "held_out: the model's output has neither a loss nor logits for every token; give batches with their "
            "targets, as the model is called with them in training"
        )
    loss, mask = probes.per_token_loss(logits, tokens), named.get("attention_mask")
    if isinstance(mask, Tensor):
        loss = loss[mask[:, 1:].bool()]
    return float(loss.mean()), loss.numel()
